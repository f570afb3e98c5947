"""One word for the state of a cluster, as far as a plan depends on it: when it changes, a new plan may say more."""

from __future__ import annotations

from typing import Any

from fleetctl.documents.canonical import canonical_json, sha256_hex
from fleetctl.documents.inventory import Inventory

_PASSING: Any = {"observed_at": True, "warnings": True, "replicas": {"__all__": {"error", "restarts", "since"}},
                 "nodes": {"__all__": {"gpus": {"__all__": {"processes"}}}}}
"""What changes all the time and decides nothing."""

_STEP = 1 << 30
"""Bytes of card memory in use that count as a change: engines that serve move by less."""


def cluster_digest(inventory: Inventory) -> str | None:
    """Return the digest of an inventory; None where it is not complete."""
    if not inventory.complete:
        return None
    state = inventory.model_dump(mode="json", exclude=_PASSING)
    for node in state["nodes"]:
        for card in node["gpus"]:
            for key in ("memory_used", "memory_foreign"):
                card[key] = (card[key] or 0) // _STEP
    return sha256_hex(canonical_json(state))
