"""The nodes that can take one kind of member, best first, kept up to date with the ledger.

Best first means, in this order: Ray's choice of card is certain; the price, where it decides between variants
(`price_table.py`); the node reports all its cards; the least valuable kind of card (`card_value.py`), unless another
costs the expected rest clearly less; the room that is left is worth most to the rest, if bid prices are known
(`room_worth.py`); a share strands no memory of its card; no empty node is broken; the smallest card; the tightest fit.
Over all nodes the search goes by buckets of equal nodes; inside one domain, which is small, by nodes.

A model with a spread takes the least crowded value of its label, and there the best fit; only certainty about Ray's
choice of cards, and a price that decides, come first. Nodes are examined one after another, best fit first, and kept
by value, so that placing many replicas of one model examines each node about once, and most nodes never.

A bucket has equal nodes: equal offer, same matching selectors, same trait. 10,000 nodes form a few hundred buckets,
most of them full. A node that changes its bucket costs one dictionary lookup.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush, merge
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim, Selector
from fleetctl.planner.placement.ledger.card_value import MICRO, CardValues, Ranking
from fleetctl.planner.placement.ledger.cards import Offer, Taken, share_of
from fleetctl.planner.placement.ledger.ledger import Crowd, Ledger, Value

if TYPE_CHECKING:
    from fleetctl.planner.placement.ledger.price_table import PriceTable

NO_BUCKET = -1
LESS_VALUABLE = 50_000
"""What a less valuable kind of card may cost the rest, in millionths of the cards that are taken.

With 0.05 of a card the trace default, with a memory for each kind of card, loses 0.02 points; with 0.1 it loses 0.1,
and with any price 0.5.
"""


def nodes_by_selector(ledger: Ledger, selectors: Sequence[Selector]) -> NDArray[np.bool_]:
    """Return which open nodes each selector allows; shape (nodes, selectors)."""
    matches = np.zeros((len(ledger.nodes), len(selectors)), dtype=bool)
    for column, selector in enumerate(selectors):
        matches[list(ledger.selected(selector)), column] = True
    return matches


@dataclass(slots=True)
class Buckets:
    """The open nodes of a ledger by bucket; `traits` = by node, another number that distinguishes nodes, or None."""

    ledger: Ledger
    traits: Sequence[int] | None = None
    filled: list[int] = field(default_factory=list)
    """Each bucket that got its first node, in order; readers keep a cursor into it."""
    non_empty: set[int] = field(default_factory=set)
    """The buckets with at least one node."""
    number: list[int] = field(default_factory=list)
    """By bucket: the number of its offer."""
    trait: list[int] = field(default_factory=list)
    """By bucket: the trait of its nodes."""
    age: int = 0
    """How many times all nodes were sorted into new buckets; readers start over when it changes."""
    _selectors: dict[Selector, frozenset[int]] = field(default_factory=dict)
    """By selector: the tags it allows. Nodes with one tag match the same selectors and have one trait."""
    _tag_of: list[int] = field(default_factory=list)
    _trait_of_tag: list[int] = field(default_factory=list)
    _tags: list[int] = field(default_factory=list)
    """By bucket: the tag of its nodes."""
    _ids: dict[tuple[int, int], int] = field(default_factory=dict)
    _nodes: list[list[int]] = field(default_factory=list)
    """By bucket: its nodes, negated and ascending, possibly with nodes that have left."""
    _count: list[int] = field(default_factory=list)
    _bucket_of: list[int] = field(default_factory=list)
    _cursor: int = 0

    def expect(self, selectors: Sequence[Selector]) -> None:
        """Also distinguish nodes by these selectors."""
        new = set(selectors).difference(self._selectors)
        if new or not self._bucket_of:
            self._sort_nodes(sorted({*self._selectors, *new}))

    def follow(self) -> None:
        """Catch up with the ledger."""
        changes, numbers = self.ledger.changes, self.ledger.numbers
        if self._cursor == len(changes):
            return
        recent = changes[self._cursor:] if self._cursor + 1 == len(changes) else set(changes[self._cursor:])
        for node in recent:
            tag, before = self._tag_of[node], self._bucket_of[node]
            if tag == NO_BUCKET or self.number[before] == numbers[node]:
                continue
            self._count[before] -= 1
            if not self._count[before]:
                self.non_empty.discard(before)
            self._enter(node, tag, numbers[node])
        self._cursor = len(changes)

    def allows(self, selector: Selector, bucket: int) -> bool:
        """Return whether a selector allows the nodes of a bucket."""
        return self._tags[bucket] in self._selectors[selector]

    def count(self, bucket: int) -> int:
        """Return the present number of nodes in a bucket."""
        return self._count[bucket]

    def nodes(self, bucket: int) -> Iterator[int]:
        """Yield the nodes of a bucket in ledger order, and drop the entries of nodes that have left."""
        entries = self._nodes[bucket]
        index = len(entries) - 1
        while index >= 0:
            node = -entries[index]
            if self._bucket_of[node] == bucket:
                yield node
            else:
                del entries[index]
            index -= 1

    def _enter(self, node: int, tag: int, number: int) -> None:
        bucket = self._ids.get((tag, number), NO_BUCKET)
        if bucket == NO_BUCKET:
            bucket = self._ids[tag, number] = len(self._nodes)
            self._tags.append(tag)
            self._nodes.append([])
            self._count.append(0)
            self.number.append(number)
            self.trait.append(self._trait_of_tag[tag])
        self._bucket_of[node] = bucket
        self._count[bucket] += 1
        if self._count[bucket] == 1:
            self.non_empty.add(bucket)
            self.filled.append(bucket)
        entries = self._nodes[bucket]
        at = bisect_left(entries, -node)
        if at == len(entries) or entries[at] != -node:
            entries.insert(at, -node)

    def _sort_nodes(self, selectors: list[Selector]) -> None:
        """Tag each open node by its matching selectors and its trait, and sort all nodes into new buckets."""
        nodes = self.ledger.nodes
        matches = nodes_by_selector(self.ledger, selectors)
        packed = np.packbits(matches, axis=1)
        tags: dict[tuple[bytes, int], int] = {}
        first: list[int] = []
        self._tag_of = [NO_BUCKET] * len(nodes)
        for index, node in enumerate(nodes):
            if node.open:
                marks = packed[index].tobytes(), self.traits[index] if self.traits is not None else 0
                if marks not in tags:
                    tags[marks] = len(tags)
                    first.append(index)
                self._tag_of[index] = tags[marks]
        self._trait_of_tag = [trait for _, trait in tags]
        self._selectors = {selector: frozenset(np.flatnonzero(matches[first, column]).tolist())
                           for column, selector in enumerate(selectors)}
        self.age += 1
        self.filled, self.non_empty, self.number, self.trait, self._tags = [], set(), [], [], []
        self._ids, self._nodes, self._count = {}, [], []
        self._bucket_of = [NO_BUCKET] * len(nodes)
        for index in reversed(range(len(nodes))):
            if self._tag_of[index] != NO_BUCKET:
                self._enter(index, self._tag_of[index], self.ledger.numbers[index])
        self._cursor = len(self.ledger.changes)


FitKey = tuple[int, ...]
Allowed = Callable[[int], bool]
Spread = Callable[[int], int]
UNKNOWN: FitKey = (-1,)
Count = Callable[[int], int]
"""Returns how many replicas of the model touch a node."""
Waiting = tuple[FitKey, int, int]
"""A fitting node: the fit, the replicas of the model that touch it, its number."""


def fit_key(before: Offer, taken: Taken, claim: Claim) -> FitKey:
    """Rank a fit; lower is better. All parts are integers, so equal fits have exactly equal keys."""
    left = taken.left
    whole_left = sum(card.fully_free for card in left.cards)
    if not claim.wants_card:
        return (0, 0, before.empty, whole_left, 0, left.free_cpus, left.free_memory)
    used = [card for card in left.cards if card.index in taken.indices]
    memory, unsure = max((card.memory or 0 for card in used), default=0), before.unreported > 0
    if claim.whole_cards:
        return (taken.risky, unsure, before.empty, memory, whole_left, whole_left, left.free_cpus)
    share_left = sum(card.free_share for card in used)
    stranded = max(0, share_of(claim.vram, memory) - taken.gpus) if memory else 0
    return (taken.risky, unsure, stranded, before.empty, memory, share_left, whole_left, left.free_cpus)


class Worth(Protocol):
    """The worth of free room to the expected rest (`room_worth.py`); offers by number."""

    area_of: list[int]
    """The area of each node."""

    def harm(self, before: int, after: int, area: int) -> int:
        """Return the cost to the rest when one offer becomes another."""

    def prepare(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Compute the worth of many (offer, area) pairs at once."""


@dataclass(slots=True)
class Fits:
    """How well one claim fits each numbered offer, by trait; None = not at all. Computed once per offer."""

    values: CardValues
    claim: Claim
    ranking: Ranking | None = None
    """How valuable the cards are; None = not considered."""
    worth: Worth | None = None
    prices: PriceTable | None = None
    """What it costs on each node; None = does not count."""
    _known: dict[tuple[int, int], FitKey | None] = field(default_factory=dict)

    def of(self, number: int, trait: int) -> FitKey | None:
        """Return the rank of a fit on the offer with this number."""
        key = self._known.get((number, trait), UNKNOWN)
        if key is UNKNOWN:
            fit = self.values.ledger.fit(number, self.claim)
            key = None if fit is None else self._ranked(number, *fit, trait)
            if key is not None and self.prices is not None:
                key = (key[0], self.prices.at(self.claim, self.values.traits[trait].tariff), *key[1:])
            self._known[number, trait] = key
        return key

    def on(self, node: int) -> FitKey | None:
        """Return the rank of a fit on a node in its present state."""
        return self.of(self.values.ledger.numbers[node], self.values.of_node[node])

    def fill(self, node: int, most: int) -> list[int]:
        """Take the claim on a node up to `most` times, while no other node is as good; return each GPU share taken."""
        ledger, trait = self.values.ledger, self.values.of_node[node]
        number, taken = ledger.numbers[node], list[int]()
        fit = self.of(number, trait)
        while fit is not None and (found := ledger.fit(number, self.claim)) is not None:
            taken.append(found[0].gpus)
            number = found[1]
            later = None if len(taken) == most else self.of(number, trait)
            fit = later if later is not None and later < fit else None
        if taken:
            ledger.shift(node, number)
        return taken

    def prepare(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Compute the worth of many (number of an offer, trait) pairs at once."""
        if self.worth is not None:
            offered = [(number, self.values.traits[trait].area) for number, trait in pairs]
            fits = ((self.values.ledger.fit(number, self.claim), area) for number, area in offered)
            self.worth.prepare([*offered, *((fit[1], area) for fit, area in fits if fit is not None)])

    def _ranked(self, number: int, taken: Taken, left: int, trait: int) -> FitKey:
        key = fit_key(self.values.ledger.numbered(number), taken, self.claim)
        ranking = self.ranking
        if self.worth is None:
            return key if ranking is None else (*key[:2], ranking.rank_of[trait], *key[2:])
        harm = self.worth.harm(number, left, self.values.traits[trait].area)
        if ranking is None:
            return (*key[:2], harm, *key[2:])
        rank = ranking.rank_of[trait]
        # memory alone takes less of a large card, which is no reason to take a large one
        harm += (ranking.share - taken.gpus) * MICRO // SHARE + rank * LESS_VALUABLE * ranking.share // SHARE
        return (*key[:2], harm, rank, *key[2:])


@dataclass(slots=True)
class FleetCandidates:
    """The candidates among all open nodes that a selector allows."""

    buckets: Buckets
    selector: Selector
    fits: Fits
    _age: int = NO_BUCKET
    _cursor: int = 0
    _order: list[tuple[FitKey, int]] = field(default_factory=list)
    """Fit and bucket, best first; empty buckets are dropped when they are next seen."""
    _listed: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        self._follow()
        return sum(map(self.buckets.count, self._listed & self.buckets.non_empty))

    def has(self, count: int) -> bool:
        """Return whether there are at least `count` candidates."""
        return len(self) >= count

    def best(self, allowed: Allowed | None, spread: Spread) -> int | None:
        """Return the best node that `allowed` accepts; among equal fits the least `spread`, then ledger order."""
        self._follow()
        order, at = self._order, 0
        while at < len(order):
            key = order[at][0]
            chosen: tuple[int, int] | None = None
            while at < len(order) and order[at][0] == key:
                bucket = order[at][1]
                if not self.buckets.count(bucket):
                    del order[at]
                    self._listed.discard(bucket)
                    continue
                found = _least_crowded(self.buckets.nodes(bucket), allowed, spread)
                if found is not None and (chosen is None or found < chosen):
                    chosen = found
                at += 1
            if chosen is not None:
                return chosen[1]
        return None

    def best_fit(self) -> FitKey | None:
        """Return how well the best node fits; None if none fits."""
        self._follow()
        return next((key for key, bucket in self._order if self.buckets.count(bucket)), None)

    def in_order(self) -> Iterator[tuple[FitKey, int]]:
        """Yield the fitting nodes in their present state with how well each fits, best first, then in ledger order."""
        self._follow()
        for key, equal in groupby(list(self._order), key=itemgetter(0)):
            nodes = [self.buckets.nodes(bucket) for _, bucket in equal if self.buckets.count(bucket)]
            for node in nodes[0] if len(nodes) == 1 else merge(*nodes):
                yield key, node

    def _follow(self) -> None:
        """List the buckets that have got their first node since, or all of them if the nodes were sorted again."""
        buckets = self.buckets
        buckets.follow()
        if self._age != buckets.age:
            self._age, self._cursor, self._order, self._listed = buckets.age, 0, [], set()
        elif self._cursor == len(buckets.filled):
            return
        few = len(buckets.filled) - self._cursor <= len(buckets.non_empty)
        new = [bucket for bucket in (dict.fromkeys(buckets.filled[self._cursor:]) if few else buckets.non_empty)
               if bucket not in self._listed and buckets.allows(self.selector, bucket)]
        offered = [(buckets.number[bucket], buckets.trait[bucket]) for bucket in new]
        self.fits.prepare(offered)
        for bucket, offer in zip(new, offered, strict=True):
            key = self.fits.of(*offer)
            if key is not None:
                insort(self._order, (key, bucket))
                self._listed.add(bucket)
        self._cursor = len(buckets.filled)


@dataclass(slots=True)
class DomainCandidates:
    """The candidates among `nodes`, those of one domain that a selector allows, ascending."""

    nodes: Sequence[int]
    fits: Fits

    def __len__(self) -> int:
        return sum(1 for _ in self._fitting())

    def has(self, count: int) -> bool:
        """Return whether there are at least `count` candidates."""
        return sum(1 for _ in islice(self._fitting(), count)) == count

    def best(self, allowed: Allowed | None, spread: Spread) -> int | None:
        """Return the best node that `allowed` accepts; among equal fits the least `spread`, then ledger order."""
        found = min(((key, spread(node), node) for key, node in self._fitting() if allowed is None or allowed(node)),
                    default=(None, None, None))
        return found[2]

    def best_fit(self) -> FitKey | None:
        """Return how well the best node fits; None if none fits."""
        return min((key for key, _ in self._fitting()), default=None)

    def in_order(self) -> Iterator[tuple[FitKey, int]]:
        """Yield the fitting nodes in their present state with how well each fits, best first, then in ledger order."""
        return iter(sorted(self._fitting()))

    def _fitting(self) -> Iterator[tuple[FitKey, int]]:
        for node in self.nodes:
            key = self.fits.on(node)
            if key is not None:
                yield key, node


Candidates = FleetCandidates | DomainCandidates


def _least_crowded(nodes: Iterator[int], allowed: Allowed | None, spread: Spread) -> tuple[int, int] | None:
    best: tuple[int, int] | None = None
    for node in nodes:
        if allowed is not None and not allowed(node):
            continue
        candidate = spread(node), node
        if not candidate[0]:
            return candidate
        if best is None or candidate < best:
            best = candidate
    return best


@dataclass(frozen=True, slots=True)
class Crowding:
    """How crowded each value is for one replica; `mine` = the values that it already touches, at no cost."""

    crowd: Crowd
    value_of: Callable[[int], Value]
    values: int
    """The number of values."""
    apart: bool
    """Each node has a value of its own."""
    mine: Set[Value] = frozenset()

    def of(self, value: Value) -> int:
        """Return how crowded a value is; 0 = this replica already touches it."""
        return 0 if value in self.mine else 1 + self.crowd.get(value, 0)

    def at(self, node: int) -> int:
        """Return how crowded the value of a node is."""
        return self.of(self.value_of(node))

    @property
    def minimum(self) -> int:
        """A lower bound on how crowded any value is."""
        if self.mine:
            return 0
        return 1 if len(self.crowd) < self.values else 1 + min(self.crowd.values(), default=0)


class Spreading:
    """The fitting nodes of one kind of member, examined only as far as needed.

    Between two calls of `best`, nothing may change except what `placed` reports.
    """

    def __init__(self, candidates: Candidates, allowed: Allowed | None, count: Count, crowding: Crowding) -> None:
        self.candidates, self.allowed, self.count, self.crowding = candidates, allowed, count, crowding
        self._leading = 1 if candidates.fits.prices is None else 2
        """How many parts of a fit come before how crowded a value is."""
        self._unexamined = candidates.in_order()
        self._next = next(self._unexamined, None)
        self._waiting: dict[Value, list[Waiting]] = {}
        """By value: a heap of the nodes examined."""
        self._first: list[tuple[FitKey, int, FitKey, int, int]] = []
        """A heap of the best node of each value, with outdated entries: risk and price, crowd, fit, count, node."""
        self._minimum = crowding.minimum

    def best(self) -> int | None:
        """Return the best node; None if none fits."""
        fresh = False
        while True:
            top = self._top()
            if top is None and self._next is None:
                return None
            if top is not None and top[1] > self._minimum and not fresh:
                self._minimum, fresh = self.crowding.minimum, True
            if top is not None and self._comes_first(top):
                return top[4]
            self._examine_next()

    def placed(self, node: int) -> None:
        """Note that a replica was placed on `node`, the last best one."""
        value = self.crowding.value_of(node)
        heappop(self._waiting[value])
        fit = self.candidates.fits.on(node)
        if fit is not None:
            heappush(self._waiting[value], (fit, self.count(node), node))
        self._enter(value)

    def _comes_first(self, top: tuple[FitKey, int, FitKey, int, int]) -> bool:
        """Return whether no unexamined node can be better."""
        if self._next is None:
            return True
        leading, crowd, fit, count, _ = top
        next_fit = self._next[0]
        return leading < next_fit[:self._leading] or (
            crowd <= self._minimum and (fit < next_fit or (fit == next_fit and not count)))

    def _examine_next(self) -> None:
        if self._next is None:
            return
        fit, node = self._next
        self._next = next(self._unexamined, None)
        if self.allowed is None or self.allowed(node):
            value = self.crowding.value_of(node)
            heap = self._waiting.setdefault(value, [])
            heappush(heap, (fit, self.count(node), node))
            if heap[0][2] == node:
                self._enter(value)

    def _enter(self, value: Value) -> None:
        heap = self._waiting[value]
        if heap:
            fit, count, node = heap[0]
            heappush(self._first, (fit[:self._leading], self.crowding.of(value), fit, count, node))

    def _top(self) -> tuple[FitKey, int, FitKey, int, int] | None:
        """Return the best examined node, and drop entries that are outdated or no longer allowed."""
        while self._first:
            _, crowd, fit, count, node = top = self._first[0]
            value = self.crowding.value_of(node)
            heap = self._waiting[value]
            if not heap or heap[0] != (fit, count, node) or self.crowding.of(value) != crowd:
                heappop(self._first)
            elif self.allowed is not None and not self.allowed(node):
                heappop(self._first)
                heappop(heap)
                self._enter(value)
            else:
                return top
        return None
