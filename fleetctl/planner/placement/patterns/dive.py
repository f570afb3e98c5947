"""From fractions of patterns to whole nodes: solve, fix what is whole, solve the rest again.

The rounding of column generation that works: after each solution whole uses of patterns are fixed, the columns are cut
to the demand that is left (proper patterns), and the smaller problem is solved again with new columns, down to the last
node. See Sadykov et al., "Primal heuristics for branch and price: the assets of diving methods" (2019).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetctl.planner.placement.arrays import Floats, Ints
from fleetctl.planner.placement.patterns.master import Master, Pattern, Solution
from fleetctl.planner.placement.patterns.pricing import Pricer

GAP, SMOOTH, COLUMNS_A_ROUND, ROUNDS = 3e-4, 0.6, 4, 90
"""How near to its bound a master is solved, how much of the new prices is taken, columns a class adds, rounds at most.

On the trace gpushare100 (seed 42, 89.102 % placed): a gap of 1e-3 loses 0.002 points, no smoothing 0.004, one column
0.006 and 1 s; 30 rounds are enough.
"""


@dataclass(slots=True)
class Dive:
    """A dive in progress: `left` nodes of each class, `supply` of each item on the nodes already settled."""

    master: Master
    pricers: Sequence[Pricer]
    left: Ints
    supply: Ints
    wanted: Ints
    """(items,) members asked for in all."""
    steps: int
    """Pricings that may still be made."""
    used: Counter[tuple[int, Pattern]] = field(default_factory=Counter)

    def run(self) -> None:
        """Settle node after node until nothing is left to gain."""
        while self.left.any():
            self._cut_to_demand()
            solution = self.generate()
            if solution is None or not self._fix(solution):
                return

    def generate(self) -> Solution | None:
        """Add columns until the master is within GAP of what the prices promise."""
        solution = self.master.solve(self.left, self.supply)
        if solution is None:
            return None
        price, best_bound = solution.item_price, np.inf
        for _ in range(ROUNDS):
            news, bound = self._price(price)
            best_bound = min(best_bound, bound)
            exact = bool(np.abs(price - solution.item_price).max(initial=0.0) < 1e-9)
            if best_bound - solution.value <= GAP * self.master.worth.scale or (not news and exact) or self.steps <= 0:
                break
            if news:
                solution = self.master.solve(self.left, self.supply) or solution
            share = SMOOTH if news else 1.0
            price = np.where(solution.item_price > 0, share * solution.item_price + (1 - share) * price, 0.0)
        return solution

    def _price(self, price: Floats) -> tuple[int, float]:
        """Add the best columns at `price`; return how many are new, and what the prices promise at most."""
        wanted = self._open()
        worth, news = self.master.worth, 0
        bound = float(np.maximum(worth.first - price, 0) @ worth.most_first
                      + np.maximum(worth.further - price, 0) @ worth.most_further + price @ self.supply)
        for number in np.flatnonzero(self.left).tolist():
            pricer = self.pricers[number]
            items = pricer.items
            self.steps -= 1
            found = pricer.best(price[items], wanted[items], COLUMNS_A_ROUND)
            if found:
                bound += float(self.left[number]) * float(found[0] @ price[items])
            for counts in found:
                places = np.flatnonzero(counts)
                news += self.master.add(number, tuple((int(items[k]), int(counts[k])) for k in places))
        return news, bound

    def _open(self) -> Ints:
        still: Ints = np.maximum(self.wanted - self.supply, 0)
        return still

    def _cut_to_demand(self) -> None:
        """Replace columns that hold more of an item than is still asked for by what is left of them."""
        open_items = self._open()
        for number, pattern in self.master.taken_out():
            if self.left[number]:
                self.master.add(number, tuple(
                    (item, min(count, int(open_items[item]))) for item, count in pattern if open_items[item]))

    def _fix(self, solution: Solution) -> int:
        """Settle the whole uses, or, where there are none, the largest part of one; return how many nodes."""
        whole = np.floor(solution.used + 1e-6).astype(np.int64)
        fixed = 0
        for place in np.flatnonzero(whole).tolist():
            fixed += self._use(place, int(whole[place]))
        if fixed:
            return fixed
        order = np.argsort(-solution.used, kind="stable")
        for place in order.tolist():
            if solution.used[place] < (0.75 if fixed else 1e-6):
                break
            fixed += self._use(place, 1)
        return fixed

    def _use(self, place: int, count: int) -> int:
        number, pattern = self.master.columns[place]
        open_items = self._open()
        proper = min((int(open_items[item]) // held for item, held in pattern), default=0)
        count = min(count, int(self.left[number]), max(proper, 0))
        if count:
            self.used[number, pattern] += count
            self.left[number] -= count
            for item, held in pattern:
                self.supply[item] += held * count
        return count
