"""The nodes that can take one kind of member, best first; follows the ledger instead of being rebuilt.

Best first means: the card Ray will pick is certain; no empty node is broken; the smallest card that does; the tightest
fit. Nodes with equal offers are judged once; a node that changed is filed anew when it is next asked for, and its old
entry is dropped when it is next seen.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fleetctl.planner.placement.cards import Offer, Taken
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger import Ledger

FitKey = tuple[int, ...]
NOWHERE = -1


def fit_key(before: Offer, taken: Taken, claim: Claim) -> FitKey:
    """Rank a fit; lower is better. All parts are integers, so equal fits are exactly equal."""
    left = taken.left
    whole_left = sum(card.fully_free for card in left.cards)
    if not claim.wants_card:
        return (0, before.empty, whole_left, 0, left.free_cpus, left.free_memory)
    used = [card for card in left.cards if card.index in taken.indices]
    memory = max((card.memory or 0 for card in used), default=0)
    share_left = sum(card.free_share for card in used)
    return (taken.risky, before.empty, memory, share_left if not claim.whole_cards else whole_left, whole_left,
            left.free_cpus)


@dataclass(slots=True)
class Candidates:
    """Those of `places` that can take one claim, bucketed by how well they fit."""

    ledger: Ledger
    claim: Claim
    places: Sequence[int]
    """Node numbers, ascending."""
    prices: Sequence[int] | None = None
    """By node: cheap ones go first, before everything else about a fit."""
    _cursor: int = NOWHERE
    _filed: dict[int, int] = field(default_factory=dict)
    """Node -> number of the offer under which it was filed; only nodes that fit."""
    _among: frozenset[int] = frozenset()
    _buckets: dict[FitKey, list[int]] = field(default_factory=dict)
    """Nodes of one fit, negated and ascending, so that the first node is popped from the end."""
    _order: list[FitKey] = field(default_factory=list)
    _key_of: dict[int, FitKey | None] = field(default_factory=dict)
    """By number of the offer; None = does not fit. Without the price."""

    def __len__(self) -> int:
        self._follow()
        return len(self._filed)

    def __iter__(self) -> Iterator[int]:
        """Yield the fitting nodes in no particular order."""
        self._follow()
        return iter(self._filed)

    def best(self, allowed: Callable[[int], bool] | None, spread: Callable[[int], int]) -> int | None:
        """Return the best node that `allowed` accepts; among equal fits the least `spread`, then ledger order."""
        self._follow()
        at = 0
        while at < len(self._order):
            key = self._order[at]
            chosen, least = NOWHERE, 0
            for node in self._in_bucket(key):
                if allowed is not None and not allowed(node):
                    continue
                crowd = spread(node)
                if chosen == NOWHERE or crowd < least:
                    chosen, least = node, crowd
                if not least:
                    break
            if chosen != NOWHERE:
                return chosen
            at += at < len(self._order) and self._order[at] == key
        return None

    def ranked(self, allowed: Callable[[int], bool], spread: Callable[[int], int]) -> list[int]:
        """Return all nodes that `allowed` accepts, best first."""
        self._follow()
        ranked: list[int] = []
        for key in list(self._order):
            ranked += sorted(filter(allowed, self._in_bucket(key)), key=lambda node: (spread(node), node))
        return ranked

    def _in_bucket(self, key: FitKey) -> Iterator[int]:
        """Yield the nodes of one fit in ledger order; entries of nodes that have changed are dropped on the way."""
        bucket = self._buckets[key]
        place = len(bucket) - 1
        while place >= 0:
            node = -bucket[place]
            filed = self._filed.get(node, NOWHERE)
            if filed != NOWHERE and self._is(node, filed, key):
                yield node
            else:
                del bucket[place]
            place -= 1
        if not bucket:
            del self._buckets[key]
            del self._order[bisect_left(self._order, key)]

    def _follow(self) -> None:
        changes = self.ledger.changes
        behind = len(changes) - self._cursor
        if self._cursor == NOWHERE:
            self._among = frozenset(self.places)
            self._build()
        elif not behind:
            return
        elif behind > len(self.places):
            self._build()
        elif behind == 1:
            if changes[-1] in self._among:
                self._refile(changes[-1])
        else:
            for node in self._among.intersection(changes[self._cursor:]):
                self._refile(node)
        self._cursor = len(changes)

    def _build(self) -> None:
        """File all nodes anew; equal offers are judged once."""
        numbers, key_of = self.ledger.numbers, self._key_of
        buckets: dict[FitKey, list[int]] = {}
        filed: dict[int, int] = {}
        for node in reversed(self.places):
            number = numbers[node]
            key = key_of[number] if number in key_of else self._judge(number)
            if key is not None:
                filed[node] = number
                key = self._priced(node, key)
                if key in buckets:
                    buckets[key].append(-node)
                else:
                    buckets[key] = [-node]
        self._filed, self._buckets, self._order = filed, buckets, sorted(buckets)

    def _judge(self, number: int) -> FitKey | None:
        offer = self.ledger.numbered(number)
        key = None
        if offer.free_cpus >= self.claim.cpus and offer.free_gpus >= self.claim.gpus:
            taken = self.ledger.peek_number(number, self.claim)
            key = None if taken is None else fit_key(offer, taken, self.claim)
        self._key_of[number] = key
        return key

    def _is(self, node: int, number: int, key: FitKey) -> bool:
        known = self._key_of[number]
        return known is not None and self._priced(node, known) == key

    def _priced(self, node: int, key: FitKey) -> FitKey:
        return key if self.prices is None else (key[0], self.prices[node], *key[1:])

    def _refile(self, node: int) -> None:
        number, before = self.ledger.numbers[node], self._filed.get(node, NOWHERE)
        key = self._key_of[number] if number in self._key_of else self._judge(number)
        if key is None:
            self._filed.pop(node, None)
            return
        self._filed[node] = number
        if before != NOWHERE and self._key_of[before] == key:
            return
        key = self._priced(node, key)
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = [-node]
            insort(self._order, key)
            return
        at = bisect_left(bucket, -node)
        if at == len(bucket) or bucket[at] != -node:
            bucket.insert(at, -node)
