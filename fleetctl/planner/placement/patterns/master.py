"""The master of the column generation: how many nodes of each class use which pattern, and the resulting replicas.

max  sum worth(replica) n      (Gilmore & Gomory 1961, with unequal bins and demand that may stay unserved)
s.t. each item: replicas <= members in patterns and on fixed nodes
     each class of nodes: patterns used <= nodes left
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Floats, Ints
from fleetctl.planner.placement.problem import Problem

Pattern = tuple[tuple[int, int], ...]
"""(item, count on one node) pairs, ascending."""


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of a replica of each class of demand, and the most replicas: first ones of models, further ones."""

    first: Floats
    further: Floats
    most_first: Ints
    most_further: Ints
    scale: float
    """The worth of all replicas of the present priority, to which a gap is relative."""


@dataclass(frozen=True, slots=True)
class Solution:
    """An optimum of the master over its columns. Prices are never negative."""

    value: float
    used: Floats
    """(columns,)"""
    item_price: Floats


@dataclass(slots=True)
class Master:
    """The columns found so far."""

    worth: Worth
    columns: list[tuple[int, Pattern]] = field(default_factory=list)
    """(class of nodes, pattern) pairs."""
    _known: set[tuple[int, Pattern]] = field(default_factory=set)

    def add(self, node_class: int, pattern: Pattern) -> bool:
        """Add a column; False if it exists already."""
        if not pattern or (node_class, pattern) in self._known:
            return False
        self._known.add((node_class, pattern))
        self.columns.append((node_class, pattern))
        return True

    def clear(self) -> list[tuple[int, Pattern]]:
        """Remove all columns and return them."""
        columns, self.columns, self._known = self.columns, [], set()
        return columns

    def solve(self, left: Ints, supply: Ints) -> Solution | None:
        """Solve over the columns; `left` = free nodes of each class, `supply` = members of each item on fixed nodes."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        items, worth = len(supply), self.worth
        offset, total = 2 * items, 2 * items + len(self.columns)
        entries = [(item, item + part, 1) for part in (0, items) for item in range(items)]
        for place, (node_class, pattern) in enumerate(self.columns, start=offset):
            entries += [(item, place, -count) for item, count in pattern]
            entries.append((items + node_class, place, 1))
        rows, columns, values = np.array(entries, np.int64).reshape(-1, 3).T
        matrix = csr_array((values.astype(np.float64), (rows, columns)), shape=(items + len(left), total))
        none = np.zeros(len(self.columns))
        upper = np.concatenate([worth.most_first, worth.most_further, none + np.inf])
        solved = linprog(-np.concatenate([worth.first, worth.further, none]), A_ub=matrix,
                         b_ub=np.concatenate([supply, left]), bounds=np.column_stack([np.zeros(total), upper]),
                         method="highs-ds")
        if solved.status != 0:
            return None
        prices = np.maximum(-np.asarray(solved.ineqlin.marginals)[:items], 0.0)
        return Solution(float(-solved.fun), solved.x[offset:], prices)


REPLICA = 1e-2
"""The worth of a replica in addition to its GPU share, in cards.

Measured with `scale --kind vram --nodes 500 --replicas 2500`, where each GPU share finds a place: 2,410 replicas with
1e-4, all 2,500 with 1e-2. On the traces neither changes more than 0.003 points.
"""
BELOW = 1e-5
EXCHANGED = 2
"""How many priorities above the present one may reach their values with other replicas than so far."""


def stage_worth(problem: Problem, priority: int, reached: Sequence[int]) -> Worth:
    """Return the worth of replicas while one priority is maximized; `reached` = replicas placed, by class of demand."""
    most_cards = float(max((node.offer.free_gpus for node in problem.nodes), default=0)) / SHARE + 1
    ranks = problem.priorities
    first, further, most_first, most_further = [], [], [], []
    scale = 0.0
    for demand, have in zip(problem.demands, reached, strict=True):
        size = sum(gang.size * gang.copies for gang in demand.gangs)
        own = demand.gpu_units / SHARE + REPLICA
        above = sum(priority < other <= demand.priority for other in ranks)
        top = demand.missing
        if above and (have == top or above > EXCHANGED or not demand.gpu_units):
            top = have
            values = (2 * most_cards) ** min(above, EXCHANGED) * size, (2 * most_cards) ** min(above, EXCHANGED) * size
        elif above:
            values = (2 * most_cards) ** above * (own + most_cards * size), (2 * most_cards) ** above * own
        elif demand.priority == priority:
            values = own + most_cards * size, own
            scale += own * demand.missing
        else:
            values = BELOW * (own + most_cards * size), BELOW * own
        served = min(top, demand.unserved)
        first.append(values[0])
        further.append(values[1])
        most_first.append(served)
        most_further.append(top - served)
    return Worth(np.array(first), np.array(further), np.array(most_first, np.int64), np.array(most_further, np.int64),
                 scale)
