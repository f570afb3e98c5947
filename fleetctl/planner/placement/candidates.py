"""The nodes that can take one kind of member, best first; follows the ledger instead of being rebuilt.

Best first means: the card Ray will pick is certain; no empty node is broken; the smallest card that does; the tightest
fit.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fleetctl.planner.placement.cards import Offer, Taken
from fleetctl.planner.placement.claims import Claim, Selector
from fleetctl.planner.placement.ledger import Ledger

FitKey = tuple[int, ...]
Kind = tuple[Claim, Selector]


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
    """Fitting nodes of one kind (claim and selector), bucketed by how well they fit."""

    ledger: Ledger
    kind: Kind
    _cursor: int = -1
    _key_of: dict[int, FitKey] = field(default_factory=dict)
    _buckets: dict[FitKey, set[int]] = field(default_factory=dict)
    _order: list[FitKey] = field(default_factory=list)
    _known: dict[int, FitKey | None] = field(default_factory=dict)

    def __len__(self) -> int:
        self._follow()
        return len(self._key_of)

    def __iter__(self) -> Iterator[int]:
        """Yield the fitting nodes in no particular order."""
        self._follow()
        return iter(self._key_of)

    def best(self, allowed: Callable[[int], bool], spread: Callable[[int], int]) -> int | None:
        """Return the best node that `allowed` accepts; among equal fits the least `spread`, then ledger order."""
        self._follow()
        for key in self._order:
            fitting = [node for node in self._buckets[key] if allowed(node)]
            if fitting:
                return min(fitting, key=lambda node: (spread(node), node))
        return None

    def ranked(self, allowed: Callable[[int], bool], spread: Callable[[int], int]) -> list[int]:
        """Return all nodes that `allowed` accepts, best first."""
        self._follow()
        return list(self._ranked(allowed, spread))

    def _ranked(self, allowed: Callable[[int], bool], spread: Callable[[int], int]) -> Iterator[int]:
        for key in self._order:
            yield from sorted(filter(allowed, self._buckets[key]), key=lambda node: (spread(node), node))

    def _follow(self) -> None:
        changes = self.ledger.changes
        selected = self.ledger.selected(self.kind[1])
        if self._cursor < 0 or len(changes) - self._cursor > len(selected):
            stale: Iterator[int] | set[int] = iter(selected)
        elif self._cursor == len(changes):
            return
        else:
            stale = set(changes[self._cursor:]).intersection(selected)
        self._cursor = len(changes)
        for node in stale:
            self._refresh(node)

    def _refresh(self, node: int) -> None:
        number = self.ledger.offer_number(node)
        if number not in self._known:
            taken = self.ledger.peek(node, self.kind[0])
            self._known[number] = None if taken is None else fit_key(self.ledger.offer(node), taken, self.kind[0])
        key, old = self._known[number], self._key_of.get(node)
        if key == old:
            return
        if old is not None:
            self._remove(node, old)
        if key is not None:
            if key not in self._buckets:
                self._buckets[key] = set()
                insort(self._order, key)
            self._buckets[key].add(node)
            self._key_of[node] = key

    def _remove(self, node: int, key: FitKey) -> None:
        del self._key_of[node]
        self._buckets[key].discard(node)
        if not self._buckets[key]:
            del self._buckets[key]
            del self._order[bisect_left(self._order, key)]
