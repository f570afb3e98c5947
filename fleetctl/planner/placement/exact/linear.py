"""A mixed-integer linear model, built row by row and solved by HiGHS through SciPy.

It runs without a time limit but with a limit on branch-and-bound nodes, so the answer depends only on the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from fleetctl.planner.placement.tally import Floats
from fleetctl.silence import c_silenced

NODE_LIMIT, NODES_TIMES_COLUMNS = 2_000, 1_000_000
"""The most branch-and-bound nodes of one solve, and the most nodes times columns, about 10 CPU seconds.

A fleet of 300 nodes short of CPU (1,800 columns) is proven in 305 branch-and-bound nodes; 600 mixed nodes (3,200
columns) give the same plan after 300 as after 1,343, where it is proven.
"""
SAFE = 1e-6
"""Added before a bound on an integer is rounded down, so that the solver's tolerance cannot cost a replica."""


class Maximum(NamedTuple):
    """`bound`: no integer point has a larger objective. `values`: the best point found, or None."""

    bound: int
    values: Floats | None


class InfeasibleError(Exception):
    """No point satisfies all rows."""


@dataclass(slots=True)
class LinearModel:
    """Columns with limits, rows `low <= sum(coefficient * column) <= high`. All columns are integers >= 0."""

    highs: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    row_lows: list[float] = field(default_factory=list)
    row_highs: list[float] = field(default_factory=list)
    _rows: list[int] = field(default_factory=list)
    _columns: list[int] = field(default_factory=list)
    _values: list[float] = field(default_factory=list)

    def column(self, high: float) -> int:
        """Add a column between 0 and `high`; return its number."""
        self.highs.append(high)
        self.lows.append(0)
        return len(self.highs) - 1

    def row(self, terms: Iterable[tuple[int, float]], low: float, high: float) -> None:
        """Add a row over (column, coefficient) pairs."""
        number = len(self.row_lows)
        for column, value in terms:
            self._rows.append(number)
            self._columns.append(column)
            self._values.append(value)
        self.row_lows.append(low)
        self.row_highs.append(high)

    def at_most(self, terms: list[tuple[int, float]], high: float) -> None:
        """Add a row with an upper side, unless the limits of its columns already imply it."""
        if sum(value * self.highs[column] for column, value in terms if value > 0) > high:
            self.row(terms, -np.inf, high)

    def copy(self) -> LinearModel:
        """Return an independent copy."""
        return LinearModel(*([*getattr(self, part.name)] for part in fields(self)))

    def maximize(self, objective: Mapping[int, int], *, relaxed: bool, nodes: int = NODE_LIMIT) -> Maximum:
        """Maximize an integer objective, `relaxed` to a linear program or within this many branch-and-bound `nodes`.

        Raises InfeasibleError. If the solver gives up for another reason, the bound is what the column limits allow.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        size = len(self.highs)
        cost = np.zeros(size)
        for column, value in objective.items():
            cost[column] = -value
        matrix = csr_array((self._values, (self._rows, self._columns)), shape=(len(self.row_lows), size))
        rows = [LinearConstraint(matrix, self.row_lows, self.row_highs)] if self.row_lows else []
        with c_silenced():
            result: Any = milp(
                cost, bounds=Bounds(np.array(self.lows), np.array(self.highs)),
                integrality=np.full(size, not relaxed), constraints=rows,
                options={"mip_rel_gap": 0.0, "node_limit": min(nodes, NODES_TIMES_COLUMNS // size)})
        if result.status == 2:
            raise InfeasibleError
        value = result.fun if relaxed else result.mip_dual_bound
        trivial = sum(factor * (self.highs if factor > 0 else self.lows)[column]
                      for column, factor in objective.items())
        if value is None or not np.isfinite(value):
            return Maximum(int(trivial), result.x)
        return Maximum(int(min(trivial, np.floor(-value + SAFE + abs(value) * 1e-9))), result.x)
