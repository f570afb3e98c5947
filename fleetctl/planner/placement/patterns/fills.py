"""Partial fillings of a card or a node, many at once: put together, cut down to the promising ones.

The knapsack of a node with cards has no small exact table: CPU and memory are two resources of many sizes. So a filling
is a label (value, use of each resource, contents), sets of labels are merged by adding every pair, and of those that
lie in one cell of a grid over the resources only the best is kept, a limited number in all (label setting with
dominance by cells, as for resource-constrained paths; Desrosiers & Lübbecke 2005). Work is bounded by KEEP squared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetctl.planner.placement.arrays import Flags, Floats, Ints

WORDS = 4
WORD_BITS = 62


@dataclass(frozen=True, slots=True)
class Counters:
    """`unit` (words, items): what one member adds; `bias`, `guard` (words,); `counted` (items,) = has its field."""

    unit: Ints
    bias: Ints
    guard: Ints
    counted: Flags


@dataclass(slots=True)
class _Word:
    used: int = 0
    bias: int = 0
    guard: int = 0

    def field(self, limit: int) -> int | None:
        """Take a field that counts up to `limit` and return its lowest bit; None when the word is full."""
        width = limit.bit_length() + 1
        if self.used + width > WORD_BITS:
            return None
        low = 1 << self.used
        self.bias += low * ((1 << (width - 1)) - 1 - limit)
        self.guard |= low << (width - 1)
        self.used += width
        return low


def state_limits(ranked: NDArray[np.intp], limits: Ints, most: Ints) -> Counters:
    """Give fields to the items in `ranked` order of which more would fit (`most`) than a node may hold (`limits`)."""
    unit = np.zeros((WORDS, len(limits)), np.int64)
    counted = np.zeros(len(limits), dtype=bool)
    words = [_Word() for _ in range(WORDS)]
    for place in ranked.tolist():
        counted[place] = limits[place] >= most[place] or _take_field(words, int(limits[place]), unit[:, place])
    used = max([place + 1 for place, word in enumerate(words) if word.used], default=0)
    return Counters(unit[:used], np.array([word.bias for word in words[:used]], np.int64),
                    np.array([word.guard for word in words[:used]], np.int64), counted)


def _take_field(words: Sequence[_Word], limit: int, unit: Ints) -> bool:
    """Write into `unit` (words,) what one member adds to the field it gets; False where no word has room for it."""
    for number, word in enumerate(words):
        low = word.field(limit)
        if low is not None:
            unit[number] = low
            return True
    return False


@dataclass(frozen=True, slots=True)
class Fills:
    """`value` (n,), `use` (resources, n) in the ledger's units, `counted` (words, n) counters of what a node
    may hold few of (limits.py), `counts` (n, items)."""

    value: Floats
    use: Ints
    counted: Ints
    counts: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.value)

    def pick(self, chosen: NDArray[np.intp]) -> Fills:
        """Return some of them."""
        return Fills(self.value[chosen], self.use[:, chosen], self.counted[:, chosen], self.counts[chosen])

    def with_use(self, columns: list[int]) -> Fills:
        """Return them with some of the resources only."""
        return Fills(self.value, self.use[columns], self.counted, self.counts)


@dataclass(frozen=True, slots=True)
class Frame:
    """What a filling may use, and what makes one promising: `room` (resources,), `price` (resources,) value per
    unit, `cells` (resources,) of the grid, `keep` the number of fillings kept, `counters` those that must not
    overflow."""

    room: Ints
    price: Floats
    cells: tuple[int, ...]
    keep: int
    counters: Counters


def nothing(resources: int, items: int, words: int) -> Fills:
    """Return the one empty filling."""
    return Fills(np.zeros(1), np.zeros((resources, 1), np.int64), np.zeros((words, 1), np.int64),
                 np.zeros((1, items), np.int32))


def joined(*several: Fills) -> Fills:
    """Return all fillings of several sets."""
    return Fills(
        np.concatenate([one.value for one in several]), np.concatenate([one.use for one in several], axis=1),
        np.concatenate([one.counted for one in several], axis=1), np.concatenate([one.counts for one in several]),
    )


def merged(left: Fills, right: Fills, frame: Frame) -> Fills:
    """Return the promising sums of one filling of each set that stay within the room."""
    fits = np.ones((len(left), len(right)), dtype=bool)
    for word, guard in enumerate(frame.counters.guard):
        fits &= ((left.counted[word] + frame.counters.bias[word])[:, None] + right.counted[word][None, :]) & guard == 0
    for resource, room in enumerate(frame.room):
        fits &= left.use[resource][:, None] <= room - right.use[resource][None, :]
    if left is right:
        fits = np.triu(fits)
    first, second = np.nonzero(fits)
    use = left.use[:, first] + right.use[:, second]
    value = left.value[first] + right.value[second]
    counted = left.counted[:, first] + right.counted[:, second]
    kept = _promising(value, use, counted, frame)
    first, second = first[kept], second[kept]
    return Fills(value[kept], use[:, kept], counted[:, kept], left.counts[first] + right.counts[second])


def trimmed(fills: Fills, frame: Frame) -> Fills:
    """Return the promising ones of a set that stay within the room."""
    inside = np.flatnonzero((fills.use <= frame.room[:, None]).all(axis=0))
    return fills.pick(inside[_promising(fills.value[inside], fills.use[:, inside], fills.counted[:, inside], frame)])


def _promising(value: Floats, use: Ints, counted: Ints, frame: Frame) -> NDArray[np.intp]:
    """Return, ascending, at most `keep` fillings: the best of each cell, judged by value less the price of its use.

    The first is the empty one, in every set, and stays: a card may be left free.
    """
    net: Floats = np.asarray(value - frame.price @ use)
    flagged: Flags = np.asarray(counted.any(axis=0))
    cell = flagged.astype(np.int64)
    for resource, cells in enumerate(frame.cells):
        cell *= cells + 1
        cell += use[resource] * cells // max(1, int(frame.room[resource]))
    size = 2
    for cells in frame.cells:
        size *= cells + 1
    best = np.full(size, -np.inf)
    np.maximum.at(best, cell, net)
    holder = np.full(size, -1, dtype=np.intp)
    winners = np.flatnonzero(np.equal(net, best[cell]))
    holder[cell[winners[::-1]]] = winners[::-1]
    chosen = np.union1d(holder[holder >= 0], 0)
    if len(chosen) <= frame.keep:
        return chosen
    ranked = chosen[np.argsort(-net[chosen], kind="stable")]
    free = flagged[ranked] == 0
    few, rest = ranked[~free], ranked[free]
    half = max(frame.keep // 2, frame.keep - len(rest))
    return np.union1d(np.concatenate([few[:half], rest[: frame.keep - min(half, len(few))]]), 0)
