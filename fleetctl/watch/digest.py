"""One word for the state of a cluster, as far as a plan depends on it: when it changes, a new plan may say more."""

from __future__ import annotations

from typing import Any

from fleetctl.documents.canonical import canonical_json, sha256_hex
from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.breaker import Cooling, find_cooled

_PASSING: Any = {
    "observed_at": True, "warnings": True, "unread": True, "failures": True,
    "replicas": {"__all__": {"error", "restarts", "since", "ready_at", "tool_version"}},
    "nodes": {"__all__": {"gpus": {"__all__": {"processes"}}}}}
"""What changes all the time and decides nothing. What failures decide is what cools; see below."""

_STEP = 1 << 30
"""Bytes of card memory in use that count as a change: engines that serve move by less."""


def cluster_digest(fleet: ResolvedFleet, inventory: Inventory) -> str | None:
    """Return the digest of an inventory for the plans of a fleet; None where it is not complete.

    The memory in use of a card of which all is granted decides nothing, and that of a host moves all the time.
    """
    if not inventory.complete:
        return None
    state = inventory.model_dump(mode="json", exclude=_PASSING)
    for node in state["nodes"]:
        for card in node["gpus"]:
            if card["unified"] or card["share"] == 1:
                card["memory_used"] = None
            for key in ("memory_used", "memory_foreign"):
                card[key] = (card[key] or 0) // _STEP
    cooled = find_cooled(fleet, inventory)
    cools: dict[str, Cooling] = {f"model {key}": one for key, one in cooled.models.items()}
    for of, nodes in (("", cooled.nodes), *cooled.left_out.items()):
        cools |= {f"node {node_id} {of}": one for node_id, one in nodes.items()}
    state["cools"] = {about: [one.until, one.over] for about, one in cools.items()}
    return sha256_hex(canonical_json(state))
