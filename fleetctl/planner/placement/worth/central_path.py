"""Balanced prices of a linear programme: a point on the central path instead of one corner of many.

The simplex method answers with one corner; where many are optimal, as they are when capacity is not scarce everywhere,
its prices say that nearly scarce things are free. A point on the central path (Megiddo 1989) prices each resource by
the inverse of its slack, so what is about to run out costs something before it does. Newton's method leads there from
any point (infeasible primal-dual path following; Wright 1997). NumPy only: small plans do not load SciPy, whose
solvers end in a corner. Not for proofs: the bound has its own solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetctl.planner.placement.arrays import Floats, Ints

STEPS = 80
CENTRED = 0.3
"""Least product of a variable and its slack, as a part of the mean, that counts as being on the path."""
EXACT = 1e-9
"""How far rows may be from holding, as a part of the largest limit."""


@dataclass(frozen=True)
class Programme:
    """Maximise gain @ x subject to A x <= limit, x >= 0; A by the entries of each column, filled up with zeros."""

    rows: Ints
    """Shape (columns, most entries of a column)."""
    values: Floats
    limit: Floats
    gain: Floats

    @classmethod
    def of(cls, columns: Sequence[tuple[float, dict[int, float]]], limit: Floats) -> Programme:
        """Return the programme of columns: the gain of each, and its entries by row."""
        width = max(len(entries) for _, entries in columns)
        rows, values = np.zeros((len(columns), width), np.int64), np.zeros((len(columns), width))
        for number, (_, entries) in enumerate(columns):
            rows[number, :len(entries)], values[number, :len(entries)] = list(entries), list(entries.values())
        return cls(rows, values, limit, np.array([gain for gain, _ in columns]))

    def times(self, x: Floats) -> Floats:
        """Return A x."""
        return _summed(self.rows, self.values * x[:, None], len(self.limit))

    def cost(self, y: Floats) -> Floats:
        """Return what one unit of each column costs at row prices y: y A."""
        cost: Floats = (self.values * y[self.rows]).sum(axis=1)
        return cost

    def normal(self, weight: Floats) -> Floats:
        """Return A diag(weight) A' as a dense matrix, shape (rows, rows)."""
        size = len(self.limit)
        places = self.rows[:, :, None] * size + self.rows[:, None, :]
        products = self.values[:, :, None] * self.values[:, None, :] * weight[:, None, None]
        return _summed(places, products, size * size).reshape(size, size)


def _summed(places: Ints, values: Floats, size: int) -> Floats:
    """Add values up by place; in the order given, so that the last bit is always the same."""
    return np.bincount(places.ravel(), values.ravel(), size).astype(np.float64, copy=False)


def balanced_prices(programme: Programme, gap: float) -> Floats:
    """Return the price of each row, shape (rows,), where the duality gap is `gap` of the gain.

    On the way x, the slack of each row, its price, and the excess of what a column costs over its gain stay positive.
    """
    limit, gain = programme.limit, programme.gain
    x, slack, price, excess = np.ones(len(gain)), np.maximum(limit, 1.0), np.ones(len(limit)), np.ones(len(gain))
    for _ in range(STEPS):
        off_limit = limit - programme.times(x) - slack
        off_gain = gain + excess - programme.cost(price)
        products = np.concatenate([x * excess, slack * price])
        mean, least = float(products.mean()), float(products.min())
        wanted = gap * abs(float(gain @ x)) / len(products)
        holds = np.abs(off_limit).max() <= EXACT * limit.max() and np.abs(off_gain).max() <= EXACT
        if holds and mean <= 1.1 * wanted and least > CENTRED * mean:
            break
        product = max(wanted, mean * (0.2 if least > 0.05 * mean else 0.8))
        by_x, by_row = product - x * excess, product - slack * price
        matrix = programme.normal(x / excess)
        matrix[np.diag_indices_from(matrix)] += slack / price
        try:
            more_price = np.linalg.solve(
                matrix, programme.times((by_x + x * off_gain) / excess) + by_row / price - off_limit).astype(np.float64)
        except np.linalg.LinAlgError:
            break  # amounts too far apart for the arithmetic; the prices so far do
        more_excess = programme.cost(more_price) - off_gain
        more_x, more_slack = (by_x - x * more_excess) / excess, (by_row - slack * more_price) / price
        primal = min(_length(x, more_x), _length(slack, more_slack))
        dual = min(_length(price, more_price), _length(excess, more_excess))
        x, slack = x + primal * more_x, slack + primal * more_slack
        price, excess = price + dual * more_price, excess + dual * more_excess
    return price


def _length(value: Floats, step: Floats) -> float:
    """Return how far to go along `step` so that `value` stays positive, at most the whole of it."""
    falling = step < 0
    return min(1.0, 0.9 * float((-value[falling] / step[falling]).min())) if falling.any() else 1.0
