"""Short descriptions of nodes and replicas: `8xH200`, `64 CPUs`, `2 x 8 GPUs`."""

from __future__ import annotations

from collections import Counter

from fleetctl.documents.inventory import Gpu, Node
from fleetctl.documents.quantity import amount_of, format_bytes
from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.planner.placement.claims import Claim, ReplicaShape, Selector


def hardware(node: Node) -> str:
    """Return the cards of a node by type, or its CPUs if it has none."""
    total = node.resources.total
    count = max(int(total.gpu), len(node.gpus))
    if not count:
        return f"{total.cpu:g} CPUs"
    label = node.labels.get(ACCELERATOR_LABEL)
    if label:
        return f"{count}x{label}"
    kinds = Counter(_kind(card) for card in node.gpus)
    kinds["GPU"] += count - len(node.gpus)
    return "+".join(f"{number}x{kind}" for kind, number in sorted(kinds.items()) if number)


def _kind(card: Gpu) -> str:
    if card.model:
        return card.model.removeprefix("NVIDIA ")
    return f"GPU({format_bytes(card.memory_total)})" if card.memory_total else "GPU"


def need_text(shape: ReplicaShape) -> str:
    """Return the claims of one replica by group: `2 x 8 GPUs of 120Gi`."""
    return ", ".join(" + ".join(_times(count * group.copies, claim_text(claim) + _where(selector))
                                for (claim, selector), count in group.classes().items()) for group in shape.groups)


def _times(count: int, text: str) -> str:
    return text if count == 1 else f"{count} x ({text})" if "," in text else f"{count} x {text}"


def _where(selector: Selector) -> str:
    return f" on {', '.join(f'{key}={value}' for key, value in selector)}" if selector else ""


def claim_text(claim: Claim) -> str:
    """Return the claim of one member in words."""
    parts = []
    if claim.gpus:
        parts.append(amount_of(claim.gpus, "GPU") + (f" of {format_bytes(claim.vram)}" if claim.vram else ""))
    elif claim.vram:
        parts.append(f"{format_bytes(claim.vram)} VRAM")
    if claim.cpus:
        parts.append(amount_of(claim.cpus, "CPU"))
    if claim.memory:
        parts.append(f"{format_bytes(claim.memory)} memory")
    return ", ".join(parts) or "nothing"
