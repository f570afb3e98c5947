"""Places one replica, whole or not at all: gangs on distinct nodes, inside one label value, within slots.

First a greedy pass, members with the fewest fitting nodes first; if it fails, a bounded search. The members are then
taken again in the order in which they will be created, since Ray's choice of cards depends on it. The domains of a
label, for gangs inside one value, are kept up to date with the ledger.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleetctl.planner.placement.claims import Claim, Kind, Position, ReplicaShape, Seat, Selector
from fleetctl.planner.placement.ledger.candidates import (
    Buckets,
    Candidates,
    Crowding,
    DomainCandidates,
    Fits,
    FleetCandidates,
    Spreading,
    Worth,
)
from fleetctl.planner.placement.ledger.card_value import CardValues, Ranking
from fleetctl.planner.placement.ledger.ledger import NO_SLOTS, Ledger, Value


@dataclass(frozen=True, eq=False, slots=True)
class Domain:
    """The nodes that share one value of a label."""

    value: str
    nodes: frozenset[int]


class Domains:
    """All domains of one label by value, with the free share of each. A node without the label is in no domain."""

    def __init__(self, ledger: Ledger, label: str) -> None:
        self.ledger = ledger
        values: dict[str, set[int]] = {}
        for index, node in enumerate(ledger.nodes):
            if label in node.labels:
                values.setdefault(node.labels[label], set()).add(index)
        self.by_value = {value: Domain(value, frozenset(nodes)) for value, nodes in sorted(values.items())}
        self._of = {index: domain for domain in self.by_value.values() for index in domain.nodes}
        self.values = len(self.by_value) + (len(self._of) < len(ledger.nodes))
        """The number of values; nodes without the label count as one more."""
        self._known = {index: ledger.offer(index).free_gpus for index in self._of}
        """By node: its free GPU share when it was last read."""
        self._free = {value: sum(self._known[index] for index in domain.nodes)
                      for value, domain in self.by_value.items()}
        self._order = sorted((free, value) for value, free in self._free.items())
        self._cursor = len(ledger.changes)

    def with_room(self, gpus: int, nodes: int) -> Iterator[Domain]:
        """Yield the domains with at least this many nodes and this free GPU share in total, least free share first."""
        self._follow()
        for _, value in self._order[bisect_left(self._order, (gpus, "")):]:
            if len(self.by_value[value].nodes) >= nodes:
                yield self.by_value[value]

    def _follow(self) -> None:
        for node in set(self.ledger.changes[self._cursor:]):
            free = self.ledger.offer(node).free_gpus
            if node in self._of and free != self._known[node]:
                value = self._of[node].value
                del self._order[bisect_left(self._order, (self._free[value], value))]
                self._free[value] += free - self._known[node]
                insort(self._order, (self._free[value], value))
                self._known[node] = free
        self._cursor = len(self.ledger.changes)


SEARCH_STEPS = 300
SEARCH_SEATS = 64

SeatNodes = dict[Position, int]
"""The number of the node of each member."""


class Assigned(NamedTuple):
    """A member on its node: the GPU share it really takes there, and the replica's slot."""

    seat: Seat
    node: int
    gpus: int
    slot: int


@dataclass(slots=True)
class _Gang:
    """One gang being placed: the nodes of its ranks so far, and the rules for it."""

    seats: list[Seat]
    ranks_per_node: int
    domain: Domain | None
    allowed: Callable[[int], bool] | None
    count: Callable[[int], int]
    crowding: Crowding | None
    """Set if a written spread comes before the fit."""
    steps: int = SEARCH_STEPS
    nodes: list[int] = field(default_factory=list)
    ranks: Counter[int] = field(default_factory=Counter)

    def accepts(self, node: int) -> bool:
        return self.ranks[node] < self.ranks_per_node and (self.allowed is None or self.allowed(node))

    def best(self, candidates: Candidates) -> int | None:
        """Return the best node for one more rank."""
        if self.crowding is None:
            return candidates.best(self.accepts, self.count)
        mine = set(self.crowding.mine)
        if not self.crowding.apart or self.ranks_per_node > 1:  # else no other rank can be on the value of a node
            mine |= {self.crowding.value_of(node) for node in self.nodes}
        return Spreading(candidates, self.accepts, self.count, replace(self.crowding, mine=mine)).best()

    def add(self, node: int) -> None:
        self.nodes.append(node)
        self.ranks[node] += 1

    def remove_last(self) -> None:
        self.ranks[self.nodes.pop()] -= 1


@dataclass(slots=True)
class Placer:
    """Places replicas on one ledger, and caches which nodes fit from one replica to the next."""

    ledger: Ledger
    worth: Worth | None = None
    """The worth of free room to the expected rest; None = not considered."""
    spread_first: bool = False
    """A written spread comes before the fit; otherwise only its limit counts."""
    by_value: bool = False
    """The least valuable kind of card comes before the fit."""
    _buckets: Buckets | None = None
    _candidates: dict[tuple[Kind, Domain | None], Candidates] = field(default_factory=dict)
    _values: CardValues | None = None
    _fits: dict[tuple[Claim, Ranking | None, bool], Fits] = field(default_factory=dict)
    _domains: dict[str, Domains] = field(default_factory=dict)

    def candidates(self, kind: Kind, domain: Domain | None = None) -> Candidates:
        """Return the nodes, of the fleet or of a domain, that can take one kind of member now."""
        candidates = self._candidates.get((kind, domain))
        if candidates is None:
            (claim, selector), values = kind, self.values
            ranking, prices = values.ranking(kind), self.ledger.prices
            priced = prices is not None and kind in prices.kinds
            fits = self._fits.setdefault((claim, ranking, priced), Fits(
                values, claim, ranking, self.worth, prices if priced else None))
            if domain is None:
                candidates = FleetCandidates(self.expect([selector]), selector, fits)
            else:
                candidates = DomainCandidates(sorted(domain.nodes.intersection(self.ledger.selected(selector))), fits)
            self._candidates[kind, domain] = candidates
        return candidates

    def expect(self, selectors: Sequence[Selector]) -> Buckets:
        """Prepare for members with these selectors, so that nodes are not sorted again for each."""
        if self._buckets is None:
            values = self.values
            self._buckets = Buckets(self.ledger, values.of_node if len(values.traits) > 1 else None)
        self._buckets.expect(selectors)
        return self._buckets

    @property
    def values(self) -> CardValues:
        """How valuable the cards of each node are."""
        if self._values is None:
            areas = None if self.worth is None else self.worth.area_of
            self._values = CardValues(self.ledger, areas, ranked=self.by_value)
        return self._values

    def place(self, shape: ReplicaShape) -> tuple[Assigned, ...] | None:
        """Take one whole replica from the ledger; None, and no change, if it does not fit."""
        if shape.size == 1:
            return next(self.place_singles(shape, 1), None)
        for group in shape.groups:
            ranks = group.most_ranks
            if not all(self.candidates(kind).has(-(-count // ranks)) for kind, count in group.classes().items()):
                return None
        gangs = [list(group.seats(copy)) for group in shape.groups for copy in range(group.copies)]
        fewest_nodes_first = sorted(gangs, key=lambda seats: (
            min(len(self.candidates(seat.kind)) for seat in seats), -len(seats)))
        orders = (fewest_nodes_first, gangs) if fewest_nodes_first != gangs else (gangs,)
        for domain in self._domains_for(shape, gangs, self._crowding(shape)) if shape.as_one else (None,):
            for order in orders:
                nodes = self._place_gangs(shape, order, domain)
                assignments = None if nodes is None else self.take_at(shape, nodes)
                if assignments is not None:
                    return assignments
        return None

    def place_singles(self, shape: ReplicaShape, count: int) -> Iterator[tuple[Assigned, ...]]:
        """Take up to `count` replicas of a shape with one member, one after another, each on its best node."""
        seat, crowding, left = shape.seats[0], self._crowding(shape), count
        candidates, allowed, crowded = self.candidates(seat.kind), self.allowed(shape), self.crowded(shape)
        spreading = None if crowding is None else Spreading(candidates, allowed, crowded, crowding)
        one_by_one = allowed is not None or spreading is not None
        while left > 0:
            node = candidates.best(allowed, crowded) if spreading is None else spreading.best()
            taken = [] if node is None else candidates.fits.fill(node, 1 if one_by_one else left)
            if node is None or not taken:
                return
            slots = [self.ledger.take_slots(shape.key, (node,))[node] for _ in taken]
            if spreading is not None:
                spreading.placed(node)
            for gpus, slot in zip(taken, slots, strict=True):
                yield (Assigned(seat, node, gpus, slot),)
            left -= len(taken)

    def least_price(self, shape: ReplicaShape) -> int | None:
        """Return what the next replica costs at least, where prices decide; None if a member has no room at all."""
        price = 0
        for kind, count in shape.kinds.items():
            fit = self.candidates(kind).best_fit()
            if fit is None:
                return None
            price += count * fit[1]
        return price

    def domains(self, label: str) -> Domains:
        """Return the domains of a label."""
        if label not in self._domains:
            self._domains[label] = Domains(self.ledger, label)
        return self._domains[label]

    def crowded(self, shape: ReplicaShape) -> Callable[[int], int]:
        """Return a function that counts the replicas of this model on a node."""
        held = self.ledger.slots_of(shape.key)
        return lambda node: held.get(node, NO_SLOTS).bit_count()

    def _value_of(self, label: str) -> Callable[[int], Value]:
        nodes = self.ledger.nodes
        return lambda node: nodes[node].labels.get(label)

    def _crowding(self, shape: ReplicaShape, touched: Set[int] = frozenset()) -> Crowding | None:
        """Return how crowded the values of a written spread are; None if that does not come before the fit."""
        if not self.spread_first or shape.spread is None:
            return None
        domains, value_of = self.domains(shape.spread.label), self._value_of(shape.spread.label)
        return Crowding(self.ledger.crowd(shape.key), value_of, domains.values,
                        apart=domains.values == len(self.ledger.nodes), mine={value_of(node) for node in touched})

    def allowed(self, shape: ReplicaShape, touched: Set[int] = frozenset()) -> Callable[[int], bool] | None:
        """Return a test for the nodes a replica may touch, by slots and its spread's limit; None if it may touch all.

        `touched` = nodes it is already on.
        """
        has_slot, has_room = self.has_slot(shape, touched), self.has_room(shape)
        if has_slot is None or has_room is None:
            return has_slot or has_room
        return lambda node: has_slot(node) and has_room(node)

    def has_slot(self, shape: ReplicaShape, touched: Set[int] = frozenset()) -> Callable[[int], bool] | None:
        """Return a test for nodes with a free slot, or that the replica has `touched` already; None without caps."""
        caps, held = self.ledger.caps(wants_cards=shape.wants_cards), self.ledger.slots_of(shape.key)
        if caps is None:
            return None
        return lambda node: held.get(node, NO_SLOTS).bit_count() < caps[node] or node in touched

    def has_room(self, shape: ReplicaShape) -> Callable[[int], bool] | None:
        """Return a test for nodes whose spread value may be touched by one more replica; None without a limit."""
        if shape.spread is None or shape.spread.most is None:
            return None
        limit, crowd, value_of = shape.spread.most, self.ledger.crowd(shape.key), self._value_of(shape.spread.label)
        return lambda node: (value := value_of(node)) is not None and crowd.get(value, 0) < limit

    def place_gang(
        self, shape: ReplicaShape, seats: list[Seat], touched: frozenset[int], domain: Domain | None = None
    ) -> SeatNodes | None:
        """Take one gang (or one Standalone) from the ledger; `touched` = nodes this replica is already on.

        `domain` = the domain of a replica that must stay in one; None = its gangs may be anywhere.
        """
        allowed, crowded = self.allowed(shape, touched), self.crowded(shape)
        crowding = self._crowding(shape, touched)
        ordered = sorted(seats, key=lambda seat: (len(self.candidates(seat.kind)), -seat.claim.gpus, seat.rank))
        per_node = next(group.most_ranks for group in shape.groups if group.name == seats[0].group)
        for inside in (domain,) if shape.as_one else self._domains_for(shape, [seats], crowding):
            gang = _Gang(ordered, per_node, inside, allowed, crowded, crowding)
            if self._greedy(gang) or (1 < len(seats) <= SEARCH_SEATS and self._search(gang)):
                return {seat.position: node for seat, node in zip(ordered, gang.nodes, strict=True)}
        return None

    def _place_gangs(self, shape: ReplicaShape, gangs: list[list[Seat]], domain: Domain | None) -> SeatNodes | None:
        """Find nodes for all gangs of one replica; the ledger is left as it was."""
        mark, nodes = self.ledger.mark(), SeatNodes()
        try:
            for seats in gangs:
                gang = self.place_gang(shape, seats, frozenset(nodes.values()), domain)
                if gang is None:
                    return None
                nodes |= gang
            return nodes
        finally:
            self.ledger.undo(mark)

    def _domains_for(
        self, shape: ReplicaShape, gangs: list[list[Seat]], crowding: Crowding | None
    ) -> Iterable[Domain | None]:
        """Return the domains that all of `gangs` may use; [None] = any node.

        The cheapest first if prices decide, then the least crowded, then those with the least valuable cards, then the
        tightest.
        """
        if shape.same_label is None or (len(gangs) == len(gangs[0]) == 1):
            return [None]
        kinds = [Counter(seat.kind for seat in seats) for seats in gangs]
        gpus = sum(seat.claim.gpus for seats in gangs for seat in seats)
        by_name = {group.name: group.most_ranks for group in shape.groups}
        ranks = [by_name[seats[0].group] for seats in gangs]
        fewest = max(-(-len(seats) // per_node) for seats, per_node in zip(gangs, ranks, strict=True))
        possible = (domain for domain in self.domains(shape.same_label).with_room(gpus, fewest)
                    if all(self.candidates(kind, domain).has(-(-count // per_node))
                           for counts, per_node in zip(kinds, ranks, strict=True) for kind, count in counts.items()))
        rankings = {kind: ranking for counts in kinds for kind in counts
                    if self.by_value and (ranking := self.values.ranking(kind)) is not None}
        prices = self.ledger.prices if shape.key in (self.ledger.prices.models if self.ledger.prices else ()) else None
        if crowding is None and not rankings and prices is None:
            return possible

        def cost(domain: Domain) -> tuple[int, int, int]:
            price = 0 if prices is None else sum(
                count * prices.least_at(kind, domain.nodes.intersection(self.ledger.selected(kind[1])))
                for counts in kinds for kind, count in counts.items())
            crowd = 0 if crowding is None else min(map(crowding.at, domain.nodes))
            return price, crowd, sum([min(ranking.rank_of[self.values.of_node[node]]
                                   for node in domain.nodes.intersection(self.ledger.selected(selector)))
                               for (_, selector), ranking in rankings.items()])

        return sorted(possible, key=cost)

    def _greedy(self, gang: _Gang) -> bool:
        mark = self.ledger.mark()
        for seat in gang.seats:
            node = gang.best(self.candidates(seat.kind, gang.domain))
            if node is None or self.ledger.take(node, seat.claim) is None:
                self.ledger.undo(mark)
                while gang.nodes:
                    gang.remove_last()
                return False
            gang.add(node)
        return True

    def _search(self, gang: _Gang) -> bool:
        if len(gang.nodes) == len(gang.seats):
            return True
        seat = gang.seats[len(gang.nodes)]
        fitting = self.candidates(seat.kind, gang.domain).in_order()
        for _, _, node in sorted((key, gang.count(node), node) for key, node in fitting if gang.accepts(node)):
            gang.steps -= 1
            if gang.steps < 0:
                return False
            mark = self.ledger.mark()
            self.ledger.take(node, seat.claim)
            gang.add(node)
            if self._search(gang):
                return True
            gang.remove_last()
            self.ledger.undo(mark)
        return False

    def take_at(self, shape: ReplicaShape, nodes: SeatNodes) -> tuple[Assigned, ...] | None:
        """Take one replica on given nodes, members in order of creation; None, and no change, if one does not fit."""
        mark, allowed = self.ledger.mark(), self.allowed(shape)
        members: list[tuple[Seat, int, int]] = []
        for seat in shape.seats:
            node = nodes[seat.position]
            taken = None if allowed is not None and not allowed(node) else self.ledger.take(node, seat.claim)
            if taken is None:
                self.ledger.undo(mark)
                return None
            members.append((seat, node, taken.gpus))
        slots = self.ledger.take_slots(shape.key, (node for _, node, _ in members))
        return tuple([Assigned(seat, node, gpus, slots[node]) for seat, node, gpus in members])
