"""Remove and reinsert: lifts the new replicas off a few nodes and packs them again with a replica that had no place.

Ruin and recreate (Schrimpf et al., "Record breaking optimization results using the ruin and recreate principle", 2000).
A step is kept unless it makes the objective worse. The walk follows a fixed sequence of numbers and ends after a number
of placements, so equal input gives equal plans on any machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.quantity import grouped
from fleetctl.planner.placement.claims import Selector
from fleetctl.planner.placement.demand import Demand, Missing, Option, Placed
from fleetctl.planner.placement.greedy import MAX_LIFTED, MovablePacking, place_some
from fleetctl.planner.placement.ledger.candidates import Candidates
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.objective import Level, Levels, Saved, savings, total_price

if TYPE_CHECKING:
    from fleetctl.planner.placement.ledger.price_table import PriceTable

FORGET = 16
"""Steps after which the list of nodes with free GPUs is computed again."""


def rearrange(
    demands: Sequence[Demand], placed: Sequence[Placed], placer: Placer, *, opening: Sequence[int], steps: int,
    enough: Levels,
) -> list[Placed]:
    """Improve a packing that is on the ledger; the result replaces it there, in order of creation.

    `opening` = the numbers of the nodes' offers before the packing; `steps` = the most members to place; `enough` = the
    levels at which to stop, since nothing can be better.
    """
    walk = _Walk(demands, placer, MovablePacking(placer.ledger, opening, placed))
    while walk.packing.placed and walk.steps < steps and walk.levels != enough and walk.has_missing():
        walk.step()
    return walk.packing.closed_up()


class CountedLevels:
    """The levels of a packing that changes: `levels_of`, kept up to date as replicas come and go."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self._sums = {priority: [0, 0, 0] for priority in sorted(
            {demand.priority for demand in demands if demand.missing > 0}, reverse=True)}
        self._saving = savings(demands) if any(demand.variant for demand in demands) else None
        self._saved, self._price = [0, 0], 0
        self._counts = Counter[Option]()
        self._first = Counter[int]()
        """By place: the new replicas of a model without a live one."""

    def count(self, replicas: Sequence[Placed], times: int, prices: PriceTable | None) -> None:
        """Count replicas in (`times` = 1) or out (-1)."""
        if prices is not None:
            self._price += times * total_price(replicas, prices)
        for demand, _ in replicas:
            level, option = self._sums[demand.priority], demand.option
            with_it = max(self._counts[option], self._counts[option] + times)
            self._counts[option] += times
            if demand.live == 0:
                self._first[demand.place] += times
                if self._first[demand.place] == (times > 0):  # the first one came, or the last one went
                    level[0] += times
            if with_it <= demand.least:
                level[0] += times
            level[1] += times * demand.units
            level[2] += times
            if self._saving is not None:
                saving = self._saving[option]
                self._saved[0] += times * saving.units
                self._saved[1] += times * saving.preference

    @property
    def levels(self) -> Levels:
        """The levels now."""
        levels = tuple([Level(*level) for level in self._sums.values()])
        return levels if self._saving is None else (*levels, Saved(self._saved[0], -self._price, self._saved[1]))


class _Walk:
    """The present packing and the state of the walk."""

    def __init__(self, demands: Sequence[Demand], placer: Placer, packing: MovablePacking) -> None:
        self.demands, self.placer, self.packing = demands, placer, packing
        self.missing, self.reached = Missing(demands), CountedLevels(demands)
        self.of_model = grouped((demand.place, number) for number, demand in enumerate(demands))
        self.short = {number for number, demand in enumerate(demands) if demand.at_most}
        """The demands with missing replicas."""
        self.nodes_for: dict[Option, Candidates] = {}
        self._count([*packing.placed.values()], 1)
        self.levels = self.reached.levels
        self.gaps: dict[Selector, list[int]] = {}
        self.steps, self.age, self.state = 0, 0, 20_000_303

    def has_missing(self) -> bool:
        """Return whether any model still misses a replica."""
        return bool(self.short)

    def step(self) -> None:
        """Lift the replicas on a few nodes and pack them again; keep the result unless it is worse."""
        ledger = self.placer.ledger
        mark = ledger.mark()
        target = self._target()
        lifted = self._on(self._nodes_to_clear(target))
        self.steps += 1
        if not self.packing.lift(lifted):
            ledger.undo(mark)
            return
        self._count(lifted, -1)
        added = self._insert(target, lifted)
        levels = self.reached.levels
        if levels < self.levels:
            self._count(added, -1)
            self._count(lifted, 1)
            ledger.undo(mark)
            return
        self.levels = levels
        self.packing.accept(lifted, added)

    def _count(self, replicas: Sequence[Placed], times: int) -> None:
        self.reached.count(replicas, times, self.placer.ledger.prices)
        for replica in replicas:
            self.missing.take(replica.demand, times)
        for place in {replica.demand.place for replica in replicas}:
            for number in self.of_model[place]:
                (self.short.add if self.missing.of(self.demands[number]) else self.short.discard)(number)

    def _draw(self, below: int) -> int:
        """Return the next number of a fixed sequence, less than `below` (Lehmer 1951; Park and Miller's constants)."""
        self.state = self.state * 48_271 % 2_147_483_647
        return self.state % below

    def _target(self) -> Demand:
        """Choose a model with missing replicas, more often one of high priority."""
        missing = [self.demands[number] for number in sorted(self.short)]
        return missing[min(self._draw(len(missing)), self._draw(len(missing)))]

    def _nodes_to_clear(self, target: Demand) -> list[int]:
        """Choose nodes that the target could use, about half of them with free GPUs."""
        selectors = target.shape.selectors
        useful, gaps = self._useful(selectors[self._draw(len(selectors))])
        if not useful:
            return []
        wanted = 1 + self._draw(5) + min(6, max(group.size for group in target.shape.groups) - 1)
        chosen = set()
        for _ in range(wanted):
            pool = gaps if gaps and self._draw(2) else useful
            chosen.add(pool[self._draw(len(pool))])
        return sorted(chosen)

    def _useful(self, selector: Selector) -> tuple[Sequence[int], Sequence[int]]:
        """Return the nodes a selector allows, and those with free GPUs as of a few steps ago."""
        self.age += 1
        if self.age >= FORGET:
            self.age = 0
            self.gaps.clear()
        useful = self.placer.ledger.selected(selector)
        if selector not in self.gaps:
            numbers, numbered = self.placer.ledger.numbers, self.placer.ledger.numbered
            free = {number for number in set(numbers) if numbered(number).free_gpus > 0}
            self.gaps[selector] = [node for node in useful if numbers[node] in free]
        return useful, self.gaps[selector]

    def _on(self, nodes: Sequence[int]) -> list[Placed]:
        """Return the new replicas on some nodes, at most MAX_LIFTED."""
        replicas = {id(replica): replica for node in nodes for replica in self.packing.on_node.get(node, ())}
        return list(replicas.values())[:MAX_LIFTED]

    def _insert(self, target: Demand, lifted: Sequence[Placed]) -> list[Placed]:
        """Place the target, then the lifted and other missing replicas, in one of a few orders."""
        order = self._order(target, {replica.demand.place for replica in lifted})
        added: list[Placed] = []
        for demand, count in order:
            missing = min(count, self.missing.of(demand))
            new = list(place_some(demand, missing, self.placer)) if missing > 0 and self._may_fit(demand) else []
            self.steps += (len(new) + 1) * demand.shape.size
            self._count(new, 1)
            added += new
        return added

    def _may_fit(self, demand: Demand) -> bool:
        """Return False if no node has room: of the models tried in one step, few find any."""
        if demand.shape.size > 1:
            return True
        if demand.option not in self.nodes_for:
            self.nodes_for[demand.option] = self.placer.candidates(demand.shape.seats[0].kind)
        return self.nodes_for[demand.option].best_fit() is not None

    def _order(self, target: Demand, lifted: set[int]) -> Iterator[tuple[Demand, int]]:
        yield target, 1
        numbers = self.short.union(*(self.of_model[place] for place in lifted))
        involved = [self.demands[number] for number in sorted(numbers)]
        ranks: list[Callable[[Demand], tuple[int, ...]]] = [
            lambda demand: (-demand.priority, -demand.shape.most_gpus),
            lambda demand: (-demand.shape.most_gpus, -demand.priority),
            lambda demand: (self._draw(1000), demand.place),
        ]
        for demand in sorted(involved, key=ranks[self._draw(3)]):
            if demand.live == 0 and self.missing.misses_all(demand):
                yield demand, 1
        for demand in sorted(involved, key=ranks[self._draw(3)]):
            yield demand, demand.missing
