"""Nodes: no card has memory in use that nothing here explains. Such a card is offered to no replica."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.inventory import Gpu
from fleetctl.documents.quantity import format_bytes
from fleetctl.planner.placement.reasons.words import users_text


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each card that the planner leaves out for its memory (CARD_IN_USE)."""
    for node in evidence.inventory.nodes:
        for card in node.gpus:
            if card.memory_foreign:
                yield _finding(node.name, card, card.memory_foreign)


def _finding(node: str, card: Gpu, foreign: int) -> Diagnosed:
    total = f" of {format_bytes(card.memory_total)}" if card.memory_total else ""
    users = users_text(card)
    who = "end what does not belong there" if users else "`nvidia-smi` on that node lists who uses it"
    return Diagnosed(
        code="CARD_IN_USE", severity="warning", area="node", subject=f"{node} card {card.index}",
        message=f"{format_bytes(foreign)}{total} are in use{users}, beyond what Ray has granted on it: nothing new is "
                f"placed there{f' ({card.uuid})' if card.uuid else ''}",
        advice=f"{who}; --nodes finds an engine that a replica of ours left",
        command="fleetctl doctor --nodes")
