"""The relaxation: all demands over pools of nodes as a linear model in whole numbers, never below the truth.

Only single nodes are left out: rows say how many members a pool of nodes can hold in all. For whole cards whose sizes
divide one another the rows for groups of s cards are exact (Coffman, Garey and Johnson, "Bin packing with divisible
item sizes", 1987): an item of L cards takes L / s of the groups of s cards, wherever it stands. For all other sizes
they are still valid, since floor(a / s) + floor(b / s) <= floor((a + b) / s).

Domains are told apart while the model stays small; in a larger one a domain-bound gang may be split over them, which
only makes the bound weaker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from fleetctl.planner.placement.exact.alone import gangs_by_domain, replicas_alone
from fleetctl.planner.placement.exact.card_rows import Term, add_card_rows
from fleetctl.planner.placement.exact.holdings import Holdings
from fleetctl.planner.placement.exact.items import Grain, Item, Loose, Pool, merge_kinds, pool_nodes
from fleetctl.planner.placement.exact.linear import LinearModel
from fleetctl.planner.placement.exact.pool_rows import add_sum_rows
from fleetctl.planner.placement.exact.tally import Tally, count_up
from fleetctl.planner.placement.layout import ANY
from fleetctl.planner.placement.problem import DemandClass, Gang, Problem, SpreadLimit

MAX_COLUMNS = 40_000
MAX_BY_NODE = 5_000
"""Columns up to which every node is told apart."""


class Owner(NamedTuple):
    """Whose members a column counts: one gang of one class of demand (numbers), or -1, -1 for everybody's."""

    demand: int
    gang: int
    replica: int = ANY
    """Which replica, where they are told apart."""


EVERYBODY = Owner(-1, -1)


class Made(NamedTuple):
    """How many gangs there are: `gangs` for each unit of a column, `most` in all."""

    column: int
    gangs: int
    most: int


class Member(NamedTuple):
    """What a column of members counts: whose, of which item, on which pool (numbers)."""

    owner: Owner
    item: int
    pool: int


@dataclass(frozen=True)
class Relaxation:
    """The linear model of a problem and what its columns mean; build it with `relax`."""

    problem: Problem
    tally: Tally
    items: tuple[Item, ...]
    pools: tuple[Pool, ...]
    loose: Loose
    model: LinearModel = field(default_factory=LinearModel)
    replicas: list[int] = field(default_factory=list)
    """Column of the new replicas, by class of demand."""
    served: list[int] = field(default_factory=list)
    """Column that counts models with a first replica, by class of demand."""
    members: dict[Member, int] = field(default_factory=dict)
    """Column by what it counts; not there = none possible."""


def needs_replicas(demand: DemandClass, tally: Tally) -> bool:
    """Tell whether slots or a spread's limit may bind for replicas of several members: each touches some nodes."""
    slots = tally.slots(demand)
    return demand.shape.size > 1 and slots is not None and int(slots.min(initial=demand.missing)) < demand.missing


def limits_values(demand: DemandClass) -> bool:
    """Tell whether the spread of a class has a limit that several nodes share."""
    return demand.limit is not None and not demand.limit.per_node


def relax(problem: Problem) -> Relaxation:
    """State the relaxation of a problem over nodes that are alike. O(demand classes x node classes) work, in NumPy.

    Where telling domains apart would make it too large, it leaves them out.
    """
    tally = count_up(problem)
    items, loose = merge_kinds(tally)
    pools = _pools(problem, items, tally, Grain.ALIKE) or pool_nodes(items, tally, Grain.ANYWHERE)
    return _stated(Relaxation(problem, tally, items, pools, loose))


def relax_by_node(coarse: Relaxation) -> Relaxation | None:
    """State the same problem node by node, with nothing left out; None where it would be too large."""
    pools = _pools(coarse.problem, coarse.items, coarse.tally, Grain.NODES)
    if pools is None:
        return None
    return _stated(Relaxation(coarse.problem, coarse.tally, coarse.items, pools, coarse.loose))


def _stated(relaxation: Relaxation) -> Relaxation:
    _Builder(relaxation).build()
    return relaxation


def _pools(problem: Problem, items: Sequence[Item], tally: Tally, grain: Grain) -> tuple[Pool, ...] | None:
    """Return the pools of a grain; None where the columns of members would be too many."""
    by_node = grain == Grain.NODES
    limit = MAX_BY_NODE if by_node else MAX_COLUMNS
    if by_node and int(tally.nodes.sum()) > limit:
        return None
    pools = pool_nodes(items, tally, grain)
    columns = sum(len(pool.items) for pool in pools)
    for demand in problem.demands:
        told_apart = demand.missing if by_node and needs_replicas(demand, tally) else 1
        columns += told_apart * len(pools) * sum(
            len(gang.parts) for gang in demand.gangs
            if gang.domain_label or (gang.size > 1 and by_node) or limits_values(demand))
    return pools if columns <= limit else None


@dataclass
class _Builder:
    """Adds columns and rows to a relaxation, demand by demand and then pool by pool."""

    into: Relaxation

    def __post_init__(self) -> None:
        self.model, self.tally = self.into.model, self.into.tally
        self.item_of = {kind: number for number, item in enumerate(self.into.items) for kind in item.kinds}
        self.most = [[int(pool.counts @ item.most[pool.rows]) for item in self.into.items] for pool in self.into.pools]
        self.pools_of: list[list[int]] = [[] for _ in self.into.items]
        for number, pool in enumerate(self.into.pools):
            for item in pool.items:
                if self.most[number][item]:
                    self.pools_of[item].append(number)
        self.reach = [frozenset(pools) for pools in self.pools_of]
        self.shared: dict[int, list[tuple[int, int]]] = {}
        self.by_node = all(pool.node is not None for pool in self.into.pools)
        self.holdings = Holdings()

    def build(self) -> None:
        for demand, most in zip(self.into.problem.demands, replicas_alone(self.tally), strict=True):
            self._demand_columns(demand, most)
        for number, demand in enumerate(self.into.problem.demands):
            if self.by_node and needs_replicas(demand, self.tally):
                self._replica_rows(number, demand)
                continue
            for place, gang in enumerate(demand.gangs):
                self._gang_rows(Owner(number, place), demand, gang)
            if demand.limit is not None and limits_values(demand):
                self._limit_rows(number, demand, demand.limit)
        for item, uses in sorted(self.shared.items()):
            self._everybody(item, uses)
        terms: list[list[Term]] = [[] for _ in self.into.pools]
        for member, column in self.into.members.items():
            terms[member.pool].append(Term(member.item, column))
        for pool, here in zip(self.into.pools, terms, strict=True):
            add_card_rows(self.model, self.tally, self.into.items, pool, here, self.holdings)
            add_sum_rows(self.model, self.tally, self.into.items, pool, here)

    def _demand_columns(self, demand: DemandClass, most: int) -> None:
        replicas = self.model.column(most)
        self.into.replicas.append(replicas)
        if demand.unserved == demand.missing:
            self.into.served.append(replicas)
            return
        served = self.model.column(min(most, demand.unserved))
        self.into.served.append(served)
        self.model.at_most([(served, 1), (replicas, -1)], 0)

    def _gang_rows(self, owner: Owner, demand: DemandClass, gang: Gang) -> None:
        high = int(self.model.highs[self.into.replicas[owner.demand]]) * gang.copies
        if not high:
            return
        made = Made(self.into.replicas[owner.demand], gang.copies, high)
        if gang.domain_label is not None and any(pool.domains for pool in self.into.pools):
            self._by_domain(owner, demand, gang, gang.domain_label, made)
        elif gang.domain_label is not None or limits_values(demand) or self._is_crowded(demand, gang, high):
            self._own(owner, demand, gang, made)
        else:
            for kind, count in gang.parts:
                uses = self.shared.setdefault(self.item_of[kind], [])
                uses.append((self.into.replicas[owner.demand], count * gang.copies))

    def _is_crowded(self, demand: DemandClass, gang: Gang, gangs: int) -> bool:
        """Tell whether distinct nodes or slots could limit a gang more than what the nodes can hold."""
        parts = dict(self._parts(gang))
        for number in {pool for item in parts for pool in self.pools_of[item]}:
            here = {item: count for item, count in parts.items() if number in self.reach[item]}
            if gang.size > 1 and sum(here.values()) > gang.per_node * self._nodes_for(here, number):
                return True
            if any(self._limit(demand, gang, item, count, number, gangs) < min(self.most[number][item], count * gangs)
                   for item, count in here.items()):
                return True
        return False

    def _nodes_for(self, items: Iterable[int], number: int) -> int:
        """Return how many nodes of a pool can hold any of some items."""
        pool = self.into.pools[number]
        if len(pool.rows) == 1:
            return int(pool.counts[0])
        usable = np.any([self.into.items[item].most[pool.rows] > 0 for item in items], axis=0)
        return int(pool.counts @ usable)

    def _parts(self, gang: Gang) -> Iterator[tuple[int, int]]:
        counts: dict[int, int] = {}
        for kind, count in gang.parts:
            counts[self.item_of[kind]] = counts.get(self.item_of[kind], 0) + count
        yield from counts.items()

    def _limit(self, demand: DemandClass, gang: Gang, item: int, count: int, pool: int, gangs: int) -> int:
        """Return how many members of an item a gang's class can have on a pool at most, by slots."""
        most, slots = self.most[pool][item], self.tally.slots(demand)
        if slots is None:
            return min(most, count * gangs)
        rows = self.into.pools[pool].rows
        per_node = (slots[rows] * (count * gang.copies)).clip(max=self.into.items[item].most[rows])
        return min(count * gangs, int(self.into.pools[pool].counts @ per_node))

    def _own(self, owner: Owner, demand: DemandClass, gang: Gang, made: Made) -> None:
        pools = sorted({pool for item, _ in self._parts(gang) for pool in self.pools_of[item]})
        self._stand_in(owner, demand, gang, pools, made)

    def _stand_in(
        self, owner: Owner, demand: DemandClass, gang: Gang, pools: Sequence[int], made: Made
    ) -> None:
        """Let a gang's members stand on some pools."""
        counter, per_unit, most = made
        by_item: dict[int, list[int]] = {item: [] for item, _ in self._parts(gang)}
        for pool in pools:
            here = {item: self._column(owner, demand, gang, item, count, pool, most)
                    for item, count in self._parts(gang) if pool in self.reach[item]}
            for item, column in here.items():
                by_item[item].append(column)
            if gang.size > 1 and here:
                apart = gang.per_node * self._nodes_for(here, pool) * per_unit
                self.model.at_most([*((column, 1) for column in here.values()), (counter, -apart)], 0)
        for item, count in self._parts(gang):
            self.model.row([*((column, 1) for column in by_item[item]), (counter, -count * per_unit)], 0, 0)

    def _column(
        self, owner: Owner, demand: DemandClass, gang: Gang, item: int, count: int, pool: int, gangs: int
    ) -> int:
        column = self.model.column(self._limit(demand, gang, item, count, pool, gangs))
        self.into.members[Member(owner, item, pool)] = column
        return column

    def _by_domain(self, owner: Owner, demand: DemandClass, gang: Gang, label: str, made: Made) -> None:
        inside: dict[str | None, list[int]] = {}
        for number, pool in enumerate(self.into.pools):
            inside.setdefault(pool.domain(label), []).append(number)
        in_domains = []
        for value, most in gangs_by_domain(demand, gang, made.most, self.tally).items():
            if most:
                in_domains.append(self.model.column(most))
                self._stand_in(owner, demand, gang, inside[value], Made(in_domains[-1], 1, most))
        self.model.row([*((column, 1) for column in in_domains), (made.column, -made.gangs)], 0, 0)

    def _replica_rows(self, number: int, demand: DemandClass) -> None:
        """Tell the replicas of a class apart: each takes one slot on every node it touches, with however many members.

        The same goes for the values of a spread's label.
        """
        most = int(self.model.highs[self.into.replicas[number]])
        exist = [self.model.column(1) for _ in range(most)]
        self.model.row([*((column, 1) for column in exist), (self.into.replicas[number], -1)], 0, 0)
        for earlier, later in pairwise(exist):
            self.model.at_most([(later, 1), (earlier, -1)], 0)
        touches: dict[int, list[int]] = {}
        values: dict[str, list[int]] = {}
        for replica, column in enumerate(exist):
            before = len(self.into.members)
            for place, gang in enumerate(demand.gangs):
                made, owner = Made(column, gang.copies, gang.copies), Owner(number, place, replica)
                if gang.domain_label is not None:
                    self._by_domain(owner, demand, gang, gang.domain_label, made)
                else:
                    self._own(owner, demand, gang, made)
            self._touch_columns(demand, islice(self.into.members.items(), before, None), touches, values)
        slots = self.tally.slots(demand)
        for pool, columns in touches.items():
            if slots is not None:
                self.model.at_most([(column, 1) for column in columns], int(slots[self.into.pools[pool].rows[0]]))
        for value, columns in values.items():
            room = 0 if demand.limit is None else demand.limit.room[value]
            self.model.at_most([(column, 1) for column in columns], room)

    def _touch_columns(
        self, demand: DemandClass, members: Iterable[tuple[Member, int]], touches: dict[int, list[int]],
        values: dict[str, list[int]],
    ) -> None:
        """Say which nodes and which values of its spread's label one replica touches."""
        label = demand.limit.label if demand.limit is not None and limits_values(demand) else None
        by_pool: dict[int, list[int]] = {}
        by_value: dict[str, list[int]] = {}
        for member, column in members:
            by_pool.setdefault(member.pool, []).append(column)
            value = None if label is None else self.into.pools[member.pool].domain(label)
            if value is not None:
                by_value.setdefault(value, []).append(column)
        for pool, columns in by_pool.items():
            touches.setdefault(pool, []).append(self._touched(columns))
        for value, columns in by_value.items():
            values.setdefault(value, []).append(self._touched(columns))

    def _touched(self, columns: Sequence[int]) -> int:
        """Return a column that is 1 where any of some others is more than 0."""
        touch = self.model.column(1)
        for column in columns:
            self.model.row([(column, 1), (touch, -self.model.highs[column])], -np.inf, 0)
        return touch

    def _limit_rows(self, number: int, demand: DemandClass, limit: SpreadLimit) -> None:
        """On a value stand no more members of a gang than belong to the replicas that may touch it."""
        by_value: dict[tuple[str, int, int], list[int]] = {}
        for member, column in self.into.members.items():
            value = self.into.pools[member.pool].domain(limit.label)
            if member.owner.demand == number and value is not None:
                by_value.setdefault((value, member.owner.gang, member.item), []).append(column)
        for (value, place, item), columns in by_value.items():
            gang = demand.gangs[place]
            each = dict(self._parts(gang))[item] * gang.copies
            self.model.at_most([(column, 1) for column in columns], each * limit.room[value])

    def _everybody(self, item: int, uses: list[tuple[int, int]]) -> None:
        wanted = sum(int(self.model.highs[column]) * count for column, count in uses)
        columns = []
        for pool in self.pools_of[item]:
            column = self.model.column(min(wanted, self.most[pool][item]))
            self.into.members[Member(EVERYBODY, item, pool)] = column
            columns.append(column)
        self.model.row([*((column, 1) for column in columns), *((column, -count) for column, count in uses)], 0, 0)
