"""The bound if our own running replicas could be moved: the cost of today's fragmentation. Nothing is ever moved.

It is computed on a copy of the ledger without those replicas, which are then placed again before any new ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleetctl.documents.inventory import card_indices
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.exact.climb import most_replicas
from fleetctl.planner.placement.exact.exact import relax
from fleetctl.planner.placement.exact.linear import InfeasibleError
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.occupants import Occupant, Occupants
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.reduce import reduce_problem


def repacked_bound(
    demands: Sequence[Demand], placed: Sequence[Placed], most: int, occupants: Occupants, before: Ledger
) -> int | None:
    """Bound the new replicas of any plan that keeps all of `placed`, if live ones of the same models could be moved.

    `most` = the bound without moves; `before` = the ledger before anything was placed. None if moves gain nothing, or
    if the gain is unknown. A live replica is not movable if it does not have its model's current shape, if its cards
    are unknown, or if one of its nodes takes no new replicas.
    """
    running = replace(occupants, replicas=[one for one in occupants.replicas if not one.planned])
    movable = dict(_movable(demands, running, before))
    lifted = Counter(demand.place for demand in movable.values())
    if not lifted:
        return None
    kept = Counter(one.demand.place for one in placed)
    places = {place for number in movable for place in running.replicas[number].places}
    emptied = before.copied(
        offers={place: running.offer_without(place, movable, sure=False)[0] for place in places},
        ended=[(running.replicas[number].model, running.replicas[number].places) for number in movable])
    try:
        moved = _most(demands, lifted, kept, emptied)
        if moved <= most:
            return None
        return moved if moved > _most(demands, Counter(), kept, before) else None
    except InfeasibleError:  # a replica runs where the file no longer allows it
        return None


def _most(demands: Sequence[Demand], lifted: Counter[int], kept: Counter[int], ledger: Ledger) -> int:
    """Bound the new replicas, if all `lifted` ones and the `kept` ones of the plan must be placed, by place."""
    raised = [replace(demand, missing=demand.missing + lifted[demand.place], live=1) for demand in demands]
    raised = [demand for demand in raised if demand.missing]
    reduced = reduce_problem(state_problem(raised, ledger), raised)
    relaxation = relax(state_problem(reduced.demands, reduced.ledger))
    for column, one in zip(relaxation.replicas, relaxation.problem.demands, strict=True):
        required = sum(lifted[demand.place] + kept[demand.place] for demand in one.demands)
        relaxation.model.lows[column] = min(required, relaxation.model.highs[column])
    return most_replicas(relaxation) - lifted.total()


def _movable(demands: Sequence[Demand], running: Occupants, ledger: Ledger) -> Iterator[tuple[int, Demand]]:
    """Yield the number of each movable live replica, with the demand of its model."""
    demand_of = {demand.shape.key: demand for demand in demands}
    for number, one in enumerate(running.replicas):
        demand = demand_of.get(one.model) if one.counted else None
        if demand is not None and _can_move(one, demand.shape, running, ledger):
            yield number, demand


def _can_move(one: Occupant, shape: ReplicaShape, running: Occupants, ledger: Ledger) -> bool:
    members = [(place, member) for place, there in one.live.items() for member in there]
    if sorted((member.gpus, member.cpus, member.memory) for _, member in members) != sorted(
            (seat.claim.gpus, seat.claim.cpus, seat.claim.memory) for seat in shape.seats):
        return False
    return all(ledger.nodes[place].open and (
        not member.gpus or len(card_indices(member, running.nodes[place].gpus)) == -(-member.gpus // SHARE))
        for place, member in members)
