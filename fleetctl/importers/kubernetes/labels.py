"""Turns labels of Kubernetes nodes into selectors of Ray nodes. A label is kept, and the Ray nodes must be given it.

Ray's name for a card is only used if it is certain, that is, if all Ray releases agree on it.
"""

from __future__ import annotations

import re

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.selector import ACCELERATOR_LABEL, Selector
from fleetctl.importers.reading import Reading

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
