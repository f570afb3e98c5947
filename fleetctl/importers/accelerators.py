"""What Ray calls a card, from what others call it; only what is certain, so nothing where releases of Ray disagree."""

from __future__ import annotations

import re

_RULES = (re.compile(r"\w+\s+([A-Z0-9]+)"), re.compile(r"\w+\s+((?:[A-Z]+\s+)*[A-Z0-9]*\d[A-Z0-9]*)"))
"""How Ray makes its label from a product name: up to 2.5x, and since (NVIDIA_GPU_NAME_PATTERN)."""

_CLOUD = {
    "nvidia-tesla-t4": "T4", "nvidia-tesla-v100": "V100", "nvidia-tesla-p100": "P100", "nvidia-l4": "L4",
    "nvidia-tesla-a100": "A100", "nvidia-a100-80gb": "A100", "nvidia-h100-80gb": "H100",
    "nvidia-h100-mega-80gb": "H100", "nvidia-h200-141gb": "H200", "nvidia-b200": "B200",
}
"""GKE's names of accelerators (`cloud.google.com/gke-accelerator`)."""


def accelerator_of_product(product: str) -> str | None:
    """Return Ray's accelerator type of `NVIDIA H100 80GB HBM3`, or None where it is not certain."""
    found = {match[1].replace(" ", "-") if (match := rule.match(product)) else None for rule in _RULES}
    name = found.pop()
    return name if not found and name and any(char.isdigit() for char in name) else None


def accelerator_of_label(key: str, value: str) -> str | None:
    """Return Ray's accelerator type for a node label of GPU feature discovery or of GKE, or None."""
    if key == "nvidia.com/gpu.product":
        # feature discovery writes a product name with hyphens for spaces, and marks shared and sliced cards
        plain = value.removesuffix("-SHARED")
        return None if "MIG" in plain else accelerator_of_product(plain.replace("-", " ", 1))
    return _CLOUD.get(value) if key == "cloud.google.com/gke-accelerator" else None
