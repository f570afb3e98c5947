"""Pricing: the most valuable fillings of one node of a class, at given prices of the items.

First one card is filled with shares. Then cards are combined by doubling (two, four, eight), and items of several whole
cards are added once as many cards are combined. Members without a card come last. The result is good, not proven best,
since sets of partial fillings are reduced on the way.

The knapsack of a node with cards has no small exact table, since CPU and memory are two resources of many sizes. So a
filling is a label (value, use of each resource, contents). Sets of labels are merged by adding each pair. Of the labels
in one cell of a grid over the resources only the best is kept, a limited number in total (label setting with dominance
by cells, as for resource-constrained paths; Desrosiers & Lübbecke 2005). Work is bounded by KEEP squared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.tally import Flags, Floats, Ints, Tally

KEEP_ON_CARD, KEEP_ON_NODE = 300, 160
CELLS_ON_CARD, CELLS_ON_NODE = (2, 2, 100, 4), (8, 8)
"""The partial fillings kept on a card and on a node, and the grid cells by resource; one filling is kept per cell.

Trace gpushare100: keeping 60 on a card loses 0.063 points; half the cells there, or 40 on a node, change below 0.002.
"""
PRICES_LAST = 3
"""Pricings that reuse the prices of CPU, memory and share of a class; with one, the same trace takes 1 s longer."""
CardState = tuple[int, int, int]
"""Free share, free VRAM and memory of a card, 0 = unknown; cards in one state are equal."""
Rows = NDArray[np.intp]


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


class Pricer:
    """Prices one class of nodes. `items` = those that fit there; other arrays are by row in `items`."""

    def __init__(self, tally: Tally, row: int) -> None:
        problem, node = tally.problem, tally.problem.nodes[row]
        offer, kinds = node.offer, [demand.gangs[0].parts[0][0] for demand in problem.demands]
        fitting = [item for item, kind in enumerate(kinds) if tally.max_members(kind)[row]]
        self.items = np.array(fitting, np.intp)
        claims = np.array([problem.kinds[kinds[item]][0] for item in fitting], np.int64).reshape(-1, 4).T
        self.gpus, self.vram, self.use = claims[0], claims[1], claims[2:]  # the use of CPU and memory
        self.limits = np.array([node.free_slots(problem.demands[item]) for item in fitting], np.int64)
        self.cards = sorted(Counter((min(card.free_share, SHARE - bool(card.foreign)), card.free_vram or 0,
                                     card.memory or 0) for card in offer.cards
                                    if not card.closed and card.free_share > 0).items())
        self.room = np.array([offer.free_cpus, offer.free_memory], np.int64)
        self.gpu_units = int(tally.free_share[row])
        self.units = self.shares_on(max((memory for (_, _, memory), _ in self.cards), default=0))
        self.cardless = self.units == 0
        use = np.vstack([self.use, self.units])
        room = np.array([*self.room, self.gpu_units], np.int64)
        self.maximum: Ints = np.where(use > 0, room[:, None] // np.maximum(use, 1), 1 << 30).min(axis=0)
        """The most of each item on one node, each resource by itself."""
        self._prices: Floats = np.zeros(3)
        self._age = 0

    def shares_on(self, memory: int) -> Ints:
        """Return the share that each item takes of a card of `memory` bytes; SHARE + 1 for VRAM if that is unknown."""
        by_vram = -(-self.vram * SHARE // memory) if memory else np.where(self.vram > 0, SHARE + 1, 0)
        return np.where(self.gpus > 0, self.gpus, by_vram)

    def best(self, worth: Floats, wanted: Ints, count: int) -> list[NDArray[np.int32]]:
        """Return up to `count` fillings, most valuable first, as counts of each item.

        `wanted` = how many of each item are still missing; items of no worth are left out.
        """
        limits = np.minimum(self.limits, wanted)
        live = np.flatnonzero((worth > 1e-9) & (limits > 0))
        if not len(live):
            return []
        if self._age % PRICES_LAST == 0:
            self._prices = self._resource_prices(worth, limits, live)
        self._age += 1
        frame = Frame(self.room, self._prices[:2], CELLS_ON_NODE, KEEP_ON_NODE, limits, limits < self.maximum)
        fills = _Task(self, worth, live, self._prices, frame).node()
        order = np.argsort(-fills.value, kind="stable")
        return [fills.counts[index] for index in order[:count] if fills.value[index] > 1e-9]

    def _resource_prices(self, worth: Floats, limits: Ints, live: Rows) -> Floats:
        """Return the worth of a unit of CPU, memory and GPU share on such a node: duals of the fractional knapsack."""
        from scipy.optimize import linprog

        room = np.array([*self.room, self.gpu_units], np.float64)
        use = np.vstack([self.use[:, live], self.units[live]]).astype(np.float64)
        scale = np.maximum(room, 1.0)
        bounds = np.column_stack([np.zeros(len(live)), np.minimum(limits[live], 1 << 20)])
        solved = linprog(-worth[live], A_ub=use / scale[:, None], b_ub=room / scale, bounds=bounds, method="highs-ds")
        if solved.status != 0:
            return np.zeros(3)
        return -np.asarray(solved.ineqlin.marginals, np.float64) / scale


@dataclass(frozen=True, slots=True)
class _Task:
    """One pricing: `live` = the items of any worth, `prices` = those of CPU, memory and GPU share."""

    pricer: Pricer
    worth: Floats
    live: Rows
    prices: Floats
    frame: Frame

    def node(self) -> Fills:
        """Return fillings of the whole node."""
        fills = nothing(2, len(self.worth))
        for state, count in self.pricer.cards:
            fills = merged(fills, self._cards(state).fill(count), self.frame)
        return self._with_cardless(fills)

    def _with_cardless(self, fills: Fills) -> Fills:
        rows = self.live[self.pricer.cardless[self.live]]
        if not len(rows):
            return fills
        use = self.pricer.use[:, rows]
        one = trimmed(joined(nothing(2, len(self.worth)), self._single_items(rows, use)), self.frame)
        maximum = int(np.clip(self.pricer.maximum[rows].max(), 1, 32))
        return merged(fills, _Cards(one, {}, self.frame).fill(maximum), self.frame)

    def _single_items(self, rows: Rows, use: Ints) -> Fills:
        """Return fillings of one item each."""
        counts = np.zeros((len(rows), len(self.worth)), np.int32)
        counts[np.arange(len(rows)), rows] = 1
        return Fills(self.worth[rows], use, counts)

    def _cards(self, state: CardState) -> _Cards:
        """Return the fillings of cards in one state."""
        pricer, (share, vram, _), groups = self.pricer, state, dict[int, Fills]()
        rows = self.live[pricer.vram[self.live] <= vram]
        whole = pricer.gpus[rows] // SHARE if share == SHARE else np.zeros(len(rows), np.int64)
        for size in np.unique(whole[whole > 0]).tolist():
            groups[size] = self._single_items(rows[whole == size], pricer.use[:, rows[whole == size]])
        return _Cards(self._one_card(state), groups, self.frame)

    def _one_card(self, state: CardState) -> Fills:
        """Return fillings of one card with shares."""
        pricer, (share, vram, memory) = self.pricer, state
        shares = pricer.shares_on(memory)
        fits = (shares > 0) & (shares <= share) & (pricer.gpus < SHARE) & (pricer.vram <= vram)
        rows = self.live[fits[self.live]]
        if not len(rows):
            return nothing(2, len(self.worth))
        use = np.vstack([pricer.use[:, rows], shares[rows], pricer.vram[rows]])
        cells = (*CELLS_ON_CARD[:3], CELLS_ON_CARD[3] if use[3].any() else 0)
        frame = Frame(np.array([*pricer.room, share, vram], np.int64), np.array([*self.prices, 0.0]), cells,
                      KEEP_ON_CARD, self.frame.limits, self.frame.scarce)
        fills = trimmed(joined(nothing(4, len(self.worth)), self._single_items(rows, use)), frame)
        for _ in range((share // int(shares[rows].min()) - 1).bit_length()):
            fills = merged(fills, fills, frame)
        return trimmed(Fills(fills.value, fills.use[:2], fills.counts), self.frame)


@dataclass(frozen=True, slots=True)
class _Cards:
    """Fills several equal cards: `one` = fillings of one, `groups` = items by the number of whole cards they take."""

    one: Fills
    groups: Mapping[int, Fills]
    frame: Frame
    known: dict[int, Fills] = field(default_factory=dict)

    def fill(self, count: int) -> Fills:
        """Return fillings of `count` cards."""
        if count not in self.known:
            half = count // 2
            parts = [self.one if count == 1 else merged(self.fill(half), self.fill(count - half), self.frame)]
            for size, items in self.groups.items():
                if size == count:
                    parts.append(items)
                elif size < count and (size > half or size & (size - 1)):
                    parts.append(merged(items, self.fill(count - size), self.frame))
            self.known[count] = trimmed(joined(*parts), self.frame) if len(parts) > 1 else parts[0]
        return self.known[count]
