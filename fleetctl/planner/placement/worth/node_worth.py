"""The worth of a node's free room: the best use that a fleet's expected members could make of it.

Each card is filled by a knapsack; all cards of a node share its CPU and memory. A Lagrangian bound couples them without
a search per node: worth(room) = least, over prices, of (CPU and memory at their price + the best filling of each card
with what the members' worth exceeds that price by). Only members whose CPU fits by itself count. All in integers, so
the answer is the same on each machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.claims import Claim

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
    sizes = sorted({int(share) for one in shares for share in one if 0 < share < SHARE})
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
    best_of = {int(size): np.stack([worth[one == size].max(axis=0, initial=NEVER) for one in shares])
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
