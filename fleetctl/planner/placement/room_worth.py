"""The worth of each node's free room to what a fleet still expects, and so the cost of a placement to the rest.

Similar to Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023), which places a task where the GPU share that
no typical task could use grows least. Two things differ. A node's room is worth the best use that *all* expected
members could make of it together (`node_worth`), not what each alone could use. And members count at their bid price
(`bid_prices`), so that room for plentiful members is not kept at the expense of scarce ones.

Node classes that are alike for the expected members share their tables. The nodes of an area allow the same kinds, by
selector and VRAM. A group, for the bid prices, is the part of an area with as many cards and about as much CPU and
memory per card.

The worth of a node's free room is the best use that the expected members could make of it. Each card is filled by a
knapsack; all cards of a node share its CPU and memory. A Lagrangian bound couples them without a search per node:
worth(room) = least, over prices, of (CPU and memory at their price + the best filling of each card with what the
members' worth exceeds that price by). Only members whose CPU fits by itself count. All in integers, so the answer is
the same on each machine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.bid_prices import bid_prices
from fleetctl.planner.placement.claims import Claim, Kind
from fleetctl.planner.placement.demand import Expected, expected_kinds
from fleetctl.planner.placement.ledger.card_value import MICRO
from fleetctl.planner.placement.ledger.cards import OfferedCard, share_of
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.problem import WantedClasses, with_nodes
from fleetctl.planner.placement.tally import Flags, Floats, Ints, Tally

MAX_AREAS = 16
MAX_GROUPS = 32
"""With a group per area alone the trace default loses 0.32 points."""
FULLER = 3 * MICRO // 100
"""An empty node costs 0.03 cards more than a full one, which only decides between nearly equal nodes.

Without it the trace default loses 0.08 points.
"""
STEPS = 4
FINEST = 25
"""The finest step between shares, in 1/10000 of a card."""
CPU_PRICES = (0, 25, 50, 75, 100, 125, 150, 200, 300, 500)
"""In percent of the price at which all CPUs together cost as much as all cards together."""
MEMORY_PRICES = (0, 25, 50, 80)
"""The same for memory. On the trace default, only four CPU prices lose 0.11 points, no memory price loses 0.31."""
CPU_STEPS = 16
NEVER = -(1 << 30)
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Areas:
    """`of_class` = the area of each class of nodes; `shares` = by area the GPU share of each kind, -1 = not allowed."""

    of_class: Ints
    shares: tuple[Ints, ...]


def find_areas(tally: Tally) -> Areas:
    """Return the areas of all classes: the most common ones; other classes join the most similar area."""
    kinds, allowed = tally.problem.kinds, tally.allowed.T
    # bytes of the largest card of each class; -1 = unknown, or not asked for
    by_vram = any(claim.vram for claim, _ in kinds)
    memory = [max((card.memory or -1 for card in node.offer.cards), default=-1) if by_vram else -1
              for node in tally.problem.nodes]
    packed = np.packbits(allowed, axis=1)
    keys = [(size, packed[row].tobytes()) for row, size in enumerate(memory)]
    nodes = Counter[tuple[int, bytes]]()
    for key, count in zip(keys, tally.nodes.tolist(), strict=True):
        nodes[key] += count
    common = sorted(nodes, key=lambda key: (-nodes[key], key))[:MAX_AREAS]
    shown = [keys.index(key) for key in common]
    shares = tuple(_shares(kinds, allowed[row], memory[row]) for row in shown)
    of_class = [common.index(key) if key in common else int((allowed[shown] != allowed[row]).sum(axis=1).argmin())
                for row, key in enumerate(keys)]
    return Areas(np.array(of_class, np.int64), shares or (np.full(len(kinds), -1, np.int64),))


def _shares(kinds: Sequence[Kind], allowed: Flags, memory: int) -> Ints:
    """Return the share of each kind on a card of `memory` bytes; -1 = unknown, which holds no VRAM."""
    shares = np.full(len(kinds), -1, np.int64)
    for number in np.flatnonzero(allowed).tolist():
        claim = kinds[number][0]
        if claim.vram <= max(memory, 0):
            shares[number] = claim.gpus or (share_of(claim.vram, memory) if claim.vram else 0)
    return shares


def find_groups(tally: Tally, areas: Areas) -> tuple[Floats, Ints]:
    """Return what is free in each group, and the share that each kind takes there.

    CPUs, bytes and cards, shape (groups, 3); GPU share in 1/10000, -1 = not allowed, shape (groups, kinds). Classes are
    split into at most MAX_GROUPS groups (or one per area), as fine as possible.
    """
    kinds = len(tally.problem.kinds)
    hosted = np.array([tally.max_members(kind) > 0 for kind in range(kinds)], dtype=bool)
    hosted = hosted.reshape(kinds, len(tally.nodes))
    free = np.stack([tally.cpus, tally.memory, tally.free_share], axis=1).clip(min=0)
    cpus, memory, gpus = free.T
    per_card = np.maximum(gpus, 1)
    cards = np.array([len(node.offer.cards) for node in tally.problem.nodes], np.int64)
    exact = np.stack([
        areas.of_class, cards, np.rint(2 * np.log2((cpus + 1) / per_card)).astype(np.int64),
        np.rint(np.log2((memory + 1) / per_card)).astype(np.int64),
    ], axis=1)
    for depth in (4, 3, 2, 1):
        _, group = np.unique(exact[:, :depth], axis=0, return_inverse=True)
        if not len(group) or group.max() < MAX_GROUPS:
            break
    grouped = [np.flatnonzero(group.ravel() == number) for number in range(int(group.max(initial=-1)) + 1)]
    room = np.array([tally.nodes[rows] @ free[rows] for rows in grouped]).reshape(-1, 3) / (SHARE, 1, SHARE)
    shares = [np.where(hosted[:, rows].any(axis=1), areas.shares[int(areas.of_class[rows[0]])], -1) for rows in grouped]
    return room, np.array(shares, np.int64).reshape(len(grouped), kinds)


class RoomWorth:
    """The worth of free room, by offer and area, in millionths of a card; `area_of` = the area of each node.

    Prices are set once, for the ledger as it is then. If nothing runs yet, areas also distinguish how rare a node is.
    Later, what runs is a better guess: with rarity the openb trace lost two points of its GPUs.
    """

    def __init__(self, ledger: Ledger, expected: Sequence[Expected]) -> None:
        self._ledger = ledger
        numbers = Counter(number for node, number in zip(ledger.nodes, ledger.numbers, strict=True) if node.open)
        share = sum(count * sum([card.free_share for card in ledger.numbered(number).cards
                                 if card.free_share and not card.dirty]) for number, count in numbers.items())
        wanted = expected_kinds(expected, share)
        tally = Tally(with_nodes(WantedClasses(tuple([kind for kind, _ in wanted]), (), {}), ledger))
        areas = find_areas(tally)
        claims, counts = [claim for (claim, _), _ in wanted], [count for _, count in wanted]
        worth = bid_prices(claims, np.array(counts), *find_groups(tally, areas))
        cards, cpus, mib = share // SHARE, tally.total(tally.cpus) // SHARE, tally.total(tally.memory) // MIB
        self._max_cards = max((len(node.offer.cards) for node in tally.problem.nodes), default=0)
        self._by_vram = any(claim.vram for claim in claims)
        self._tables = node_worth(claims, worth, areas.shares, self._max_cards, cards * MICRO // cpus if cpus else 0,
                                  cards * MICRO * 1024 // mib if mib else 0)
        self._known: dict[tuple[int, int], tuple[int, int]] = {}
        nothing_runs = all(shape.total == shape.missing for shape in expected)
        rare = rarities(ledger) if nothing_runs else [0] * len(ledger.nodes)
        self.area_of = rare
        for area, node in zip(areas.of_class.tolist(), tally.problem.nodes, strict=True):
            for index in node.nodes:
                self.area_of[index] += area * (STEPS + 1)

    def harm(self, before: int, after: int, area: int) -> int:
        """Return the cost to the rest when one offer becomes another, both by number."""
        if (before, area) not in self._known or (after, area) not in self._known:
            self.prepare([(before, area), (after, area)])
        worth, emptiness = self._known[before, area]
        return worth - self._known[after, area][0] + emptiness

    def prepare(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Compute the worth of many (number of an offer, area) pairs at once."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if not new:
            return
        offers = [self._ledger.numbered(number) for number, _ in new]
        shares = np.zeros((len(new), self._max_cards), np.int64)
        for row, offer in enumerate(offers):
            shares[row, :len(offer.cards)] = [self._usable(card) for card in offer.cards]
        area, rarity = np.divmod(np.array([area for _, area in new], np.int64), STEPS + 1)
        cpus, memory, size = np.array([(offer.free_cpus, offer.free_memory, len(offer.cards)) for offer in offers],
                                      np.int64).clip(min=0).T
        free = shares.sum(axis=1)
        worth = self._tables.of(area, shares, cpus, memory) + rarity * free // SHARE
        emptiness = FULLER * free // (SHARE * np.maximum(size, 1))
        self._known.update(zip(new, zip(worth.tolist(), emptiness.tolist(), strict=True), strict=True))

    def _usable(self, card: OfferedCard) -> int:
        """Return the share of a card that is still of use; limited by its free memory if the fleet claims VRAM."""
        if card.dirty:
            return 0
        share = max(0, card.free_share)
        if self._by_vram and share < SHARE and card.memory and card.free_vram is not None:
            share = min(share, card.free_vram // max(card.memory // SHARE, 1))
        return share


def rarities(ledger: Ledger) -> list[int]:
    """Return how rare each node is, from 0 (most are like it) to STEPS; closed nodes are 0.

    A label counts, relative to its most common value, if its values group nodes; host names do not.
    """
    open_nodes = [index for index, node in enumerate(ledger.nodes) if node.open]
    counts: dict[str, Counter[str]] = {}
    for index in open_nodes:
        for key, value in ledger.nodes[index].labels.items():
            counts.setdefault(key, Counter())[value] += 1
    groups = {key: by_value for key, by_value in counts.items() if 1 < len(by_value) <= len(open_nodes) // 2}
    memory = [max((card.memory or 0 for card in ledger.offer(index).cards), default=0) for index in open_nodes]
    sizes = sorted(memory)
    result = [0] * len(ledger.nodes)
    for index, size in zip(open_nodes, memory, strict=True):
        as_large = len(sizes) - bisect_left(sizes, size)
        labels = ledger.nodes[index].labels
        common = min([as_large / len(sizes), *(by_value[labels[key]] / max(by_value.values())
                                               for key, by_value in groups.items() if key in labels)])
        result[index] = round(STEPS * (1 - common))
    return result


@dataclass(frozen=True, slots=True)
class NodeWorth:
    """Tables of the best filling of a card, and of several whole cards, per area, CPU left, and prices."""

    step: int
    """Share of one level in 1/10000."""
    cpu_prices: Ints
    """Millionths of a card per CPU, shape (prices,)."""
    mib_prices: Ints
    """Millionths of a card per 1024 MiB, shape (prices,)."""
    cpu_steps: Ints
    card: npt.NDArray[np.int32]
    """Shape (levels + 1, areas, CPU steps, prices)."""
    whole: Ints
    """Shape (cards + 1, areas, CPU steps, prices)."""

    def of(self, area: Ints, shares: Ints, cpus: Ints, memory: Ints) -> Ints:
        """Return the worth of free room on some nodes, in millionths of a card, shape (nodes,).

        `area` by node; `shares` = free share of each card, 0 for a missing or dirty card, shape (nodes, cards); CPUs in
        1/10000, memory in bytes.
        """
        step = np.maximum(np.searchsorted(self.cpu_steps, cpus, side="right") - 1, 0)
        whole = shares == SHARE
        level = np.where(whole, 0, shares // self.step)
        total = cpus[:, None] * self.cpu_prices // SHARE + (memory // MIB)[:, None] * self.mib_prices // 1024
        total += self.whole[whole.sum(axis=1), area, step]
        total += self.card[level, area[:, None], step[:, None]].sum(axis=1, dtype=np.int64)
        worth: Ints = total.min(axis=1)
        return worth


def node_worth(
    claims: Sequence[Claim], worth: Ints, shares: Sequence[Ints], cards: int, cpu_price: int, mib_price: int
) -> NodeWorth:
    """Return the tables for the areas of `shares`.

    `worth` of each claim in millionths of a card; `shares` = by area, the GPU share of each claim in 1/10000, 0 = takes
    no card, -1 = not allowed. `cards` = the most cards of a node. At `cpu_price` (per CPU) all CPUs, and at `mib_price`
    (per 1024 MiB) all memory, cost as much as all cards.
    """
    cpus = np.array([claim.cpus for claim in claims], np.int64)
    mib = np.array([-(-claim.memory // MIB) for claim in claims], np.int64)
    sizes = sorted({int(share) for area in shares for share in area if 0 < share < SHARE})
    step = max(FINEST, gcd(SHARE, *sizes))
    cpu_grid = sorted({percent * cpu_price // 100 for percent in CPU_PRICES})
    mib_grid = sorted({percent * mib_price // 100 for percent in MEMORY_PRICES})
    cpu_prices = np.repeat(np.array(cpu_grid, np.int64), len(mib_grid))
    mib_prices = np.tile(np.array(mib_grid, np.int64), len(cpu_grid))
    left = worth[:, None] - cpus[:, None] * cpu_prices // SHARE - mib[:, None] * mib_prices // 1024
    # the amounts of CPU from which more kinds fit, thinned out evenly; the first is -1, at which nothing fits
    distinct = np.unique(np.append(cpus, -1))
    steps = np.unique(distinct[np.arange(CPU_STEPS) * (len(distinct) - 1) // (CPU_STEPS - 1)])
    fits = cpus[:, None] <= steps
    kept = np.where(fits[:, :, None], np.maximum(left, NEVER)[:, None, :], NEVER).astype(np.int32)
    card, whole = _filled(np.stack(shares), kept, step, cards)
    return NodeWorth(step, cpu_prices, mib_prices, steps, card, whole)


def _filled(shares: Ints, worth: npt.NDArray[np.int32], step: int, cards: int) -> tuple[npt.NDArray[np.int32], Ints]:
    """Fill one card level by level, then whole cards, in all areas at once.

    `shares` has shape (areas, kinds), `worth` has shape (kinds, CPU steps, prices).
    """
    best_of = {int(size): np.stack([worth[area == size].max(axis=0, initial=NEVER) for area in shares])
               for size in np.unique(shares[shares > 0])}
    levels, shape = SHARE // step, (len(shares), *worth.shape[1:])
    card = np.zeros((levels + 1, *shape), np.int32)
    for level in range(1, levels + 1):
        card[level] = card[level - 1]
        for size, best in best_of.items():
            before = level - max(1, size // step)
            if size <= SHARE and before >= 0:
                np.maximum(card[level], card[before] + best, out=card[level])
    whole = np.zeros((cards + 1, *shape), np.int64)
    for count in range(1, cards + 1):
        whole[count] = whole[count - 1] + card[levels]
        for size, best in best_of.items():
            if SHARE < size <= count * SHARE:
                np.maximum(whole[count], whole[count - size // SHARE] + best, out=whole[count])
    return card, whole
