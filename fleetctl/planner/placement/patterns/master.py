"""The master of the column generation: how many nodes of each class use which pattern, and what replicas that gives.

max  sum worth(replica) n      (Gilmore & Gomory 1961, with unequal bins and demand that may stay open)
s.t. every item: what replicas and label-bound gangs need <= what patterns and the nodes already settled hold
     every class of nodes: patterns used <= nodes left
     every class of demand with label-bound gangs: its gangs <= those placed over all values of the label
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fleetctl.planner.placement.arrays import Flags, Floats, Ints
from fleetctl.planner.placement.patterns.covering import Covering, Needs
from fleetctl.planner.placement.problem import Problem

Pattern = tuple[tuple[int, int], ...]
"""(item, how many on one node), ascending."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What one replica of each class of demand is worth, and how many there may be: the first ones of models without
    any, and further ones."""

    first: Floats
    further: Floats
    most_first: Ints
    most_further: Ints
    scale: float
    """What all replicas of the stage in question are worth by themselves: the yardstick of a gap."""


@dataclass(frozen=True, slots=True)
class Solution:
    """An optimum of the master over its columns. Prices are never negative."""

    value: float
    used: Floats
    """(columns,)"""
    replicas: Floats
    item_price: Floats
    class_price: Floats


@dataclass(slots=True)
class Master:
    """Columns found so far, and the rows that do not change."""

    problem: Problem
    covering: Covering
    worth: Worth
    columns: list[tuple[int, Pattern]] = field(default_factory=list)
    """(class of nodes, pattern)."""
    _known: set[tuple[int, Pattern]] = field(default_factory=set)
    _fixed: _Entries | None = None

    def add(self, node_class: int, pattern: Pattern) -> bool:
        """Add a column; False when it is known."""
        if not pattern or (node_class, pattern) in self._known:
            return False
        self._known.add((node_class, pattern))
        self.columns.append((node_class, pattern))
        return True

    def keep(self, chosen: Flags) -> None:
        """Forget all columns but the chosen."""
        self.columns = [column for column, kept in zip(self.columns, chosen, strict=True) if kept]
        self._known = set(self.columns)

    def solve(self, left: Ints, supply: Ints) -> Solution | None:
        """Solve over the columns, with `left` nodes of each class and `supply` of each item settled already."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        rows = self._rows()
        demands, items = len(self.problem.demands), len(self.covering.items)
        column_entries = _Entries()
        offset = rows.columns
        for place, (node_class, pattern) in enumerate(self.columns):
            for item, count in pattern:
                column_entries.put(item, offset + place, -count)
            column_entries.put(rows.rows + node_class, offset + place, 1)
        total = offset + len(self.columns)
        column_entries.rows = rows.rows + len(left)
        height = column_entries.rows
        matrix = csr_array(
            (np.array(rows.value + column_entries.value, np.float64),
             (np.array(rows.row + column_entries.row), np.array(rows.column + column_entries.column))),
            shape=(height, total))
        limits = np.zeros(height)
        limits[:items] = supply
        limits[rows.rows:rows.rows + len(left)] = left
        cost = np.zeros(total)
        cost[:demands], cost[demands:2 * demands] = -self.worth.first, -self.worth.further
        upper = np.full(total, np.inf)
        upper[:demands] = self.worth.most_first
        upper[demands:2 * demands] = self.worth.most_further
        solved = linprog(cost, A_ub=matrix, b_ub=limits, bounds=np.column_stack([np.zeros(total), upper]),
                         method="highs-ds")
        if solved.status != 0:
            return None
        prices = -np.asarray(solved.ineqlin.marginals)
        return self._read(solved.x, -solved.fun, prices[:items], prices[rows.rows:])

    def _read(self, x: Floats, value: float, item_price: Floats, class_price: Floats) -> Solution:
        demands = len(self.problem.demands)
        return Solution(float(value), x[self._rows().columns:], x[:demands] + x[demands:2 * demands],
                        np.maximum(item_price, 0.0), np.maximum(class_price, 0.0))

    def _rows(self) -> _Entries:
        if self._fixed is None:
            self._fixed = _demand_entries(self.problem, self.covering)
        return self._fixed


@dataclass(slots=True)
class _Entries:
    """Entries of a sparse matrix, and its size so far."""

    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    rows: int = 0
    columns: int = 0

    def put(self, row: int, column: int, value: float) -> None:
        self.row.append(row)
        self.column.append(column)
        self.value.append(value)

    def put_needs(self, needs: Needs, column: int) -> None:
        for item, count in needs:
            self.put(item, column, count)


def _demand_entries(problem: Problem, covering: Covering) -> _Entries:
    demands, entries = len(problem.demands), _Entries()
    for number in range(demands):
        entries.put_needs(covering.needs[number], number)
        entries.put_needs(covering.needs[number], demands + number)
    entries.columns, entries.rows = 2 * demands, len(covering.items)
    link: dict[tuple[int, int], int] = {}
    for bound in covering.bound_gangs:
        key = bound.demand, bound.gang
        if key not in link:
            link[key] = entries.rows
            entries.rows += 1
            copies = problem.demands[bound.demand].gangs[bound.gang].copies
            entries.put(link[key], bound.demand, copies)
            entries.put(link[key], demands + bound.demand, copies)
        entries.put(link[key], entries.columns, -1)
        entries.put_needs(bound.needs, entries.columns)
        entries.columns += 1
    return entries
