"""Spread out: moves new replicas of models with a written spread to less crowded values, at no cost to other models.

A replica is lifted and placed again, alone or together with the replicas on one node of a less crowded value. A move is
kept if everything lifted has a place again and the crowding is lower: the sum over values of the squared number of
replicas. Running replicas never move, and the number of replicas placed per model does not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fleetctl.planner.placement.claims import Selector, Spread
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.greedy import MAX_LIFTED, MovablePacking, place_some
from fleetctl.planner.placement.ledger.ledger import Value
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.objective import crowding, total_price

SWAPS = 24
"""The most nodes tried for one replica."""


def pack_again(placed: Sequence[Placed], placer: Placer) -> list[Placed]:
    """Place as many replicas of each model again, largest members first; `placer` puts spreads first."""
    counts = Counter(replica.demand.option for replica in placed)
    demands = {replica.demand.option: replica.demand for replica in sorted(placed, key=_largest_first)}
    return [replica for demand in demands.values() for replica in place_some(demand, counts[demand.option], placer)]


def spread_out(
    demands: Sequence[Demand], placed: Sequence[Placed], placer: Placer, *, opening: Sequence[int], steps: int
) -> list[Placed]:
    """Spread out a packing that is on the ledger; the result replaces it there, in order of creation.

    `placer` puts written spreads first; `opening` = the numbers of the nodes' offers before the packing; `steps` = the
    most placements to try.
    """
    mover = _Mover(placer, MovablePacking(placer.ledger, opening, placed), steps)
    spread = [demand for demand in demands if demand.shape.spread is not None]
    while mover.steps > 0 and any(mover.spread(demand) for demand in spread):
        pass
    return mover.packing.closed_up()


@dataclass(slots=True)
class _Mover:
    """The present packing; `steps` = how many placements may still be tried."""

    placer: Placer
    packing: MovablePacking
    steps: int
    _values_of: dict[tuple[Spread | None, tuple[Selector, ...]], set[Value]] = field(default_factory=dict)
    """By spread and selectors: the values that members of a replica may be on."""

    def spread(self, demand: Demand) -> bool:
        """Move replicas of one model as long as that helps; return whether any moved."""
        moved = False
        while self.steps > 0 and self._move_one(demand):
            moved = True
        return moved

    def _move_one(self, demand: Demand) -> bool:
        crowd, minimum = self.placer.ledger.crowd(demand.shape.key), self._minimum(demand)
        if max(crowd.values(), default=0) <= minimum + 1:
            return False
        mine = [replica for replica in self.packing.placed.values() if replica.demand.option == demand.option]
        values = self.placer.ledger.values
        worst = {id(replica): max(crowd[value] for value in values(demand.shape.key, replica.nodes))
                 for replica in mine}
        crowded = sorted((replica for replica in mine if worst[id(replica)] > minimum + 1),
                         key=lambda replica: -worst[id(replica)])
        return any(self._move(replica, ()) for replica in crowded) or any(
            self._move(replica, others) for replica in crowded for others in self._swaps(replica, worst[id(replica)]))

    def _move(self, replica: Placed, others: Sequence[Placed]) -> bool:
        """Place a replica again, then the `others`; keep the result, and return True, if all fit and it is better."""
        if self.steps <= 0:
            return False
        ledger, lifted = self.placer.ledger, [replica, *others]
        demands = {other.demand.option: other.demand for other in lifted}.values()
        mark, before = ledger.mark(), crowding(demands, ledger)
        added: list[Placed] = []
        if self.packing.lift(lifted):
            for other in (replica, *sorted(others, key=_largest_first)):
                self.steps -= 1
                again = next(place_some(other.demand, 1, self.placer), None)
                if again is None:
                    break
                added.append(again)
        prices = ledger.prices
        dearer = prices is not None and total_price(added, prices) > total_price(lifted, prices)
        if len(added) == len(lifted) and not dearer and crowding(demands, ledger) < before:
            self.packing.accept(lifted, added)
            return True
        ledger.undo(mark)
        return False

    def _swaps(self, replica: Placed, crowded: int) -> Iterator[list[Placed]]:
        """Yield the replicas on single nodes of less crowded values, then the same with the replica's neighbors."""
        ledger, shape = self.placer.ledger, replica.demand.shape
        crowd, mine, on_node = ledger.crowd(shape.key), replica.nodes, self.packing.on_node
        nodes = {node for selector in shape.selectors for node in ledger.selected(selector)
                 if node not in mine and on_node.get(node)}
        counts = {node: sum(crowd.get(value, 0) for value in ledger.values(shape.key, (node,))) for node in nodes}
        ranked = sorted((count, node) for node, count in counts.items() if count + 1 < crowded)
        beside = {id(other): other for node in sorted(mine) for other in on_node[node] if other is not replica}
        for own in ({}, beside) if beside else ({},):
            for _, node in ranked[:SWAPS]:
                others = own | {id(other): other for other in on_node[node] if other is not replica}
                if 0 < len(others) <= MAX_LIFTED:
                    yield list(others.values())

    def _minimum(self, demand: Demand) -> int:
        """Return the number of replicas on the least crowded value that a member may be on."""
        ledger, spread = self.placer.ledger, demand.shape.spread
        reach = spread, tuple(demand.shape.selectors)
        if reach not in self._values_of:
            nodes = {node for selector in reach[1] for node in ledger.selected(selector)}
            self._values_of[reach] = ledger.values(demand.shape.key, nodes)
        crowd = ledger.crowd(demand.shape.key)
        return min((crowd.get(value, 0) for value in self._values_of[reach]), default=0)


def _largest_first(replica: Placed) -> tuple[int, ...]:
    return (-max(assigned.gpus for assigned in replica.assignments), -replica.demand.priority, replica.demand.place)
