"""The rows of a placement model: members belong to gangs, gangs to replicas, and each pool of nodes has limits.

Rows on a pool of nodes: whole cards in groups, shares of cards in packings, both together, and CPU and memory. Amounts
that add up are bounded as sums, and with floor(amount / t) for each demanded amount t: 3 + 3 free CPUs do not hold a
member of 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, pairwise
from math import gcd
from typing import NamedTuple

import numpy as np

from fleetctl.planner.placement.bid_prices import CardShare, TooManyError, maximal_packings
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.exact.bound import gangs_by_domain, replicas_alone, replicas_by_domain
from fleetctl.planner.placement.exact.columns import (
    PRICED,
    SHARED,
    Holdings,
    Made,
    MemberColumn,
    NodePool,
    Owner,
    needs_replicas,
    picks_blindly,
    shares_slots,
)
from fleetctl.planner.placement.exact.linear import LinearModel
from fleetctl.planner.placement.ledger.cards import share_of
from fleetctl.planner.placement.problem import DemandClass, Gang, SpreadLimit
from fleetctl.planner.placement.realize import ANY
from fleetctl.planner.placement.tally import Ints, Tally

FINEST = 1_000_000
MAX_PACKINGS = 2_000
MAX_PACKING_COLUMNS = 6_000


class Term(NamedTuple):
    """A column that counts members of one claim on a pool."""

    claim: Claim
    column: int


class CardClass(NamedTuple):
    """Cards of a pool that take the same packings of the demanded shares."""

    whole: bool
    vram: int
    """Only distinguished for whole cards, if members that take whole cards compete for it."""
    packings: tuple[tuple[int, ...], ...]


class _Used(NamedTuple):
    """A column that counts whole cards with this much memory that are used up by shares."""

    column: int
    vram: int


def add_card_rows(model: LinearModel, tally: Tally, pool: NodePool, terms: Sequence[Term], holdings: Holdings) -> None:
    """Bound the members with cards on a pool; for a single node on which Ray's choice matters, by Ray's rule."""
    asked = [term for term in terms if term.claim.wants_card]
    whole = [term for term in asked if term.claim.whole_cards]
    shares = [term for term in asked if not term.claim.whole_cards]
    if pool.node is not None and shares and _holding_rows(model, tally, pool, asked, holdings):
        return
    used: list[_Used] = []
    if shares:
        with suppress(TooManyError):  # then only the sums below bound them
            used = _packing_rows(model, tally, pool, shares, whole)
    if asked:
        _group_rows(model, tally, pool, whole, used)
        _total_row(model, tally, pool, asked)


def _holding_rows(model: LinearModel, tally: Tally, pool: NodePool, asked: Sequence[Term], holdings: Holdings) -> bool:
    """Make a node hold one of the multisets that Ray's rule allows; False if not needed, or if there are too many."""
    offer = tally.problem.nodes[int(pool.rows[0])].offer
    claims = sorted({term.claim.on_cards for term in asked})
    if not picks_blindly(offer, claims):
        return False
    of_claim = [[term.column for term in asked if term.claim.on_cards == claim] for claim in claims]
    limits = [int(sum(model.highs[column] for column in columns)) for columns in of_claim]
    found = holdings.of(offer, claims, limits)
    if found is None:
        return False
    chosen = [model.column(1) for _ in found]
    model.at_most([(column, 1) for column in chosen], 1)
    for index, columns in enumerate(of_claim):
        held = [(column, -float(counts[index])) for column, counts in zip(chosen, found, strict=True) if counts[index]]
        model.row([*((column, 1.0) for column in columns), *held], -np.inf, 0)
    return True


def _group_rows(model: LinearModel, tally: Tally, pool: NodePool, whole: Sequence[Term], used: Sequence[_Used]) -> None:
    """Bound the groups of s whole cards with at least v bytes each by what the nodes hold."""
    nodes = pool.counts
    sizes = sorted({term.claim.whole_cards for term in whole})
    for vram in sorted({term.claim.vram for term in whole} | {0}):
        having = [term for term in whole if term.claim.vram >= vram]
        for size in sizes:
            room = int(nodes @ (tally.whole_cards(vram)[pool.rows] // size))
            terms = _in_groups(having, size)
            if terms:
                model.at_most([*terms], room)
        taken = tuple((term.column, 1.0) for term in used if term.vram >= vram)
        if taken:
            model.at_most([*_in_groups(having, 1), *taken], int(nodes @ tally.free_cards(vram)[pool.rows]))


def _in_groups(terms: Sequence[Term], size: int) -> tuple[tuple[int, float], ...]:
    """Return (column, number of groups of `size` cards that one member takes) pairs."""
    groups = [(term.column, term.claim.whole_cards // size) for term in terms]
    return tuple((column, float(count)) for column, count in groups if count)


def _total_row(model: LinearModel, tally: Tally, pool: NodePool, asked: Sequence[Term]) -> None:
    """Bound the GPU share by what Ray has free, which may be less than what the cards have."""
    amounts = [(term.column, term.claim.gpus) for term in asked if term.claim.gpus]
    if amounts:
        unit = gcd(*(amount for _, amount in amounts))
        model.at_most([(column, float(amount // unit)) for column, amount in amounts],
                      float(pool.counts @ (tally.free_share[pool.rows] // unit)))


def _packing_rows(
    model: LinearModel, tally: Tally, pool: NodePool, shares: Sequence[Term], whole: Sequence[Term],
) -> list[_Used]:
    """Bound shares by packings of cards; returns the columns that count the whole cards used up by packings."""
    claims = sorted({term.claim[:2] for term in shares})
    classes = _card_classes(tally, claims, pool, tell_vram=any(term.claim.vram for term in whole))
    covering: dict[tuple[int, int], list[tuple[int, float]]] = {claim: [] for claim in claims}
    used: list[_Used] = []
    weights = dict(zip(pool.rows.tolist(), pool.counts.tolist(), strict=True))
    for kind, rows in sorted(classes.items()):
        count = sum(weights[row] for row in rows)
        columns = [model.column(count) for _ in kind.packings]
        model.at_most([(column, 1.0) for column in columns], count)
        used += [_Used(column, kind.vram) for column in columns if kind.whole]
        for column, packing in zip(columns, kind.packings, strict=True):
            for claim, times in zip(claims, packing, strict=True):
                if times:
                    covering[claim].append((column, -float(times)))
    for claim, columns_of in covering.items():
        members = [(term.column, 1.0) for term in shares if term.claim[:2] == claim]
        model.row([*members, *columns_of], -np.inf, 0)
    return used


def _card_classes(
    tally: Tally, claims: Sequence[tuple[int, int]], pool: NodePool, *, tell_vram: bool
) -> dict[CardClass, list[int]]:
    """Sort the cards of a pool into classes, each with the rows of its cards. Raises TooManyError."""
    classes: dict[CardClass, list[int]] = {}
    class_of: dict[tuple[int, int, int, bool], CardClass] = {}
    entries, cards, columns = tally.cards_on(pool.rows), tally.cards, 0
    tell = any(vram for _, vram in claims) or tell_vram
    for row, share, vram, memory, whole in zip(
        cards.node[entries].tolist(), cards.share[entries].tolist(), cards.vram[entries].tolist(),
        cards.memory[entries].tolist(), cards.whole[entries].tolist(), strict=True,
    ):
        seen = (share, vram, memory, whole) if tell else (share, 0, 0, whole)
        if seen not in class_of:
            pieces = [CardShare(gpus or share_of(asked, memory), asked) for gpus, asked in claims]
            packings = maximal_packings(pieces, share, vram, MAX_PACKINGS)
            class_of[seen] = CardClass(whole, max(0, vram) if whole and tell_vram else 0, packings)
            columns += len(packings)
        classes.setdefault(class_of[seen], []).append(row)
        if columns > MAX_PACKING_COLUMNS:
            raise TooManyError
    return {kind: rows for kind, rows in classes.items() if any(any(packing) for packing in kind.packings)}


def add_sum_rows(model: LinearModel, tally: Tally, pool: NodePool, terms: Sequence[Term]) -> None:
    """Bound the CPU and the memory that members can take on a pool."""
    cpus = [(term.column, term.claim.cpus) for term in terms if term.claim.cpus]
    memory = [(term.column, term.claim.memory) for term in terms if term.claim.memory]
    add_floor_rows(model, cpus, tally.cpus[pool.rows], pool.counts)
    add_floor_rows(model, memory, tally.memory[pool.rows], pool.counts)


def add_floor_rows(model: LinearModel, asked: Sequence[tuple[int, int]], free: Ints, nodes: Ints) -> None:
    """Add sum(floor(amount / t) * members) <= sum(floor(free / t)) for each t; `asked` = (column, amount)."""
    sizes = sorted({amount for _, amount in asked})
    # first the unit of which all amounts are multiples, or a coarser one if numbers would become too large
    for step in {max(gcd(*sizes), sizes[-1] // FINEST), *sizes} if sizes else ():
        terms = [(column, float(amount // step)) for column, amount in asked if amount >= step]
        model.at_most(terms, float(nodes @ (free.clip(min=0) // step)))


class Relaxation:
    """The linear model of a problem and the meaning of its columns; built demand by demand, then pool by pool.

    `by_replica` = replicas of several members are distinguished if slots or a spread's limit may bind.
    """

    def __init__(self, tally: Tally, pools: tuple[NodePool, ...], *, by_replica: bool = False) -> None:
        self.problem, self.tally, self.pools, self.by_replica = tally.problem, tally, pools, by_replica
        self.model = LinearModel()
        self.replicas: list[int] = []
        """By class of demand: the column of its new replicas."""
        self.served: list[int] = []
        """By class of demand: the column that counts models with a first replica."""
        self.totals: list[int] = []
        """By class of demand: the column of the new replicas of its models, in all of their variants."""
        self.least: dict[int, int] = {}
        """By class of demand: the column of the replicas that a variant should get at least."""
        self.touches: dict[tuple[int, int], list[int]] = {}
        """By class of demand and pool: the columns of its replicas that touch the only node there."""
        self.touched_values: dict[tuple[int, str], list[int]] = {}
        """By class of demand and value of its spread's label: the columns of its replicas that touch it."""
        self.members: dict[MemberColumn, int] = {}
        """The columns of members, by what they count; without members that are not possible."""
        kinds = range(len(self.problem.kinds))
        self.max_members = [[int(pool.counts @ tally.max_members(kind)[pool.rows]) for kind in kinds] for pool in pools]
        self.pools_of = [[number for number, pool in enumerate(pools)
                          if kind in pool.kinds and self.max_members[number][kind]] for kind in kinds]
        self.reach = [frozenset(pools) for pools in self.pools_of]
        prices = tally.problem.ledger.prices
        self.priced = frozenset[str]() if prices is None else prices.models
        """The keys of the models whose prices count."""
        self.shared: dict[tuple[Owner, int], list[tuple[int, int]]] = {}
        """By owner and kind, the columns of replicas whose members share columns, with the members of each."""
        self._build()

    @property
    def is_by_node(self) -> bool:
        """Whether each node is distinguished."""
        return all(pool.node is not None for pool in self.pools)

    def _build(self) -> None:
        for demand, maximum in zip(self.problem.demands, replicas_alone(self.tally), strict=True):
            self._demand_columns(demand, maximum)
        alternatives = self.problem.alternatives
        for numbers in alternatives:
            self._model_columns(numbers)
        for number, demand in enumerate(self.problem.demands):
            if self.by_replica and needs_replicas(demand, self.tally):
                add_replica_rows(self, number, demand)
                continue
            self._demand_rows(number, demand)
            if demand.value_limit is not None:
                self._limit_rows(number, demand, demand.value_limit)
        for numbers in alternatives:
            self._slot_rows(numbers)
            self._value_rows(numbers)
        for (owner, kind), uses in sorted(self.shared.items()):
            self._shared_members(owner, kind, uses)
        terms_of: list[list[Term]] = [[] for _ in self.pools]
        for member, column in self.members.items():
            terms_of[member.pool].append(Term(self.problem.kinds[member.kind][0], column))
        holdings = Holdings()
        for pool, terms in zip(self.pools, terms_of, strict=True):
            add_card_rows(self.model, self.tally, pool, terms, holdings)
            add_sum_rows(self.model, self.tally, pool, terms)

    def _demand_columns(self, demand: DemandClass, maximum: int) -> None:
        replicas = self.model.column(maximum)
        self.replicas.append(replicas)
        self.totals.append(replicas)
        if demand.least:
            self.least[len(self.replicas) - 1] = self._part_of(replicas, demand.least)
        if demand.unserved == demand.missing:
            self.served.append(replicas)
            return
        self.served.append(self._part_of(replicas, demand.unserved))

    def _model_columns(self, numbers: Sequence[int]) -> None:
        """Add the columns and rows of what all variants of a model share: what it misses, and its first replica."""
        demand, columns = self.problem.demands[numbers[0]], [self.replicas[number] for number in numbers]
        total = self.model.column(min(demand.model_missing, sum(self.model.highs[column] for column in columns)))
        self.model.row([*((column, 1) for column in columns), (total, -1)], 0, 0)
        if (target := demand.demands[0].target) is not None and (above := self.model.highs[total] - target) > 0:
            # either all together are no more than the target, or none is beyond the least of its variant
            only_least, least = self.model.column(1), [self.least[number] for number in numbers if number in self.least]
            self.model.row([(total, 1), (only_least, -above)], -np.inf, target)
            self.model.row([(total, 1), *((column, -1) for column in least), (only_least, target)], -np.inf, target)
        served = self._part_of(total, 1) if demand.unserved else total
        for number in numbers:
            self.totals[number], self.served[number] = total, served

    def _part_of(self, replicas: int, most: int) -> int:
        """Return a column of at most `most` of some replicas."""
        if self.model.highs[replicas] <= most:
            return replicas
        part = self.model.column(most)
        self.model.at_most([(part, 1), (replicas, -1)], 0)
        return part

    def _demand_rows(self, number: int, demand: DemandClass) -> None:
        replicas = self.replicas[number]
        if demand.shape.as_one and self._knows_domains:
            self.in_one_domain(number, demand, Made(replicas, 1, int(self.model.highs[replicas])))
            return
        for index, gang in enumerate(demand.gangs):
            self._gang_rows(Owner(number, index), demand, gang)

    @property
    def _knows_domains(self) -> bool:
        return any(pool.domains for pool in self.pools)

    def _gang_rows(self, owner: Owner, demand: DemandClass, gang: Gang) -> None:
        high = int(self.model.highs[self.replicas[owner.demand]]) * gang.copies
        if not high:
            return
        made = Made(self.replicas[owner.demand], gang.copies, high)
        if gang.domain_label and self._knows_domains:
            self.by_domain(owner, demand, gang, made)
        elif gang.domain_label or demand.value_limit or shares_slots(demand, self.tally) or self._is_crowded(
                demand, gang, high):
            self.anywhere(owner, demand, gang, made)
        else:
            for kind, count in gang.parts:
                uses = self.shared.setdefault((PRICED if demand.shape.key in self.priced else SHARED, kind), [])
                uses.append((self.replicas[owner.demand], count * gang.copies))

    def prices(self) -> dict[int, int]:
        """Return what a member costs in each column of those whose prices count; without those that cost nothing."""
        prices = self.problem.ledger.prices
        if prices is None:
            return {}
        found = {}
        for (owner, kind, pool), column in self.members.items():
            if owner == PRICED or (owner.demand >= 0 and self.problem.demands[owner.demand].shape.key in self.priced):
                claim, tariff = self.problem.kinds[kind][0], prices.of_node[self.pools[pool].first]
                found[column] = prices.at(claim, tariff)
        return {column: price for column, price in found.items() if price}

    def _is_crowded(self, demand: DemandClass, gang: Gang, gangs: int) -> bool:
        """Return whether distinct nodes or slots could limit a gang more than the capacity of the nodes."""
        parts = dict(gang.parts)
        for number in {pool for kind in parts for pool in self.pools_of[kind]}:
            possible = {kind: count for kind, count in parts.items() if number in self.reach[kind]}
            if gang.size > 1 and sum(possible.values()) > gang.per_node * self._nodes_for(possible, number):
                return True
            members = self.max_members[number]
            if any(self._limit(demand, gang, kind, count, number, gangs) < min(members[kind], count * gangs)
                   for kind, count in possible.items()):
                return True
        return False

    def _nodes_for(self, kinds: Iterable[int], number: int) -> int:
        """Return how many nodes of a pool can hold at least one of the kinds."""
        pool = self.pools[number]
        if len(pool.rows) == 1:
            return int(pool.counts[0])
        usable = np.any([self.tally.max_members(kind)[pool.rows] > 0 for kind in kinds], axis=0)
        return int(pool.counts @ usable)

    def _limit(self, demand: DemandClass, gang: Gang, kind: int, count: int, pool: int, gangs: int) -> int:
        """Return the most members of a kind that the gangs of a class can have on a pool, with regard to slots."""
        maximum, slots = self.max_members[pool][kind], self.tally.slots(demand)
        if slots is None:
            return min(maximum, count * gangs)
        rows = self.pools[pool].rows
        per_node = (slots[rows] * (count * gang.copies)).clip(max=self.tally.max_members(kind)[rows])
        return min(count * gangs, int(self.pools[pool].counts @ per_node))

    def anywhere(self, owner: Owner, demand: DemandClass, gang: Gang, made: Made) -> None:
        """Add columns and rows for gangs that may use all nodes."""
        pools = sorted({pool for kind, _ in gang.parts for pool in self.pools_of[kind]})
        self._on_pools(owner, demand, gang, pools, made)

    def _on_pools(self, owner: Owner, demand: DemandClass, gang: Gang, pools: Sequence[int], made: Made) -> None:
        """Add columns and rows for the members of gangs that may use some pools."""
        counter, per_unit, maximum = made
        by_kind: dict[int, list[int]] = {kind: [] for kind, _ in gang.parts}
        for pool in pools:
            columns = {kind: self.model.column(self._limit(demand, gang, kind, count, pool, maximum))
                       for kind, count in gang.parts if pool in self.reach[kind]}
            for kind, column in columns.items():
                self.members[MemberColumn(owner, kind, pool)] = column
                by_kind[kind].append(column)
            if gang.size > 1 and columns:
                members = [(column, 1.0) for column in columns.values()]
                apart = gang.per_node * self._nodes_for(columns, pool) * per_unit
                self.model.at_most([*members, (counter, -apart)], 0)
                slots = self.tally.slots(demand)
                if slots is not None:
                    rows = self.pools[pool].rows
                    touched = int(self.pools[pool].counts @ np.minimum(slots[rows], maximum))
                    self.model.at_most(members, touched * gang.copies * gang.per_node)
        for kind, count in gang.parts:
            self.model.row([*((column, 1) for column in by_kind[kind]), (counter, -count * per_unit)], 0, 0)

    def by_domain(self, owner: Owner, demand: DemandClass, gang: Gang, made: Made) -> None:
        """Add columns and rows for gangs that each use one value of the label that binds them."""
        for pools, inside in self._domains(gang, gangs_by_domain(demand, gang, made.maximum, self.tally), made):
            self._on_pools(owner, demand, gang, pools, inside)

    def in_one_domain(self, number: int, demand: DemandClass, made: Made, replica: int = ANY) -> None:
        """Add columns and rows for replicas whose gangs all use one value of a label; `made` counts replicas."""
        for pools, inside in self._domains(demand.gangs[0], replicas_by_domain(demand, made.maximum, self.tally), made):
            for index, gang in enumerate(demand.gangs):
                gangs = Made(inside.column, gang.copies, inside.maximum * gang.copies)
                self._on_pools(Owner(number, index, replica), demand, gang, pools, gangs)

    def _domains(self, gang: Gang, max_in: Mapping[str | None, int], made: Made) -> Iterator[tuple[list[int], Made]]:
        """Yield the pools of each value of a gang's label, with a column for the number of gangs there."""
        inside: dict[str | None, list[int]] = {}
        for number, pool in enumerate(self.pools):
            inside.setdefault(pool.domain(gang.domain_label), []).append(number)
        in_domains = []
        for value, maximum in max_in.items():
            if maximum:
                in_domains.append(self.model.column(maximum))
                yield inside[value], Made(in_domains[-1], 1, maximum)
        self.model.row([*((column, 1) for column in in_domains), (made.column, -made.gangs)], 0, 0)

    def _limit_rows(self, number: int, demand: DemandClass, limit: SpreadLimit) -> None:
        """Limit the members of each gang on a value to those of the replicas that may touch it."""
        by_value: dict[tuple[str, int, int], list[int]] = {}
        for member, column in self.members.items():
            value = self.pools[member.pool].domain(limit.label)
            if member.owner.demand == number and value is not None:
                by_value.setdefault((value, member.owner.gang, member.kind), []).append(column)
        for (value, index, kind), columns in by_value.items():
            gang = demand.gangs[index]
            each = dict(gang.parts)[kind] * gang.copies
            self.model.at_most([(column, 1) for column in columns], each * limit.left[value])

    def _slot_rows(self, numbers: Sequence[int]) -> None:
        """Limit the replicas of all variants of a model together to the slots of each pool.

        The replicas of variants with at most so many slots (some claim cards, some do not) hold at most so many.
        """
        slots_of = {number: slots for number in numbers
                    if (slots := self.tally.slots(self.problem.demands[number])) is not None}
        for slots in slots_of.values():
            within = [other for other, fewer in slots_of.items() if np.all(fewer <= slots)]
            for index, pool in enumerate(self.pools):
                columns = [column for other in within for column in self._touching(other, index)]
                if len(within) > 1:
                    self.model.at_most([(column, 1) for column in columns], int(pool.counts @ slots[pool.rows]))

    def _touching(self, number: int, pool: int) -> Sequence[int]:
        """Return the columns of the replicas of a class that touch a node of a pool, or of fewer."""
        demand = self.problem.demands[number]
        if demand.shape.size == 1 or _is_one_gang_apart(demand):
            return [column for kind in demand.members()
                    if (column := self.members.get(MemberColumn(Owner(number, 0), kind, pool))) is not None]
        return self.touches.get((number, pool), ())

    def _value_rows(self, numbers: Sequence[int]) -> None:
        """Limit the replicas of all variants of a model together on each value of the label of its spread."""
        limits = {number: limit for number in numbers if (limit := self.problem.demands[number].value_limit)}
        for limit in limits.values():
            within = [other for other, fewer in limits.items()
                      if fewer.label == limit.label and fewer.most <= limit.most]
            for value, room in limit.left.items() if len(within) > 1 else ():
                columns = [column for other in within for column in self._touching_value(other, limit.label, value)]
                self.model.at_most([(column, 1) for column in columns], room)

    def _touching_value(self, number: int, label: str, value: str) -> Sequence[int]:
        if self.problem.demands[number].shape.size == 1:
            return [column for member, column in self.members.items()
                    if member.owner.demand == number and self.pools[member.pool].domain(label) == value]
        return self.touched_values.get((number, value), ())

    def _shared_members(self, owner: Owner, kind: int, uses: list[tuple[int, int]]) -> None:
        wanted = sum(int(self.model.highs[column]) * count for column, count in uses)
        columns = []
        for pool in self.pools_of[kind]:
            column = self.model.column(min(wanted, self.max_members[pool][kind]))
            self.members[MemberColumn(owner, kind, pool)] = column
            columns.append(column)
        self.model.row([*((column, 1) for column in columns), *((column, -count) for column, count in uses)], 0, 0)


def _is_one_gang_apart(demand: DemandClass) -> bool:
    first = demand.gangs[0]
    return len(demand.gangs) == 1 and (first.copies, first.per_node) == (1, 1)


def add_replica_rows(rows: Relaxation, number: int, demand: DemandClass) -> None:
    """Distinguish the replicas of a class: each takes one slot per node, with any number of members there.

    The same holds for the values of a spread's label. Without this, one of 942 fleets with caps, limits and groups has
    fewer replicas, and two have no proof.
    """
    maximum = int(rows.model.highs[rows.replicas[number]])
    exist = [rows.model.column(1) for _ in range(maximum)]
    rows.model.row([*((column, 1) for column in exist), (rows.replicas[number], -1)], 0, 0)
    for earlier, later in pairwise(exist):
        rows.model.at_most([(later, 1), (earlier, -1)], 0)
    touches: dict[int, list[int]] = {}
    values: dict[str, list[int]] = {}
    for replica, column in enumerate(exist):
        before = len(rows.members)
        if demand.shape.as_one:
            rows.in_one_domain(number, demand, Made(column, 1, 1), replica)
        for index, gang in enumerate(() if demand.shape.as_one else demand.gangs):
            made, owner = Made(column, gang.copies, gang.copies), Owner(number, index, replica)
            if gang.domain_label:
                rows.by_domain(owner, demand, gang, made)
            else:
                rows.anywhere(owner, demand, gang, made)
        _touch_columns(rows, demand, islice(rows.members.items(), before, None), touches, values)
    slots = rows.tally.slots(demand)
    for pool, columns in touches.items():
        if slots is not None:
            rows.model.at_most([(column, 1) for column in columns], int(slots[rows.pools[pool].rows[0]]))
    for value, columns in values.items():
        room = 0 if demand.limit is None else demand.limit.left[value]
        rows.model.at_most([(column, 1) for column in columns], room)
    rows.touches.update({(number, pool): columns for pool, columns in touches.items()})
    rows.touched_values.update({(number, value): columns for value, columns in values.items()})


def _touch_columns(
    rows: Relaxation, demand: DemandClass, members: Iterable[tuple[MemberColumn, int]], touches: dict[int, list[int]],
    values: dict[str, list[int]],
) -> None:
    """Add columns for the nodes and the values of its spread's label that one replica touches."""
    by_pool: dict[int, list[int]] = {}
    by_value: dict[str, list[int]] = {}
    for member, column in members:
        by_pool.setdefault(member.pool, []).append(column)
        value = rows.pools[member.pool].domain(demand.value_limit.label) if demand.value_limit else None
        if value is not None:
            by_value.setdefault(value, []).append(column)
    for pool, columns in by_pool.items():
        touches.setdefault(pool, []).append(_touched(rows.model, columns))
    for value, columns in by_value.items():
        values.setdefault(value, []).append(_touched(rows.model, columns))


def _touched(model: LinearModel, columns: Sequence[int]) -> int:
    """Return a column that is 1 if any of `columns` is more than 0."""
    touch = model.column(1)
    for column in columns:
        model.row([(column, 1), (touch, -model.highs[column])], -np.inf, 0)
    return touch
