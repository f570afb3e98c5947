"""Balanced prices of a linear program: a point on the central path instead of one corner of many.

The simplex method returns a corner. If many are optimal, as when capacity is not scarce everywhere, its prices show
nearly scarce resources as free. A point on the central path (Megiddo 1989) prices each resource by the inverse of its
slack, so a resource has a price before it runs out. NumPy only; equal input gives equal steps. Not for proofs: the
bound has its own solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleetctl.planner.placement.arrays import Floats, Ints

STEPS = 80
CENTRED = 0.3
"""The least product of a variable and its slack, relative to the mean, for a point that counts as on the path."""


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
        place, product, column = self._pairs
        size = len(self.limit)
        return _summed(place, product * weight[column], size * size).reshape(size, size)

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


def _summed(places: Ints, values: Floats, size: int) -> Floats:
    """Sum values by place, in the given order, so that the last bit is always the same."""
    return np.bincount(places, values, size).astype(np.float64, copy=False)


@dataclass(slots=True)
class _Point:
    """x with the slack of each row, and the row prices with the cost of each column beyond its gain; all positive."""

    x: Floats
    slack: Floats
    price: Floats
    excess: Floats

    def mean(self) -> float:
        products = float(self.x @ self.excess + self.slack @ self.price)
        return products / (len(self.x) + len(self.slack))

    def least(self) -> float:
        return float(min((self.x * self.excess).min(), (self.slack * self.price).min()))


def balanced_prices(program: LinearProgram, x: Floats, price: Floats, gap: float) -> Floats:
    """Return the price of each row, shape (rows,), where the duality gap is `gap` of the gain.

    `x` and `price` start strictly inside: A x < limit, price A > gain, all positive.
    """
    at = _Point(x, program.limit - program.times(x), price, program.cost(price) - program.gain)
    for _ in range(STEPS):
        mean, least = at.mean(), at.least()
        wanted = gap * abs(float(program.gain @ at.x)) / (len(at.x) + len(at.slack))
        if mean <= 1.1 * wanted and least > CENTRED * mean:
            break
        try:
            _newton(program, at, max(wanted, mean * (0.2 if least > 0.05 * mean else 0.8)))
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
