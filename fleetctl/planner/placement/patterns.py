"""Patterns: column generation for odd sizes, shared cards, and nodes whose CPU or memory runs out before the cards.

A pattern is what one node of a class may hold. A linear master over the patterns found so far gives prices, pricing
finds better patterns at these prices, and a dive rounds the fractions to whole nodes (Gilmore & Gomory 1961; Vance et
al. 1994). Priorities are served one after another, each keeping what higher ones have reached.

Only for replicas of one member; gangs are placed before by other tiers. An item is a member of one class of demand.

A solution is rounded to whole nodes: after each one the whole uses of patterns are fixed, the columns are cut to the
demand that is left (proper patterns), and the smaller problem is solved again with new columns, down to the last node.
See Sadykov et al., "Primal heuristics for branch and price: the assets of diving methods" (2019).

The master: how many nodes of each class use which pattern, and the resulting replicas.

max  sum worth(replica) n      (Gilmore & Gomory 1961, with unequal bins and demand that may stay unserved)
s.t. each item: replicas <= members in patterns and on fixed nodes
     each class of nodes: patterns used <= nodes left
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.objective import layout_levels
from fleetctl.planner.placement.pattern_pricing import Pricer
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.realize import PackingLayout, PlacedMember, creation_order
from fleetctl.planner.placement.tally import Floats, Ints, Tally

Pattern = tuple[tuple[int, int], ...]
"""(item, count on one node) pairs, ascending."""
REPLICA = 1e-2
"""The worth of a replica in addition to its GPU share, in cards.

Measured with `scale --kind vram --nodes 500 --replicas 2500`, where each GPU share finds a place: 2,410 replicas with
1e-4, all 2,500 with 1e-2. On the traces neither changes more than 0.003 points.
"""
BELOW = 1e-5
EXCHANGED = 2
"""How many priorities above the present one may reach their values with other replicas than so far."""
GAP, SMOOTH, COLUMNS_A_ROUND, ROUNDS = 3e-4, 0.6, 4, 90
"""The relative gap to which a master is solved, the weight of new prices, the columns per class and round, the most
rounds.

On the trace gpushare100 (seed 42, 89.102 % placed): a gap of 1e-3 loses 0.002 points, no smoothing 0.004, one column
0.006 and 1 s; 30 rounds are enough.
"""


@dataclass(frozen=True, slots=True)
class StageWorth:
    """The worth of a replica of each class of demand, and the most replicas: first ones of models, further ones."""

    first: Floats
    further: Floats
    max_first: Ints
    max_further: Ints
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

    worth: StageWorth
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
        for index, (node_class, pattern) in enumerate(self.columns, start=offset):
            entries += [(item, index, -count) for item, count in pattern]
            entries.append((items + node_class, index, 1))
        rows, columns, values = np.array(entries, np.int64).reshape(-1, 3).T
        matrix = csr_array((values.astype(np.float64), (rows, columns)), shape=(items + len(left), total))
        none = np.zeros(len(self.columns))
        upper = np.concatenate([worth.max_first, worth.max_further, none + np.inf])
        solved = linprog(-np.concatenate([worth.first, worth.further, none]), A_ub=matrix,
                         b_ub=np.concatenate([supply, left]), bounds=np.column_stack([np.zeros(total), upper]),
                         method="highs-ds")
        if solved.status != 0:
            return None
        prices = np.maximum(-np.asarray(solved.ineqlin.marginals)[:items], 0.0)
        return Solution(float(-solved.fun), solved.x[offset:], prices)


def stage_worth(problem: Problem, priority: int, reached: Sequence[int]) -> StageWorth:
    """Return the worth of replicas while one priority is maximized; `reached` = replicas placed, by class of demand."""
    max_cards = float(max((node.offer.free_gpus for node in problem.nodes), default=0)) / SHARE + 1
    ranks = problem.priorities
    first, further, max_first, max_further = [], [], [], []
    scale = 0.0
    for demand, have in zip(problem.demands, reached, strict=True):
        size = sum(gang.size * gang.copies for gang in demand.gangs)
        own = demand.gpu_units / SHARE + REPLICA
        above = sum(priority < other <= demand.priority for other in ranks)
        top = demand.missing
        if above and (have == top or above > EXCHANGED or not demand.gpu_units):
            top = have
            values = (2 * max_cards) ** min(above, EXCHANGED) * size, (2 * max_cards) ** min(above, EXCHANGED) * size
        elif above:
            values = (2 * max_cards) ** above * (own + max_cards * size), (2 * max_cards) ** above * own
        elif demand.priority == priority:
            values = own + max_cards * size, own
            scale += own * demand.missing
        else:
            values = BELOW * (own + max_cards * size), BELOW * own
        served = min(top, demand.unserved)
        first.append(values[0])
        further.append(values[1])
        max_first.append(served)
        max_further.append(top - served)
    return StageWorth(np.array(first), np.array(further), np.array(max_first, np.int64),
                      np.array(max_further, np.int64), scale)


def pack_by_patterns(problem: Problem, *, steps: int, incumbent: PackingLayout | None = None) -> PackingLayout:
    """Return a layout that is nearly best by the objective; the last one found if none is better than `incumbent`.

    All replicas have one member. `steps` = the most pricings of a class of nodes, which take most of the time. A layout
    lacks members that no order of creation takes; the worse layout may win once these are placed elsewhere.
    """
    tally = Tally(problem)
    pricers = [Pricer(tally, row) for row in range(len(problem.nodes))]
    best = layout = incumbent or PackingLayout((0,) * len(problem.demands), {})
    for priority in problem.priorities:
        if all(count >= demand.missing for demand, count in zip(problem.demands, best.replicas, strict=True)
               if demand.priority >= priority):
            continue
        worth = stage_worth(problem, priority, best.replicas)
        master = Master(worth)
        dive = Dive(master, pricers, np.array([len(node.nodes) for node in problem.nodes], np.int64),
                    np.zeros(len(problem.demands), np.int64), worth.max_first + worth.max_further, steps)
        for number, pattern in _patterns_of(problem, best):
            master.add(number, pattern)
        dive.run()
        steps = dive.steps
        layout = _layout(problem, dive.used)
        if layout_levels(problem, layout.replicas) > layout_levels(problem, best.replicas):
            best = layout
        if steps <= 0:
            break
    return layout if best is incumbent else best


def _patterns_of(problem: Problem, layout: PackingLayout) -> Iterator[tuple[int, Pattern]]:
    """Yield the pattern of each node that a layout uses, with the number of its class."""
    for number, node_class in enumerate(problem.nodes):
        for node in node_class.nodes:
            held = Counter(piece.demand for piece in layout.assignments.get(node, ()))
            if held:
                yield number, tuple(sorted(held.items()))


def _layout(problem: Problem, used: Mapping[tuple[int, Pattern], int]) -> PackingLayout:
    """Make a layout of patterns, `used` = how many times by (class, pattern), without members that no order takes."""
    claims = {number: problem.kinds[demand.gangs[0].parts[0][0]][0] for number, demand in enumerate(problem.demands)}
    by_class: dict[int, list[tuple[Pattern, int]]] = defaultdict(list)
    for (number, pattern), count in sorted(used.items()):
        by_class[number].append((pattern, count))
    replicas, assignments = [0] * len(problem.demands), dict[int, tuple[PlacedMember, ...]]()
    for number, uses in by_class.items():
        nodes = iter(problem.nodes[number].nodes)
        for pattern, count in uses:
            order = creation_order(problem.nodes[number].offer, pattern, claims)
            pieces = tuple([PlacedMember(item, 0, problem.demands[item].gangs[0].parts[0][0]) for item in order])
            for _ in range(count):
                assignments[next(nodes)] = pieces
            for item in order:
                replicas[item] += count
    return PackingLayout(tuple(replicas), assignments)


@dataclass(slots=True)
class Dive:
    """A dive in progress: `left` = free nodes of each class, `supply` = members of each item on the fixed nodes."""

    master: Master
    pricers: Sequence[Pricer]
    left: Ints
    supply: Ints
    wanted: Ints
    """The missing members of each item, shape (items,)."""
    steps: int
    """How many pricings are still allowed."""
    used: Counter[tuple[int, Pattern]] = field(default_factory=Counter)

    def run(self) -> None:
        """Fix node after node until nothing more can be gained."""
        while self.left.any():
            self._cut_to_demand()
            solution = self.generate()
            if solution is None or not self._fix(solution):
                return

    def generate(self) -> Solution | None:
        """Add columns until the master is within GAP of the bound that the prices give."""
        solution = self.master.solve(self.left, self.supply)
        if solution is None:
            return None
        price, best_bound = solution.item_price, np.inf
        for _ in range(ROUNDS):
            added, bound = self._price(price)
            best_bound = min(best_bound, bound)
            exact = bool(np.abs(price - solution.item_price).max(initial=0.0) < 1e-9)
            if best_bound - solution.value <= GAP * self.master.worth.scale or (not added and exact) or self.steps <= 0:
                break
            if added:
                solution = self.master.solve(self.left, self.supply) or solution
            share = SMOOTH if added else 1.0
            price = np.where(solution.item_price > 0, share * solution.item_price + (1 - share) * price, 0.0)
        return solution

    def _price(self, price: Floats) -> tuple[int, float]:
        """Add the best columns at `price`; return how many are new, and a bound on the value of the master."""
        wanted = self._still_wanted()
        worth, added = self.master.worth, 0
        bound = float(np.maximum(worth.first - price, 0) @ worth.max_first
                      + np.maximum(worth.further - price, 0) @ worth.max_further + price @ self.supply)
        for number in np.flatnonzero(self.left).tolist():
            pricer = self.pricers[number]
            items = pricer.items
            self.steps -= 1
            found = pricer.best(price[items], wanted[items], COLUMNS_A_ROUND)
            if found:
                bound += float(self.left[number]) * float(found[0] @ price[items])
            for counts in found:
                indices = np.flatnonzero(counts)
                added += self.master.add(number, tuple((int(items[k]), int(counts[k])) for k in indices))
        return added, bound

    def _still_wanted(self) -> Ints:
        wanted: Ints = np.maximum(self.wanted - self.supply, 0)
        return wanted

    def _cut_to_demand(self) -> None:
        """Cut the columns to what is still wanted of each item."""
        wanted = self._still_wanted()
        for number, pattern in self.master.clear():
            if self.left[number]:
                self.master.add(number, tuple(
                    (item, min(count, int(wanted[item]))) for item, count in pattern if wanted[item]))

    def _fix(self, solution: Solution) -> int:
        """Fix the whole uses, or if there are none, the largest fractions; return how many nodes."""
        whole = np.floor(solution.used + 1e-6).astype(np.int64)
        fixed = 0
        for index in np.flatnonzero(whole).tolist():
            fixed += self._use(index, int(whole[index]))
        if fixed:
            return fixed
        order = np.argsort(-solution.used, kind="stable")
        for index in order.tolist():
            if solution.used[index] < (0.75 if fixed else 1e-6):
                break
            fixed += self._use(index, 1)
        return fixed

    def _use(self, index: int, count: int) -> int:
        number, pattern = self.master.columns[index]
        wanted = self._still_wanted()
        proper = min((int(wanted[item]) // held for item, held in pattern), default=0)
        count = min(count, int(self.left[number]), max(proper, 0))
        if count:
            self.used[number, pattern] += count
            self.left[number] -= count
            for item, held in pattern:
                self.supply[item] += held * count
        return count
