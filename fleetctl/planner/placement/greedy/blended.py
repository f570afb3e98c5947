"""All models of a fleet mixed evenly, each member where it does the least harm to the rest (tier C).

Sorted orders use up one kind of room before the next model is looked at: all members without a GPU first drain the CPU
that the cards need. In an even mixture what is still missing always looks like the whole, so that the prices of
`fragmentation` hold until the end. Knows no priorities: what comes out counts only where it beats the other orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.greedy.fragmentation import Fragmentation, Target
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer, Stand


def pack_blended(demands: Sequence[Demand], ledger: Ledger) -> list[Placed]:
    """Place as much as fits, on `ledger`; about 1 ms per replica, the result is in order of creation.

    The order of `demands` does not matter beyond equals; replicas with several members go by the placer's own choice.
    """
    score, placer = Fragmentation(ledger, target_of(demands)), Placer(ledger)
    placed: list[Placed] = []
    full: set[int] = set()
    for demand in _mixed(demands):
        if demand.place not in full:
            stands = _single(demand, score, placer) if demand.shape.size == 1 else placer.place(demand.shape)
            if stands is None:
                full.add(demand.place)
            else:
                placed.append(Placed(demand, stands))
    return placed


def target_of(demands: Sequence[Demand]) -> list[Target]:
    """Return the members that a fleet still misses, by kind."""
    return [(*kind, float(demand.missing * group.copies * count))
            for demand in demands for group in demand.shape.groups for kind, count in group.classes().items()]


def _mixed(demands: Sequence[Demand]) -> Iterator[Demand]:
    """Yield each demand once per missing replica.

    First the first replica of each model without any, then those that need several cards on one node, the largest
    first; all others evenly mixed.
    """
    turns = []
    for demand in demands:
        widest = max(member.claim.whole_cards for group in demand.shape.groups for member in group.members)
        for number in range(demand.missing):
            first = number == 0 and demand.live == 0
            when = 0 if first or widest > 1 else (2 * number + 1) * (1 << 32) // (2 * demand.missing)
            turns.append(((not first, when, -widest, -demand.shape.gpu_units, demand.place, number), demand))
    for _, demand in sorted(turns, key=lambda turn: turn[0]):
        yield demand


def _single(demand: Demand, score: Fragmentation, placer: Placer) -> tuple[Stand, ...] | None:
    seat, ledger, shape = demand.shape.seats[0], placer.ledger, demand.shape
    node = score.best((seat.claim, seat.selector), placer.allowed(shape), placer.crowded(shape))
    taken = None if node is None else ledger.take(node, seat.claim)
    if node is None or taken is None:
        return None
    return (Stand(seat, node, taken.gpus, ledger.take_slots(shape.key, (node,))[node]),)
