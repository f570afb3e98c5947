"""A greedy pass that follows the relaxation: so many members of each kind on each pool of nodes, and no more.

Which pool a member goes to is what greedy passes get wrong where models with selectors compete with models without; the
linear relaxation gets just that right, and knows nothing of single nodes. Each does here what it is good at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fleetctl.planner.placement.claims import ReplicaShape, Selector
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.exact.exact import Examined
from fleetctl.planner.placement.greedy.greedy import Rank, place_some
from fleetctl.planner.placement.ledger.replica import Placer, Stand
from fleetctl.planner.placement.problem import DemandClass


def pack_guided(found: Examined, placer: Placer, rank: Rank) -> list[Placed]:
    """Place the replicas the relaxation counts on the pools it counts them on; classes in order of `rank`.

    Replicas with several members go first and where they fit. The result, in order of creation, stays taken.
    """
    if found.point is None:
        return []
    guide = _Guide(found, placer, np.rint(found.point).astype(np.int64).tolist())
    numbers = sorted(range(len(found.relaxation.problem.demands)),
                     key=lambda number: (not guide.is_gang(number), rank(guide.demand(number)), number))
    placer.expect([*guide.selectors.values()])
    placed = [one for number in numbers for one in guide.place_first(number)]
    return placed + [one for number in numbers for one in guide.place_rest(number)]


@dataclass
class _Guide:
    """What the relaxation allots, while it is used up."""

    found: Examined
    placer: Placer
    counts: list[int]

    def __post_init__(self) -> None:
        relaxation = self.found.relaxation
        self.quota: Counter[tuple[int, int]] = Counter()
        for member, column in relaxation.members.items():
            self.quota[member.item, member.pool] += self.counts[column]
        self.item_of = {kind: number for number, item in enumerate(relaxation.items) for kind in item.kinds}
        self.pools_of: dict[int, list[int]] = defaultdict(list)
        for item, pool in sorted(self.quota):
            self.pools_of[item].append(pool)
        self.left = [self.counts[column] for column in relaxation.replicas]
        self.given: Counter[int] = Counter()
        self.selectors: dict[tuple[int, int], Selector] = {}
        for kind, item in self.item_of.items():
            for pool in self.pools_of[item]:
                self.selectors[kind, pool] = self._selector(kind, pool)

    def demand(self, number: int) -> DemandClass:
        """Return a class of demand."""
        return self.found.relaxation.problem.demands[number]

    def is_gang(self, number: int) -> bool:
        """Tell whether replicas of a class have several members."""
        return self.demand(number).shape.size > 1

    def place_first(self, number: int) -> Iterator[Placed]:
        """Place a first replica for each model of a class without any."""
        for demand in self.demand(number).demands:
            if demand.live == 0 and self.left[number]:
                yield from self._place(number, demand, 1)

    def place_rest(self, number: int) -> Iterator[Placed]:
        """Place what else the relaxation counts of a class, in file order."""
        for demand in self.demand(number).demands:
            yield from self._place(number, demand, min(self.left[number], demand.missing - self.given[demand.place]))

    def _place(self, number: int, demand: Demand, count: int) -> Iterator[Placed]:
        if self.is_gang(number):
            placed = list(place_some(demand, count, self.placer))
            self._use_up(placed)
        else:
            placed = list(self._place_singles(demand, count))
        self.left[number] -= len(placed)
        self.given[demand.place] += len(placed)
        yield from placed

    def _place_singles(self, demand: Demand, count: int) -> Iterator[Placed]:
        (kind, _), = ((kind, 1) for kind in self._kinds(demand))
        item = self.item_of[kind]
        for pool in self.pools_of[item]:
            allotted = min(count, self.quota[item, pool])
            if allotted <= 0:
                continue
            guided = replace(demand, shape=_with_selector(demand.shape, self.selectors[kind, pool]))
            for _, stands in place_some(guided, allotted, self.placer):
                count -= 1
                self.quota[item, pool] -= 1
                yield Placed(demand, tuple(Stand(seat, one.node, one.gpus, one.slot)
                                           for seat, one in zip(demand.shape.seats, stands, strict=True)))

    def _use_up(self, placed: list[Placed]) -> None:
        """Take gangs, which go where they fit, off the quotas of the pools they went to."""
        pool_of = {node: number for number, pool in enumerate(self.found.relaxation.pools)
                   for nodes in pool.nodes for node in nodes}
        numbers = self.found.relaxation.problem.number_of
        for one in placed:
            for stand in one.stands:
                self.quota[self.item_of[numbers[stand.seat.claim, stand.seat.selector]], pool_of[stand.node]] -= 1

    def _kinds(self, demand: Demand) -> Iterator[int]:
        numbers = self.found.relaxation.problem.number_of
        return (numbers[kind] for group in demand.shape.groups for kind in group.classes())

    def _selector(self, kind: int, pool: int) -> Selector:
        """Let a selector of its own stand for the nodes of a pool that a kind may stand on."""
        ledger = self.placer.ledger
        allowed = frozenset(ledger.selected(self.found.relaxation.problem.kinds[kind][1]))
        places = [node for nodes in self.found.relaxation.pools[pool].nodes for node in nodes if node in allowed]
        selector: Selector = (("pool", f"{kind}/{pool}/{len(self.found.relaxation.pools)}"),)
        ledger.select(selector, sorted(places))
        return selector


def _with_selector(shape: ReplicaShape, selector: Selector) -> ReplicaShape:
    group = shape.groups[0]
    member = replace(group.members[0], selector=selector)
    return replace(shape, groups=(replace(group, members=(member,)),))
