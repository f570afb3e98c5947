"""The metadata of Kubernetes objects, and labels of Kubernetes nodes as selectors of Ray nodes.

A label is kept, and the Ray nodes must be given it. Ray's name for a card is only used if it is certain, that is, if
all Ray releases agree on it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.selector import ACCELERATOR_LABEL, LabelKey, LabelValue, Selector
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
