"""Bid prices: what one more member of each kind is worth to a fleet, beyond the room that it takes.

A linear programme lays the expected members on groups of equal nodes: CPU, memory and GPU by volume, shares of a card
by whole patterns of one card (0.81 and 0.47 do not share one, whatever the volume says). The price of a kind's demand
row is what the fleet gains from one more of it; its worth to a node is the rest of its GPU share: what the room it
takes would have brought elsewhere. Bid prices: Talluri and van Ryzin 1998; patterns: Gilmore and Gomory 1961.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Floats, Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.exact.card_packings import Piece, TooManyError, maximal_packings
from fleetctl.planner.placement.worth.central_path import Programme, balanced_prices

MICRO = 1_000_000
"""Worth is counted in millionths of a card."""
GAP = 0.05
"""How far from the best the prices are taken, as a part of it: the nearer, the less a nearly scarce thing costs.

On the trace default, 100 tasks a plan, seed 42: 96.17 % so, 95.60 with the prices of a corner (HiGHS), 93.01 with none.
"""
MOST_PATTERNS = 300
MOST_SIZES = 8


Wanted = Sequence[tuple[Claim, float]]
"""What a member of each expected kind claims, and how many there are."""


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


@dataclass(slots=True)
class _Columns:
    """The programme while its columns are written."""

    limit: Floats
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    gain: list[float] = field(default_factory=list)

    def column(self, gain: float, entries: dict[int, float]) -> None:
        self.rows += entries
        self.columns += [len(self.gain)] * len(entries)
        self.values += entries.values()
        self.gain.append(gain)

    def programme(self) -> Programme:
        return Programme(np.array(self.rows, np.int64), np.array(self.columns, np.int64), np.array(self.values),
                         self.limit, np.array(self.gain))


def bid_prices(wanted: Wanted, groups: Sequence[Group]) -> Ints:
    """Return what one member of each kind is worth to the room it takes, in millionths of a card, shape (kinds,).

    Between 0 and the member's own GPU share, 0 for what no node can host; rounded, so that the last bits of the
    arithmetic do not matter.
    """
    most = np.array([group.shares for group in groups]).reshape(len(groups), len(wanted)).max(axis=0, initial=-1)
    cards = sum(group.cards for group in groups)
    if not cards or all((group.shares < 0).all() for group in groups):
        return np.zeros(len(wanted), np.int64)
    units = _Units(cards, sum(group.cpus for group in groups), sum(group.memory for group in groups))
    sizes, patterns = _patterns(_weighty_sizes(wanted, groups))
    columns, demand_columns = _columns(wanted, groups, units, sizes, patterns)
    programme = columns.programme()
    x, price = _inside(programme, len(wanted), len(sizes), demand_columns)
    prices = balanced_prices(programme, x, price, GAP)[: len(wanted)]
    own = np.where(most == 0, [units.floor(claim) for claim, _ in wanted], np.maximum(most, 0) / SHARE)
    return np.rint(np.clip(own - prices, 0, own) * MICRO).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Units:
    """CPU and memory are counted in cards' worth: all CPUs together are as many as all cards together."""

    cards: float
    cpus: float
    memory: float

    def of_cpus(self, cpus: float) -> float:
        return cpus * self.cards / self.cpus if self.cpus else 0.0

    def of_memory(self, memory: float) -> float:
        return memory * self.cards / self.memory if self.memory else 0.0

    def floor(self, claim: Claim) -> float:
        """What a member without a card counts for, so that the programme does not leave it out."""
        return max(self.of_cpus(claim.cpus / SHARE), self.of_memory(claim.memory))


def _columns(
    wanted: Wanted, groups: Sequence[Group], units: _Units, sizes: Sequence[int],
    patterns: Sequence[dict[int, int]],
) -> tuple[_Columns, int]:
    """Write the programme; rows: demand of each kind, CPU, memory and GPU of each group, sizes, cards."""
    row_of_size = {size: len(wanted) + 3 * len(groups) + number for number, size in enumerate(sizes)}
    cards_row = len(wanted) + 3 * len(groups) + len(sizes)
    tiny = 1e-6 * units.cards
    columns = _Columns(np.array(
        [max(count, tiny) for _, count in wanted]
        + [max(amount, tiny) for group in groups
           for amount in (units.of_cpus(group.cpus), units.of_memory(group.memory), group.cards)]
        + [0.0] * len(sizes) + [units.cards]
    ))
    for place, group in enumerate(groups):
        for number in np.flatnonzero(group.shares >= 0).tolist():
            (claim, _), share = wanted[number], int(group.shares[number])
            row = len(wanted) + 3 * place
            entries = {number: 1.0, row: units.of_cpus(claim.cpus / SHARE), row + 1: units.of_memory(claim.memory),
                       row + 2: share / SHARE}
            if share in row_of_size:
                entries[row_of_size[share]] = 1.0
            elif share:
                entries[cards_row] = share / SHARE
            columns.column(share / SHARE or units.floor(claim), entries)
    demand_columns = len(columns.gain)
    for pattern in patterns:
        columns.column(0.0, {**{row_of_size[size]: -float(count) for size, count in pattern.items()}, cards_row: 1.0})
    return columns, demand_columns


def _inside(programme: Programme, kinds: int, sizes: int, demand_columns: int) -> tuple[Floats, Floats]:
    """Return a point strictly inside: few members everywhere, more patterns than they need, prices too high.

    The constants only have to leave some slack everywhere; where the path ends does not depend on them.
    """
    entry = programme.columns < demand_columns
    ways = np.bincount(programme.rows[programme.rows < kinds], minlength=kinds)
    cover = -np.bincount(programme.rows[~entry], programme.values[~entry], len(programme.limit))
    sized = slice(len(programme.limit) - 1 - sizes, len(programme.limit) - 1)
    x = np.zeros(len(programme.gain))
    first = entry & (programme.rows < kinds)
    x[programme.columns[first]] = (0.5 * programme.limit[:kinds] / np.maximum(ways, 1))[programme.rows[first]]
    for _ in range(200):
        if sizes:
            x[demand_columns:] = 0.0
            need = float((programme.times(x)[sized] / cover[sized]).max())
            x[demand_columns:] = 1.5 * max(need, 1e-9 * programme.limit[-1])
        slack = programme.limit - programme.times(x)
        if (slack[: sized.start] > 0.2 * programme.limit[: sized.start]).all() and \
                slack[-1] > 0.1 * programme.limit[-1] and (slack > 0).all():
            break
        x *= 0.8
    price = np.full(len(programme.limit), 0.3)
    if sizes:
        per_pattern = -np.bincount(programme.columns[~entry], np.where(
            programme.rows[~entry] < sized.stop, programme.values[~entry], 0.0), len(programme.gain))
        price[-1] = 1 + 0.3 * float(per_pattern.max())
    excess = programme.cost(price) - programme.gain
    np.maximum.at(price, programme.rows[first], 0.6 - excess[programme.columns[first]])
    return x, price


def _weighty_sizes(wanted: Wanted, groups: Sequence[Group]) -> list[int]:
    """Return the shares below one card that most of the demand has, heaviest first."""
    weight: dict[int, float] = {}
    for group in groups:
        for (_, count), share in zip(wanted, group.shares.tolist(), strict=True):
            if 0 < share < SHARE:
                weight[share] = weight.get(share, 0.0) + count * share
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
