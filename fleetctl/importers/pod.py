"""Imports a pod as a member: its resource requests, its node selector, and one of its containers as the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticCustomError

from fleetctl.documents.quantity import number_in, parse_bytes, parse_cpus
from fleetctl.importers.container import Variables, engine, show_cards
from fleetctl.importers.draft import PLACEHOLDER, filled
from fleetctl.importers.objects import selector
from fleetctl.importers.reading import Reading

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
    "terminationGracePeriodSeconds": "fleetctl has a grace period of its own",
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
        show_cards(started, next(key for key in GPU_RESOURCES if any(key in one for one in limits)))
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
    chosen = next((one for one in containers for part in ("requests", "limits") for key in GPU_RESOURCES
                   if one.peek("resources", part, key) is not None), containers[0])
    for one in containers:
        if one is not chosen:
            one.lose(None, "a further container: a member has only one engine")
    return chosen, engine(chosen, variables, probes_readiness=probes_readiness)


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
