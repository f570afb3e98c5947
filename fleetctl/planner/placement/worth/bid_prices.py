"""Bid prices: what one more member of each kind is worth to a fleet, beyond the room that it takes.

A linear programme lays the expected members on groups of equal nodes: CPU, memory and GPU by volume, shares of a card
by whole patterns of one card (0.81 and 0.47 do not share one, whatever the volume says). The price of a kind's demand
row is what the fleet gains from one more of it; its worth to a node is the rest of its GPU share: what the room it
takes would have brought elsewhere. Bid prices: Talluri and van Ryzin 1998; patterns: Gilmore and Gomory 1961.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Floats, Ints
from fleetctl.planner.placement.exact.card_packings import Piece, TooManyError, maximal_packings
from fleetctl.planner.placement.worth.central_path import Programme, balanced_prices

MICRO = 1_000_000
"""Worth is counted in millionths of a card."""
GAP = 0.05
"""How far from the best the prices are taken, as a part of it: the nearer, the less a nearly scarce thing costs.

On the trace default, 100 tasks a plan, seed 42: 96.18 % so, 95.60 with the prices of a corner (HiGHS), 93.01 with none.
"""
MOST_PATTERNS = 300
MOST_SIZES = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kind of member that is expected: how many, and what one takes (cards of 1/10000, CPUs of 1/10000, bytes)."""

    count: float
    cpus: int
    memory: int


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are alike: what all of them have together, and what each kind would take of a card here."""

    cards: float
    cpus: float
    """In CPUs."""
    memory: float
    """In bytes."""
    shares: Ints
    """GPU share by kind in 1/10000, whole cards included; 0 = takes no card; -1 = no node of the group can host it."""


def bid_prices(wanted: Sequence[Wanted], groups: Sequence[Group]) -> Ints:
    """Return what one member of each kind is worth to the room it takes, in millionths of a card, shape (kinds,).

    Between 0 and the member's own GPU share; rounded, so that the last bits of the arithmetic do not matter.
    """
    most = np.array([group.shares for group in groups]).reshape(len(groups), len(wanted)).max(axis=0, initial=0)
    cards = sum(group.cards for group in groups)
    if not cards or all((group.shares < 0).all() for group in groups):
        return np.zeros(len(wanted), np.int64)
    # CPU and memory are counted in cards' worth: all CPUs together are as many as all cards together
    cpus, memory = sum(group.cpus for group in groups), sum(group.memory for group in groups)
    units = cards / cpus if cpus else 0.0, cards / memory if memory else 0.0
    use: Floats = np.array([(kind.cpus / SHARE, kind.memory) for kind in wanted]).reshape(-1, 2) * units
    sizes, patterns = _patterns(_weighty_sizes(wanted, groups))
    prices = balanced_prices(_programme(wanted, groups, use, units, sizes, patterns), GAP)[: len(wanted)]
    own = np.where(most > 0, most / SHARE, use.max(axis=1, initial=0.0))
    worth: Ints = np.rint(np.clip(own - prices, 0, own) * MICRO).astype(np.int64)
    return worth


def _programme(
    wanted: Sequence[Wanted], groups: Sequence[Group], use: Floats, units: tuple[float, float], sizes: Sequence[int],
    patterns: Sequence[dict[int, int]],
) -> Programme:
    """Write the programme; rows: demand of each kind, CPU, memory and GPU of each group, sizes, cards.

    `use` = CPU and memory of a member of each kind; without a card it counts for that, so that it is not left out.
    """
    row_of_size = {size: len(wanted) + 3 * len(groups) + number for number, size in enumerate(sizes)}
    cards_row = len(wanted) + 3 * len(groups) + len(sizes)
    cards = sum(group.cards for group in groups)
    amounts = [kind.count for kind in wanted]
    for group in groups:
        amounts += [group.cpus * units[0], group.memory * units[1], group.cards]
    limit = np.array([*np.maximum(amounts, 1e-6 * cards), *[0.0] * len(sizes), cards])
    columns: list[tuple[float, dict[int, float]]] = []
    for place, group in enumerate(groups):
        for number in np.flatnonzero(group.shares >= 0).tolist():
            share, row = int(group.shares[number]), len(wanted) + 3 * place
            entries = {number: 1.0, row: use[number, 0], row + 1: use[number, 1], row + 2: share / SHARE}
            if share in row_of_size:
                entries[row_of_size[share]] = 1.0
            elif share:
                entries[cards_row] = share / SHARE
            columns.append((share / SHARE or use[number].max(), entries))
    for pattern in patterns:
        columns.append((0.0, {**{row_of_size[size]: -float(count) for size, count in pattern.items()}, cards_row: 1.0}))
    return Programme.of(columns, limit)


def _weighty_sizes(wanted: Sequence[Wanted], groups: Sequence[Group]) -> list[int]:
    """Return the shares below one card that most of the demand has, heaviest first."""
    weight: dict[int, float] = {}
    for group in groups:
        for kind, share in zip(wanted, group.shares.tolist(), strict=True):
            if 0 < share < SHARE:
                weight[share] = weight.get(share, 0.0) + kind.count * share
    return sorted(weight, key=lambda size: (-weight[size], size))[:MOST_SIZES]


def _patterns(sizes: Sequence[int]) -> tuple[list[int], list[dict[int, int]]]:
    """Return the heaviest sizes whose packings are not too many, and these: how many of each size one card carries."""
    for count in range(len(sizes), 0, -2):
        kept = sorted(sizes[:count])
        try:
            packings = maximal_packings([Piece(size, 0) for size in kept], SHARE, 0, MOST_PATTERNS)
        except TooManyError:
            continue
        return kept, [{size: many for size, many in zip(kept, one, strict=True) if many} for one in packings]
    return [], []
