"""Sets of partial fillings of a card or a node: merged, and reduced to the promising ones.

The knapsack of a node with cards has no small exact table, since CPU and memory are two resources of many sizes. So a
filling is a label (value, use of each resource, contents). Sets of labels are merged by adding each pair. Of the labels
in one cell of a grid over the resources only the best is kept, a limited number in total (label setting with dominance
by cells, as for resource-constrained paths; Desrosiers & Lübbecke 2005). Work is bounded by KEEP squared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetctl.planner.placement.arrays import Flags, Floats, Ints


@dataclass(frozen=True, slots=True)
class Fills:
    """`value` (n,), `use` (resources, n) in the ledger's units, `counts` (n, items)."""

    value: Floats
    use: Ints
    counts: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.value)

    def pick(self, chosen: NDArray[np.intp]) -> Fills:
        """Return a subset."""
        return Fills(self.value[chosen], self.use[:, chosen], self.counts[chosen])


@dataclass(frozen=True, slots=True)
class Frame:
    """What a filling may use, and what makes it promising.

    `room`, `price` (value per unit) and `cells` of the grid have shape (resources,); `keep` = the number of fillings
    kept; `limits` = the most of each item, and `scarce` = the items of which more would fit, shape (items,).
    """

    room: Ints
    price: Floats
    cells: tuple[int, ...]
    keep: int
    limits: Ints
    scarce: Flags


def nothing(resources: int, items: int) -> Fills:
    """Return the one empty filling."""
    return Fills(np.zeros(1), np.zeros((resources, 1), np.int64), np.zeros((1, items), np.int32))


def joined(*several: Fills) -> Fills:
    """Return all fillings of several sets."""
    return Fills(np.concatenate([one.value for one in several]), np.concatenate([one.use for one in several], axis=1),
                 np.concatenate([one.counts for one in several]))


def merged(left: Fills, right: Fills, frame: Frame) -> Fills:
    """Return the promising sums of one filling of each set, within the room and the limits."""
    fits = np.ones((len(left), len(right)), dtype=bool)
    for item in np.flatnonzero(left.counts.max(axis=0) + right.counts.max(axis=0) > frame.limits).tolist():
        fits &= left.counts[:, item, None] <= frame.limits[item] - right.counts[:, item]
    for resource, room in enumerate(frame.room):
        fits &= left.use[resource][:, None] <= room - right.use[resource][None, :]
    if left is right:
        fits = np.triu(fits)
    first, second = np.nonzero(fits)
    use = left.use[:, first] + right.use[:, second]
    value = left.value[first] + right.value[second]
    scarce = _has_scarce(left, frame)[first] | _has_scarce(right, frame)[second]
    kept = _promising(value, use, scarce, frame)
    return Fills(value[kept], use[:, kept], left.counts[first[kept]] + right.counts[second[kept]])


def trimmed(fills: Fills, frame: Frame) -> Fills:
    """Return the promising fillings of a set, within the room."""
    inside = fills.pick(np.flatnonzero((fills.use <= frame.room[:, None]).all(axis=0)))
    return inside.pick(_promising(inside.value, inside.use, _has_scarce(inside, frame), frame))


def _has_scarce(fills: Fills, frame: Frame) -> Flags:
    found: Flags = np.asarray(fills.counts[:, frame.scarce].any(axis=1))
    return found


def _promising(value: Floats, use: Ints, scarce: Flags, frame: Frame) -> NDArray[np.intp]:
    """Return, ascending, at most `keep` fillings: the best of each cell, by value less the price of its use.

    Fillings with `scarce` items, which cannot all be combined, are ranked separately and are at most half of the result
    if there are enough others. The first filling of each set is the empty one and stays: a card may be left free.
    """
    net: Floats = np.asarray(value - frame.price @ use)
    cell, size = scarce.astype(np.int64), 2
    for resource, cells in enumerate(frame.cells):
        cell = cell * (cells + 1) + use[resource] * cells // max(1, int(frame.room[resource]))
        size *= cells + 1
    best = np.full(size, -np.inf)
    np.maximum.at(best, cell, net)
    winners = np.flatnonzero(np.equal(net, best[cell]))
    _, first = np.unique(cell[winners], return_index=True)
    ranked = winners[first][np.argsort(-net[winners[first]], kind="stable")]
    few, many = ranked[scarce[ranked]], ranked[~scarce[ranked]]
    half = max(frame.keep // 2, frame.keep - len(many))
    return np.union1d(np.concatenate([few[:half], many[:frame.keep - min(half, len(few))]]), 0)
