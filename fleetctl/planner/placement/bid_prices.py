"""Bid prices: the value of one more member of each kind to a fleet, and so the worth of the room it takes.

A linear program places the expected members on groups of equal nodes: CPU, memory and GPU by volume, shares of a card
by patterns of one card (0.81 and 0.47 do not share one, whatever the volume). The price of a kind's demand row is the
gain from one more member of it. What remains of its GPU share is the worth to a node: the gain elsewhere of the room it
takes. Bid prices: Talluri and van Ryzin 1998.

The prices are those of a point on the central path (Megiddo 1989) instead of a corner, which the simplex method
returns. If many corners are optimal, as when capacity is not scarce everywhere, the prices of one show nearly scarce
resources as free. On the path each resource costs the inverse of its slack, so it has a price before it runs out. NumPy
only; equal input gives equal steps. Not for proofs: the bound has its own solver.

Packings of one card also bound shared cards there. Counting shares alone, 0.5 + 0.5 free would hold 0.8; packings avoid
that (Gilmore and Gomory, "A linear programming approach to the cutting-stock problem", 1961).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.card_value import MICRO
from fleetctl.planner.placement.tally import Floats, Ints

GAP = 0.05
"""The relative duality gap at which prices are taken; with a smaller gap, nearly scarce resources cost less.

Trace default, 100 tasks per plan, seed 42: 96.17 % with it, 95.60 with the prices of a corner (HiGHS), 93.01 without
prices.
"""
MAX_PATTERNS = 300
PACKING_STEPS = 20_000
"""The most steps of a search for all packings of one card."""
MAX_SIZES = 8
STEPS = 80
CENTRED = 0.3
"""The least product of a variable and its slack, relative to the mean, for a point that counts as on the path."""


def bid_prices(claims: Sequence[Claim], counts: Floats, room: Floats, shares: Ints) -> Ints:
    """Return the worth of one member of each kind to the room it takes, in millionths of a card, shape (kinds,).

    Between 0 and the member's own GPU share, 0 if no node can host it; rounded, so that the last bits of the arithmetic
    do not matter. `counts` = expected members of each kind; `room` = total CPUs, bytes and cards of each group of
    similar nodes, shape (groups, 3); `shares` = GPU share by group and kind in 1/10000, whole cards too, 0 = takes no
    card, -1 = no node of the group can host it.
    """
    need = np.array([(claim.cpus / SHARE, claim.memory) for claim in claims]).reshape(-1, 2)
    cpus, memory, cards = room.sum(axis=0)
    if not cards or (shares < 0).all():
        return np.zeros(len(claims), np.int64)
    # CPU and memory are scaled so that all CPUs, all memory and all cards are equal amounts
    scale = cards / np.array([cpus or np.inf, memory or np.inf, cards])
    sizes, packings = _packings(counts, shares)
    program = _program(counts, room * scale, need * scale[:2], shares, sizes, packings)
    x, price = _interior_point(program, len(claims), len(sizes), len(program.gain) - len(packings))
    prices = balanced_prices(program, x, price, GAP)[: len(claims)]
    share = shares.max(axis=0)
    own = np.where(share == 0, (need * scale[:2]).max(axis=1), np.maximum(share, 0) / SHARE)
    worth: Ints = np.rint(np.clip(own - prices, 0, own) * MICRO).astype(np.int64)
    return worth


def _program(counts: Floats, room: Floats, need: Floats, shares: Ints, sizes: Ints, packings: Ints) -> LinearProgram:
    """Build the program; rows: demand of each kind, CPU, memory and GPU of each group, sizes, cards.

    The gain of a member without a card is the resource it needs most, so that the program does not leave it out.
    """
    kinds, cards = len(counts), float(room[:, 2].sum())
    first_size = kinds + room.size
    rows, values, gain, width = list[Ints](), list[Floats](), list[Floats](), list[int]()
    for index, group in enumerate(shares):
        hosted = np.flatnonzero(group >= 0)
        share, known = group[hosted] / SHARE, np.isin(group[hosted], sizes)
        own = np.tile(kinds + 3 * index + np.arange(3), (len(hosted), 1))
        of_cards = first_size + np.where(known, np.searchsorted(sizes, group[hosted]), len(sizes))
        rows.append(np.column_stack([hosted, own, of_cards]).ravel())
        values.append(np.column_stack([share >= 0, need[hosted], share, np.where(known, 1.0, share)]).ravel())
        gain.append(np.where(share > 0, share, need[hosted].max(axis=1)))
        width += [5] * len(hosted)
    rows.append(np.tile(first_size + np.arange(len(sizes) + 1), len(packings)))
    values.append(np.column_stack([-packings, np.ones(len(packings))]).ravel())
    gain.append(np.zeros(len(packings)))
    width += [len(sizes) + 1] * len(packings)
    limit = np.concatenate([np.concatenate([counts, room.ravel()]).clip(min=1e-6 * cards), 0.0 * sizes, [cards]])
    row, column, value = np.concatenate(rows), np.repeat(np.arange(len(width)), width), np.concatenate(values)
    used = value != 0
    return LinearProgram(row[used], column[used], value[used], limit, np.concatenate(gain))


def _interior_point(program: LinearProgram, kinds: int, sizes: int, demand_columns: int) -> tuple[Floats, Floats]:
    """Return a strictly interior point: few members everywhere, more patterns than needed, prices that are too high.

    The constants only have to leave some slack everywhere; the end of the path does not depend on them.
    """
    entry = program.columns < demand_columns
    groups = np.bincount(program.rows[program.rows < kinds], minlength=kinds)
    cover = -np.bincount(program.rows[~entry], program.values[~entry], len(program.limit))
    sized = slice(len(program.limit) - 1 - sizes, len(program.limit) - 1)
    x = np.zeros(len(program.gain))
    first = entry & (program.rows < kinds)
    x[program.columns[first]] = (0.5 * program.limit[:kinds] / np.maximum(groups, 1))[program.rows[first]]
    for _ in range(200):
        if sizes:
            x[demand_columns:] = 0.0
            need = float((program.times(x)[sized] / cover[sized]).max())
            x[demand_columns:] = 1.5 * max(need, 1e-9 * program.limit[-1])
        slack = program.limit - program.times(x)
        enough = slack[: sized.start] > 0.2 * program.limit[: sized.start]
        if enough.all() and slack[-1] > 0.1 * program.limit[-1] and (slack > 0).all():
            break
        x *= 0.8
    price = np.full(len(program.limit), 0.3)
    if sizes:
        per_pattern = -np.bincount(program.columns[~entry], np.where(
            program.rows[~entry] < sized.stop, program.values[~entry], 0.0), len(program.gain))
        price[-1] = 1 + 0.3 * float(per_pattern.max())
    excess = program.cost(price) - program.gain
    np.maximum.at(price, program.rows[first], 0.6 - excess[program.columns[first]])
    return x, price


def _packings(counts: Floats, shares: Ints) -> tuple[Ints, Ints]:
    """Return the shares below one card with most demand, and the packings: how many of each are on one card.

    The lightest ones are left out until there are not too many packings.
    """
    weight: dict[int, float] = {}
    for group in shares.tolist():
        for count, share in zip(counts.tolist(), group, strict=True):
            if 0 < share < SHARE:
                weight[share] = weight.get(share, 0.0) + count * share
    sizes = sorted(weight, key=lambda size: (-weight[size], size))[:MAX_SIZES]
    for count in range(len(sizes), 0, -2):
        kept = sorted(sizes[:count])
        with suppress(TooManyError):
            packings = maximal_packings([CardShare(size, 0) for size in kept], SHARE, 0, MAX_PATTERNS)
            return np.array(kept, np.int64), np.array(packings, np.int64)
    return np.zeros(0, np.int64), np.zeros((0, 0), np.int64)


@dataclass(frozen=True)
class LinearProgram:
    """Maximise gain @ x subject to A x <= limit, x >= 0; A is given by its entries (row, column, value)."""

    rows: Ints
    columns: Ints
    values: Floats
    limit: Floats
    gain: Floats

    def times(self, x: Floats) -> Floats:
        """Return A x."""
        return _summed(self.rows, self.values * x[self.columns], len(self.limit))

    def cost(self, y: Floats) -> Floats:
        """Return the cost of one unit of each column at row prices y: y A."""
        return _summed(self.columns, self.values * y[self.rows], len(self.gain))

    def normal(self, weight: Floats) -> Floats:
        """Return A diag(weight) A' as a dense matrix, shape (rows, rows)."""
        index, product, column = self._pairs
        size = len(self.limit)
        return _summed(index, product * weight[column], size * size).reshape(size, size)

    @cached_property
    def _pairs(self) -> tuple[Ints, Floats, Ints]:
        """For each two entries of one column: the index of their product in the matrix, the product, and the column."""
        order = np.argsort(self.columns, kind="stable")
        rows, columns, values = self.rows[order], self.columns[order], self.values[order]
        count = np.bincount(columns, minlength=len(self.gain))
        first = np.repeat(np.arange(len(rows)), count[columns])
        inside = np.arange(len(first)) - np.repeat(np.cumsum(count[columns]) - count[columns], count[columns])
        second = (np.cumsum(count) - count)[columns[first]] + inside
        return rows[first] * len(self.limit) + rows[second], values[first] * values[second], columns[first]


def _summed(indices: Ints, values: Floats, size: int) -> Floats:
    """Sum values by place, in the given order, so that the last bit is always the same."""
    return np.bincount(indices, values, size).astype(np.float64, copy=False)


@dataclass(slots=True)
class _Point:
    """x with the slack of each row, and the row prices with the cost of each column beyond its gain; all positive."""

    x: Floats
    slack: Floats
    price: Floats
    excess: Floats


def balanced_prices(program: LinearProgram, x: Floats, price: Floats, gap: float) -> Floats:
    """Return the price of each row, shape (rows,), where the duality gap is `gap` of the gain.

    `x` and `price` start strictly inside: A x < limit, price A > gain, all positive.
    """
    at = _Point(x, program.limit - program.times(x), price, program.cost(price) - program.gain)
    products = len(at.x) + len(at.slack)
    for _ in range(STEPS):
        mean = float(at.x @ at.excess + at.slack @ at.price) / products
        minimum = float(min((at.x * at.excess).min(), (at.slack * at.price).min()))
        wanted = gap * abs(float(program.gain @ at.x)) / products
        if mean <= 1.1 * wanted and minimum > CENTRED * mean:
            break
        try:
            _newton(program, at, max(wanted, mean * (0.2 if minimum > 0.05 * mean else 0.8)))
        except np.linalg.LinAlgError:
            break  # amounts too far apart for the arithmetic; the prices so far are valid and good enough
    return at.price


def _newton(program: LinearProgram, at: _Point, product: float) -> None:
    """Take one damped step towards the point of the path where each variable times its slack is `product`."""
    off_x, off_row = product - at.x * at.excess, product - at.slack * at.price
    matrix = program.normal(at.x / at.excess)
    matrix[np.diag_indices_from(matrix)] += at.slack / at.price
    price: Floats = np.linalg.solve(matrix, program.times(off_x / at.excess) + off_row / at.price).astype(np.float64)
    excess = program.cost(price)
    x: Floats = (off_x - at.x * excess) / at.excess
    slack: Floats = (off_row - at.slack * price) / at.price
    primal = min(_length(at.x, x), _length(at.slack, slack))
    dual = min(_length(at.price, price), _length(at.excess, excess))
    at.x, at.slack = at.x + primal * x, at.slack + primal * slack
    at.price, at.excess = at.price + dual * price, at.excess + dual * excess


def _length(value: Floats, step: Floats) -> float:
    """Return which fraction of `step`, at most 1, keeps `value` positive."""
    falling = step < 0
    return min(1.0, 0.9 * float((-value[falling] / step[falling]).min())) if falling.any() else 1.0


class CardShare(NamedTuple):
    """A share of one card (1/10000) with its memory (bytes; 0 = none claimed)."""

    share: int
    vram: int


class TooManyError(Exception):
    """More packings than the limit."""


def maximal_packings(pieces: Sequence[CardShare], share: int, vram: int, limit: int) -> tuple[tuple[int, ...], ...]:
    """Return the maximal packings of a card with `share` and `vram` free, as counts by piece.

    Each packing of the card is contained in one of them. Raises TooManyError beyond `limit` packings.
    """
    steps = iter(range(PACKING_STEPS))
    packings: list[tuple[int, ...]] = []
    order = sorted((index for index, piece in enumerate(pieces) if _maximum(piece, share, vram)),
                   key=lambda index: (-pieces[index].share, -pieces[index].vram, index))
    ordered = [pieces[index] for index in order]
    for counts in _fillings(ordered, 0, share, vram, steps):
        if len(packings) == limit:
            raise TooManyError
        by_piece = dict(zip(order, counts, strict=True))
        packings.append(tuple(by_piece.get(index, 0) for index in range(len(pieces))))
    return tuple(sorted(packings))


def _fillings(
    pieces: Sequence[CardShare], start: int, share: int, vram: int, steps: Iterator[int]
) -> Iterator[tuple[int, ...]]:
    if next(steps, None) is None:
        raise TooManyError
    if start == len(pieces):
        if not any(_maximum(piece, share, vram) for piece in pieces):
            yield ()
        return
    piece = pieces[start]
    for count in range(_maximum(piece, share, vram), -1, -1):
        for others in _fillings(pieces, start + 1, share - count * piece.share, vram - count * piece.vram, steps):
            yield (count, *others)


def _maximum(piece: CardShare, share: int, vram: int) -> int:
    count = share // piece.share
    return min(count, max(vram, 0) // piece.vram) if piece.vram else count
