"""Nodes: each reports as many cards as it offers GPUs to Ray, and no card is reported twice."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.quantity import SHARE
from fleetctl.inventory.cards import card_warnings


def warnings(evidence: Evidence) -> list[str]:
    """Return what the inventory says about it."""
    return list(card_warnings([(node.name, round(node.resources.total.gpu * SHARE), node.gpus)
                               for node in evidence.alive]))


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes whose two numbers differ, and the cards that two nodes share."""
    for warning in warnings(evidence):
        is_count = not warning.startswith("card ")
        yield Diagnosed(
            code="GPU_COUNT" if is_count else "CARD_SHARED", severity="warning", area="node",
            subject=warning.split()[0 if is_count else 1], message=warning, command="fleetctl inventory",
            advice="start Ray on that node with --num-gpus of its real cards, after a look at the driver: `nvidia-smi`"
            if is_count else "start one Ray node on a machine, or give each its own CUDA_VISIBLE_DEVICES")
