"""Drift: a replica runs, but not as the file says. Reported, never acted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.documents.inventory import Replica, ReplicaMember
from fleetctl.documents.plan import Drift
from fleetctl.documents.selector import matches
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger import LedgerNode
from fleetctl.spec.resolved import ResolvedModel


def find_drift(
    model: ResolvedModel, shape: ReplicaShape, live: Sequence[Replica], nodes: Mapping[str, LedgerNode]
) -> list[Drift]:
    """Return how the live replicas of one model differ from the file, by replica id; `nodes` by node id."""
    above = _above_cap(shape, live, nodes)
    found: list[Drift] = []
    for replica in live:
        number = replica.replica_id or 0
        if replica.spec_hash is not None and replica.spec_hash != model.spec_hash:
            found.append(Drift(model=model.key, replica_id=number, code="SPEC_CHANGED", message=(
                f"runs spec {replica.spec_hash[:12]}, the file has {model.spec_hash[:12]}; kept as it is")))
        moved = _left_selector(model, replica, nodes)
        if moved:
            found.append(Drift(model=model.key, replica_id=number, code="SELECTOR_NO_LONGER_MATCHES", message=moved))
        if number in above:
            found.append(Drift(model=model.key, replica_id=number, code="ABOVE_SLOT_CAP", message=above[number]))
    return found


def _left_selector(model: ResolvedModel, replica: Replica, nodes: Mapping[str, LedgerNode]) -> str | None:
    for member in replica.members:
        node = nodes.get(member.node_id or "")
        selectors = _selectors_for(model, member)
        if node is None or not selectors or any(matches(selector, node.labels) for selector in selectors):
            continue
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(selectors[0].items()))
        return f"runs on {node.name}, which the selector {wanted} no longer allows; kept where it is"
    return None


def _selectors_for(model: ResolvedModel, member: ReplicaMember) -> list[dict[str, str]]:
    """Return the selectors a live member may be held to; none when the file has no such group or role any more."""
    return [wanted.node_selector for group in model.workers if group.name == member.group
            for wanted in group.members if wanted.role == member.role]


def _above_cap(shape: ReplicaShape, live: Sequence[Replica], nodes: Mapping[str, LedgerNode]) -> dict[int, str]:
    """Return, by replica id, why a replica is above a node's slot cap; the lowest ids are those within it."""
    on_node: dict[str, list[int]] = {}
    for replica in live:
        for node_id in {member.node_id for member in replica.members if member.node_id in nodes}:
            on_node.setdefault(node_id or "", []).append(replica.replica_id or 0)
    above: dict[int, str] = {}
    for node_id, ids in sorted(on_node.items()):
        cap = nodes[node_id].policy.cap_for(shape.wants_cards)
        for number in sorted(ids)[cap.limit:]:
            above[number] = (f"is one of {len(ids)} on {nodes[node_id].name}, where the cap is {cap.limit} "
                             f"({cap.source}); kept")
    return above
