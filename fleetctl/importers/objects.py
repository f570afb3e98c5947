"""Kubernetes objects: their metadata, labels of nodes as selectors of Ray nodes, and a pod as a member.

A label is kept, and the Ray nodes must be given it. Ray's name for a card is only used if it is certain, that is, if
all Ray releases agree on it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from fleetctl.documents.engine import MAX_GRACE_S
from fleetctl.documents.quantity import format_seconds, number_in, parse_bytes, parse_cpus
from fleetctl.documents.selector import ACCELERATOR_LABEL, LabelKey, LabelValue, Selector
from fleetctl.importers.container import Variables, engine, show_cards, stop_signal
from fleetctl.importers.draft import PLACEHOLDER, filled
from fleetctl.importers.reading import Reading

_SERVER_WRITES = ("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def object_name(reading: Reading) -> tuple[str, str]:
    """Return the namespace and the name of an object, '' if it has none; does not count as reading."""
    return str(reading.peek("metadata", "namespace") or ""), str(reading.peek("metadata", "name") or "")


def model_keys(readings: Sequence[Reading]) -> list[str]:
    """Return a model key for each object: its name, with the namespace in front if several namespaces have it."""
    names = [object_name(reading) for reading in readings]
    namespaces = Counter(name for _, name in set(names))
    return [f"{namespace or 'default'}/{name}" if namespaces[name] > 1 else name for namespace, name in names]


def read_metadata(reading: Reading, key: str | None = None) -> dict[str, str]:
    """Return the labels of an object that its model can have; the rest of its metadata is reported.

    `key` = the key of its model; None if it has none, so that its labels are lost.
    """
    reading.skip("apiVersion", "kind", "status")
    metadata = reading.child("metadata")
    metadata.skip("name", *_SERVER_WRITES)
    namespace, name = object_name(reading)
    if key is not None and key != name:
        metadata.note("namespace", f"several namespaces have the name {name}, so the model key is {key}", "changed")
    elif namespace not in ("", "default"):
        metadata.note("namespace", f"the namespace {namespace} is not kept: a fleet only has model keys", "lost")
    metadata.skip("namespace")
    metadata.child("annotations").skip(_LAST_APPLIED)
    labels = labels_in(metadata) if key is not None else {}
    for what in ("labels", "annotations"):
        metadata.child(what).lose_rest(f"{what} are not kept")
    return labels


def labels_in(metadata: Reading) -> dict[str, str]:
    """Return the labels in the metadata of an object; what cannot be a label of a model is reported."""
    labels, found = metadata.child("labels"), dict[str, str]()
    for name, value in labels.pairs().items():
        try:
            found |= _LABELS.validate_python({name: value})
        except ValidationError:
            labels.lose(name, "not a label that a model can have")
    return found


_LABELS: TypeAdapter[dict[str, str]] = TypeAdapter(dict[LabelKey, LabelValue])
_SELECTOR: TypeAdapter[dict[str, str]] = TypeAdapter(Selector)
_RULES = (re.compile(r"\w+\s+([A-Z0-9]+)"), re.compile(r"\w+\s+((?:[A-Z]+\s+)*[A-Z0-9]*\d[A-Z0-9]*)"))
"""How Ray derives its label from a product name: up to 2.5x, and since then (NVIDIA_GPU_NAME_PATTERN)."""
_CLOUD = {
    "nvidia-tesla-t4": "T4", "nvidia-tesla-v100": "V100", "nvidia-tesla-p100": "P100", "nvidia-l4": "L4",
    "nvidia-tesla-a100": "A100", "nvidia-a100-80gb": "A100", "nvidia-h100-80gb": "H100",
    "nvidia-h100-mega-80gb": "H100", "nvidia-h200-141gb": "H200", "nvidia-b200": "B200",
}
"""Ray's types by GKE's names of accelerators (`cloud.google.com/gke-accelerator`)."""


def selector(owner: Reading, key: str) -> dict[str, str]:
    """Return the labels under a key as a nodeSelector; labels that Ray cannot select by are reported."""
    found: dict[str, str] = {}
    at = owner.child(key)
    for name, value in at.pairs().items():
        accelerator = accelerator_of_label(name, value)
        if accelerator is not None:
            at.note(name, f"kept only as {ACCELERATOR_LABEL}: {accelerator}, the label that Ray sets", "lost")
            found[ACCELERATOR_LABEL] = accelerator
        elif is_selector(name, value):
            at.note(name, f"the Ray nodes must have the label {name}={value}", "todo")
            found[name] = value
        else:
            at.lose(name, "not a label that Ray can select by")
    return found


def is_selector(name: str, value: str) -> bool:
    """Return whether a label can be used unchanged in a nodeSelector."""
    try:
        _SELECTOR.validate_python({name: value})
    except ValidationError:
        return False
    return not value.startswith(("!", "in("))


def accelerator_of_product(product: str) -> str | None:
    """Return Ray's accelerator type of a product such as `NVIDIA H100 80GB HBM3`, or None if it is not certain."""
    found = {match[1].replace(" ", "-") if (match := rule.match(product)) else None for rule in _RULES}
    name = found.pop()
    return name if not found and name and any(char.isdigit() for char in name) else None


def accelerator_of_label(key: str, value: str) -> str | None:
    """Return Ray's accelerator type for a node label of GPU feature discovery or of GKE, or None."""
    if key == "nvidia.com/gpu.product":
        # feature discovery writes product names with hyphens for spaces, and marks shared and MIG cards
        plain = value.removesuffix("-SHARED")
        return None if "MIG" in plain else accelerator_of_product(plain.replace("-", " ", 1))
    return _CLOUD.get(value) if key == "cloud.google.com/gke-accelerator" else None


GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
_CLAIMS = {"cpu": ("cpus", parse_cpus), "memory": ("memory", parse_bytes)}
_LOST = {
    "volumes": "nothing is mounted: their content must be on the nodes",
    "tolerations": "nodes have no taints here; spec.nodes can cordon some of them for all models",
    "affinity": "nodes are only selected by label: see nodeSelector and placement",
    "topologySpreadConstraints": "placement.spread spreads replicas",
    "imagePullSecrets": "there is no image to pull",
    "initContainers": "nothing runs before an engine: prepare the nodes instead",
    "securityContext": "an engine runs as Ray's user",
    "serviceAccountName": "an engine runs as Ray's user",
    "hostNetwork": "an engine is always on the node's network",
    "hostIPC": "an engine is always in the node's namespaces",
    "shareProcessNamespace": "an engine always shares its node's processes",
    "schedulerName": "fleetctl itself decides the placement",
    "priorityClassName": "write the model's priority as a number",
    "runtimeClassName": "there is no container to run",
    "dnsPolicy": "an engine uses the node's DNS settings",
    "restartPolicy": "see restart of the model",
}
_IN_PODMAN = {
    "volumes": "nothing is mounted: add `-v PATH:PATH` to the command for what is on the nodes",
    "imagePullSecrets": "images are pulled on the nodes beforehand, with the logins there",
    "securityContext": "podman's own defaults apply: add its options to the command",
    "runtimeClassName": "podman's own runtime is used",
    "hostIPC": "the command has --ipc=host, for the node's shared memory",
    "shareProcessNamespace": "an engine has one container",
}
"""What replaces the reasons of _LOST if podman starts the images."""


def member(pod: Reading, variables: Variables, *, probes_readiness: bool) -> dict[str, Any]:
    """Return resources, nodeSelector and engine of a pod template, without empty keys."""
    spec = pod.child("spec")
    spec.leads_to("nodeSelector", "nodeSelector")
    container, started = engine_of_pod(pod, variables, probes_readiness=probes_readiness)
    resources = _resources(container.child("resources"))
    if "gpus" in resources:
        limits = [container.peek("resources", part) or {} for part in ("requests", "limits")]
        show_cards(started, next(key for key in GPU_RESOURCES if any(key in limit for limit in limits)))
    return filled({"resources": resources,
                   "nodeSelector": selector(spec, "nodeSelector"), "engine": started})


def engine_of_pod(pod: Reading, variables: Variables, *, probes_readiness: bool) -> tuple[Reading, dict[str, Any]]:
    """Return the container that becomes the engine, and the engine; the rest of the pod is reported."""
    pod.child("metadata").lose_rest("there is no pod")
    spec = pod.child("spec")
    spec.lose_each({**_LOST, **_IN_PODMAN} if spec.record.runtime else _LOST)
    containers = spec.items("containers")
    if not containers:
        spec.note(None, "no container: write the command that serves the model", "todo")
        return spec.at((*spec.path, "containers", 0)), {"command": [PLACEHOLDER]}
    # the first container with GPUs, else the first
    chosen = next((container for container in containers for part in ("requests", "limits") for key in GPU_RESOURCES
                   if container.peek("resources", part, key) is not None), containers[0])
    for container in containers:
        if container is not chosen:
            container.lose(None, "a further container: a member has only one engine")
    spec.leads_to("terminationGracePeriodSeconds", "engine", "stop", "grace")
    found = engine(chosen, variables, probes_readiness=probes_readiness)
    stop = filled({"signal": stop_signal(chosen), "grace": _grace(spec)})
    return chosen, {**found, **({"stop": stop} if stop else {})}


def _grace(spec: Reading) -> str | None:
    """Return how long the engine may take to end."""
    seconds = spec.natural("terminationGracePeriodSeconds")
    if seconds is not None and seconds > MAX_GRACE_S:
        spec.note("terminationGracePeriodSeconds", f"{seconds} s is more than the most that an engine may have: "
                                                   f"{format_seconds(MAX_GRACE_S)} is used", "lost")
        seconds = MAX_GRACE_S
    return None if seconds is None else format_seconds(seconds)


def _resources(source: Reading) -> dict[str, Any]:
    """Return the requested resources; without a request the limit counts, as in Kubernetes."""
    requests, limits = source.child("requests"), source.child("limits")
    found: dict[str, Any] = {}
    gpus = _gpus(requests, limits)
    if gpus:
        found["gpus"] = gpus
    for theirs, (ours, parse) in _CLAIMS.items():
        requested, limit = _amount(requests, theirs, parse), _amount(limits, theirs, parse)
        if requested is not None or limit is not None:
            found[ours] = requested if requested is not None else limit
        if requested is not None and limit is not None and parse(limit) != parse(requested):
            limits.note(theirs, f"only the request of {requested} is kept: an engine's {theirs} is not limited", "lost")
    for part in (requests, limits):
        part.lose_rest("this resource cannot be claimed")
    return found


def _gpus(*parts: Reading) -> int:
    """Return the number of GPUs; a value that is not a number or differs from the first is reported."""
    asked: list[tuple[str, int]] = []
    for part, key in ((part, key) for key in GPU_RESOURCES for part in parts if key in part):
        number = number_in(part.scalar(key))
        if number is None:
            part.note(key, "not a number of GPUs", "todo")
        elif number:
            asked.append((key, number))
            if asked[0] != (key, number):
                part.note(key, f"{number} is not kept: {asked[0][0]}: {asked[0][1]} counts", "lost")
    return asked[0][1] if asked else 0


def _amount(part: Reading, key: str, parse: Callable[[object], int]) -> str | int | float | None:
    """Return an amount as written, digits as a number; None if it is missing or, reported, not an amount."""
    written = part.amount(key)
    if written is None:
        return None
    try:
        parse(written)
    except PydanticCustomError as error:
        part.note(key, f"not read: {error.message()}", "todo")
        return None
    return int(written) if isinstance(written, str) and written.isdigit() else written
