"""A mixed-integer linear model, built row by row and solved by HiGHS through SciPy; the only file that loads SciPy.

Runs without a time limit and with a limit on branch-and-bound nodes, so that the answer depends on the model alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from fleetctl.planner.placement.arrays import Floats
from fleetctl.silence import c_silenced

NODE_LIMIT, NODES_TIMES_COLUMNS = 2_000, 1_000_000
"""Branch-and-bound nodes of one solve; and times the number of columns, about 10 s of the processor.

300 nodes short of CPU with 1,800 columns are proven in 305 nodes; 600 mixed ones with 3,200 columns have the same plan
after 300 as after 1,343, where it is proven.
"""
SAFE = 1e-6
"""Added before a bound on an integer is rounded down: the solver's own tolerance must not cost a whole replica."""


class Answer(NamedTuple):
    """`bound`: no integer point has a larger objective. `values`: the best point found; None without one."""

    bound: int
    values: Floats | None


class InfeasibleError(Exception):
    """No point satisfies all rows."""


@dataclass(slots=True)
class LinearModel:
    """Columns with limits, rows `low <= sum(coefficient * column) <= high`. All columns are whole, and at least 0."""

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
        """Add a row with an upper side, unless the limits of its columns already keep it."""
        if sum(value * self.highs[column] for column, value in terms if value > 0) > high:
            self.row(terms, -np.inf, high)

    def copy(self) -> LinearModel:
        """Return a model that can be added to while this one stays as it is."""
        return LinearModel(*([*getattr(self, one.name)] for one in fields(self)))

    def maximise(self, objective: Mapping[int, int], *, relaxed: bool, nodes: int = NODE_LIMIT) -> Answer:
        """Return the largest value of an integer objective; `relaxed` = as a linear program, else in so many `nodes`.

        Raises InfeasibleError. When the solver gives up for another reason, the bound is what the column limits allow.
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
        trivial = sum(factor * self.highs[column] for column, factor in objective.items())
        if value is None or not np.isfinite(value):
            return Answer(int(trivial), result.x)
        return Answer(int(min(trivial, np.floor(-value + SAFE + abs(value) * 1e-9))), result.x)
