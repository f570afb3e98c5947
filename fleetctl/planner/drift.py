"""Drift: a replica runs, but not as the file says. Reported, never acted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from fleetctl.documents.inventory import Replica
from fleetctl.documents.plan import Drift
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.live import ModelState, is_outdated
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.ledger import LedgerNode
from fleetctl.planner.placement.policies import NO_CAP

Seats = Mapping[tuple[str | None, str], tuple[Sequence[Mapping[str, str]], dict[str, bool]]]
"""The selectors a live member may be held to, by group and role; none when the file has no such seat any more.

With them, by node id, whether they allow it, as far as that was asked; models with the same selectors share it.
"""
Allowed = dict[tuple[tuple[tuple[str, str], ...], ...], dict[str, bool]]


def find_drift(
    models: Sequence[ResolvedModel], shapes: Mapping[str, ReplicaShape], states: Mapping[str, ModelState],
    nodes: Sequence[LedgerNode], reloading: Set[str] = frozenset(),
) -> list[Drift]:
    """Return how live replicas differ from the file: by model in file order, then by replica id.

    The spec of those that are `reloading`, by actor id, is not reported: the plan changes it.
    """
    by_id = {node.id: node for node in nodes}
    capped = {wants_cards: frozenset(node.id for node in nodes if node.policy.cap_for(wants_cards).limit < NO_CAP)
              for wants_cards in (False, True)}
    found: list[Drift] = []
    allowed_by: Allowed = {}
    for model in models:
        shape, live = shapes[model.key], states[model.key].live
        above = _above_cap(shape, live, by_id, capped[shape.wants_cards])
        if live:
            found += _of_model(model, live, above, by_id, allowed_by, reloading)
    return found


def _of_model(
    model: ResolvedModel, live: Sequence[Replica], above: Mapping[int, str], nodes: Mapping[str, LedgerNode],
    allowed_by: Allowed, reloading: Set[str],
) -> Iterator[Drift]:
    seats = _seats(model, allowed_by)
    for replica in live:
        number = replica.replica_id or 0
        if is_outdated(replica, model) and replica.actor_id not in reloading:
            yield spec_drift(model, replica)
        moved = _left_selector(seats, replica, nodes)
        if moved:
            yield Drift(model=model.key, replica_id=number, code="SELECTOR_NO_LONGER_MATCHES", message=moved)
        if number in above:
            yield Drift(model=model.key, replica_id=number, code="ABOVE_SLOT_CAP", message=above[number])


def spec_drift(model: ResolvedModel, replica: Replica) -> Drift:
    """Return the drift of a replica that is outdated."""
    return Drift(
        model=model.key, replica_id=replica.replica_id or 0, code="SPEC_CHANGED", runs=replica.spec_hash,
        wants=model.spec_hash, message=(
            f"outdated: runs spec {str(replica.spec_hash)[:12]}, the file has {model.spec_hash[:12]}; kept as it is"))


def _seats(model: ResolvedModel, allowed_by: Allowed) -> Seats:
    seats: dict[tuple[str | None, str], list[Mapping[str, str]]] = {}
    for group in model.workers:
        for member in group.members:
            seats.setdefault((group.name, member.role), []).append(member.node_selector)
    return {seat: (selectors, allowed_by.setdefault(tuple(tuple(one.items()) for one in selectors), {}))
            for seat, selectors in seats.items()}


def _left_selector(seats: Seats, replica: Replica, nodes: Mapping[str, LedgerNode]) -> str | None:
    for member in replica.members:
        seat, node_id = seats.get((member.group, member.role)), member.node_id or ""
        if seat is None or node_id not in nodes:
            continue
        selectors, known = seat
        allowed = known.get(node_id)
        if allowed is None:
            allowed = known[node_id] = _allowed(selectors, nodes[node_id].labels)
        if not allowed:
            wanted = ", ".join(f"{key}={value}" for key, value in sorted(selectors[0].items()))
            return f"runs on {nodes[node_id].name}, which the selector {wanted} no longer allows; kept where it is"
    return None


def _allowed(selectors: Sequence[Mapping[str, str]], labels: Mapping[str, str]) -> bool:
    for selector in selectors:  # noqa: SIM110  a loop: asked for each replica that runs
        if matches(selector, labels):
            return True
    return False


def _above_cap(
    shape: ReplicaShape, live: Sequence[Replica], nodes: Mapping[str, LedgerNode], capped: Set[str]
) -> dict[int, str]:
    """Return, by replica id, why a replica is above a node's slot cap; the lowest ids are those within it."""
    on_node: dict[str, list[int]] = {}
    for replica in live if capped else ():
        for node_id in {member.node_id for member in replica.members if member.node_id in capped}:
            on_node.setdefault(node_id or "", []).append(replica.replica_id or 0)
    above: dict[int, str] = {}
    for node_id, ids in sorted(on_node.items()):
        cap = nodes[node_id].policy.cap_for(shape.wants_cards)
        for number in sorted(ids)[cap.limit:]:
            above[number] = (f"is one of {len(ids)} on {nodes[node_id].name}, where the cap is {cap.limit} "
                             f"({cap.source}); kept")
    return above
