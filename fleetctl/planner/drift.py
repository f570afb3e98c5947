"""Drift: a running replica differs from the file. Reported, never acted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache

from fleetctl.documents.canonical import short_hash
from fleetctl.documents.inventory import Replica
from fleetctl.documents.plan import Drift
from fleetctl.documents.quantity import grouped, some
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.live import ModelState, is_outdated, variant_of
from fleetctl.planner.placement.claims import ReplicaShape, Selector
from fleetctl.planner.placement.ledger.ledger import LedgerNode
from fleetctl.planner.placement.policies import NO_CAP

Seats = Mapping[tuple[str | None, str], tuple[Selector, ...]]
"""The selectors of a live member's seat, by group and role; missing if the file no longer has that seat."""


def find_drift(
    models: Sequence[ResolvedModel], shapes: Mapping[str, Sequence[ReplicaShape]], states: Mapping[str, ModelState],
    nodes: Sequence[LedgerNode], reloading: Set[str] = frozenset(),
) -> list[Drift]:
    """Return how live replicas differ from the file: by model in file order, then by replica id.

    `shapes` = of each alternative of a model, by its key. The spec of replicas that are `reloading` (actor ids) is not
    reported: the plan changes it.
    """
    by_id = {node.id: node for node in nodes}
    capped = {wants_cards: frozenset(node.id for node in nodes if node.policy.cap_for(wants_cards).limit < NO_CAP)
              for wants_cards in (False, True)}

    @cache  # called for each running member
    def allow(selectors: tuple[Selector, ...], node_id: str) -> bool:
        return node_id not in by_id or any(matches(dict(one.labels), by_id[node_id].labels) for one in selectors)

    found: list[Drift] = []
    for model in models:
        live, wants_cards = states[model.key].live, any(shape.wants_cards for shape in shapes[model.key])
        above = _above_cap(live, by_id, capped[wants_cards], wants_cards=wants_cards)
        seats = [_seats(shape) for shape in shapes[model.key]]
        for replica in live:
            number, variant = replica.replica_id or 0, variant_of(model, replica)
            if is_outdated(replica, model) and replica.actor_id not in reloading:
                found.append(spec_drift(model, replica))
            if variant is not None and (left := _left_selector(seats[variant], replica, by_id, allow)):
                found.append(Drift(model=model.key, replica_id=number, code="SELECTOR_NO_LONGER_MATCHES", message=left))
            if number in above:
                found.append(Drift(model=model.key, replica_id=number, code="ABOVE_SLOT_CAP", message=above[number]))
    return found


def spec_drift(model: ResolvedModel, replica: Replica) -> Drift:
    """Return the drift of an outdated replica, from its variant if the file still has that."""
    place, runs = variant_of(model, replica), f"outdated: runs spec {short_hash(str(replica.spec_hash))}"
    if place is None:
        its = f"its variant {replica.variant} is no longer in the file" if replica.variant else (
            f"the file has the variants {some([one.variant for one in model.variants])}")
        return Drift(model=model.key, replica_id=replica.replica_id or 0, code="SPEC_CHANGED", runs=replica.spec_hash,
                     variant=replica.variant, message=f"{runs}, {its}; kept as it is")
    wanted = model.alternatives[place]
    of_variant = f" of variant {wanted.variant}" if wanted.variant else ""
    return Drift(
        model=model.key, replica_id=replica.replica_id or 0, code="SPEC_CHANGED", runs=replica.spec_hash,
        wants=wanted.spec_hash, variant=wanted.variant or None, message=(
            f"{runs}{of_variant}, the file has {short_hash(wanted.spec_hash)}; kept as it is"))


def _seats(shape: ReplicaShape) -> Seats:
    seats: dict[tuple[str | None, str], tuple[Selector, ...]] = {}
    for group in shape.groups:
        for member in group.members:
            seats[group.name, member.role] = (*seats.get((group.name, member.role), ()), member.selector)
    return seats


def _left_selector(
    seats: Seats, replica: Replica, nodes: Mapping[str, LedgerNode], allow: Callable[[tuple[Selector, ...], str], bool]
) -> str | None:
    for member in replica.members:
        selectors, node_id = seats.get((member.group, member.role)), member.node_id or ""
        if selectors and not allow(selectors, node_id):
            wanted = ", ".join(f"{key}={value}" for key, value in selectors[0].labels)
            return f"runs on {nodes[node_id].name}, which the selector {wanted} no longer allows; kept where it is"
    return None


def _above_cap(
    live: Sequence[Replica], nodes: Mapping[str, LedgerNode], capped: Set[str], *, wants_cards: bool
) -> dict[int, str]:
    """Return, by replica id, why a replica is above a node's slot cap; the lowest ids are within the cap."""
    on_node = grouped((node_id or "", replica.replica_id or 0) for replica in (live if capped else ())
                      for node_id in {member.node_id for member in replica.members if member.node_id in capped})
    above: dict[int, str] = {}
    for node_id, ids in sorted(on_node.items()):
        cap = nodes[node_id].policy.cap_for(wants_cards)
        for number in sorted(ids)[cap.limit:]:
            above[number] = (f"is one of {len(ids)} on {nodes[node_id].name}, where the cap is {cap.limit} "
                             f"({cap.source}); kept")
    return above
