"""Remove and reinsert: lifts the new replicas off a few nodes and packs them anew, together with what found no place.

Ruin and recreate (Schrimpf et al., "Record breaking optimization results using the ruin and recreate principle", 2000).
Only replicas of this plan are lifted; what runs is not known here. A step that leaves the objective no worse is kept.
The walk follows a fixed sequence of numbers and ends after a number of placements tried, so equal input gives equal
plans on any machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fleetctl.planner.placement.claims import Selector
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.greedy.greedy import place_some
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.objective import Levels, levels_of

FORGET = 16
"""Steps after which the list of nodes with something left over is made anew."""
MOST_LIFTED = 64
"""Replicas lifted in one step at most; a step stays cheap however full the nodes are."""


def rearrange(
    demands: Sequence[Demand], placed: Sequence[Placed], placer: Placer, *, opening: Sequence[int], steps: int,
    enough: Levels,
) -> list[Placed]:
    """Improve a packing that stands on the ledger; the result stands there instead, in order of creation.

    `opening` = numbers of the nodes' offers before the packing; `steps` = placements to try at most; `enough` = levels
    at which nothing can be better.
    """
    walk = _Walk(demands, placer, {id(one): one for one in placed}, opening)
    while walk.steps < steps and walk.levels != enough and walk.has_missing():
        walk.step()
    return _slots_closed_up(list(walk.placed.values()), walk.loosened, placer.ledger)


def _slots_closed_up(placed: list[Placed], loosened: set[tuple[int, str]], ledger: Ledger) -> list[Placed]:
    """Give replicas on (node, model) pairs that lost one in between the lowest slots again, in order of creation."""
    moved = [place for place, one in enumerate(placed)
             if any((stand.node, one.demand.shape.key) in loosened for stand in one.stands)]
    for place in moved:
        for node, slot in {(stand.node, stand.slot) for stand in placed[place].stands}:
            ledger.lift_slot(node, placed[place].demand.shape.key, slot)
    for place in moved:
        demand, stands = placed[place]
        slots = {node: ledger.take_slot(node, demand.shape.key)
                 for node in dict.fromkeys(stand.node for stand in stands)}
        placed[place] = Placed(demand, tuple(stand._replace(slot=slots[stand.node]) for stand in stands))
    return placed


@dataclass(slots=True)
class _Walk:
    """The packing as it stands, and where the walk is."""

    demands: Sequence[Demand]
    placer: Placer
    placed: dict[int, Placed]
    """By identity, in order of creation."""
    opening: Sequence[int]
    steps: int = 0
    levels: Levels = ()
    by_place: dict[int, Demand] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)
    on_node: dict[int, list[Placed]] = field(default_factory=dict)
    gaps: dict[Selector, list[int]] = field(default_factory=dict)
    age: int = 0
    loosened: set[tuple[int, str]] = field(default_factory=set)
    """(node, model) pairs from which a replica was lifted."""
    state: int = 20_000_303

    def __post_init__(self) -> None:
        self.by_place = {demand.place: demand for demand in self.demands}
        self.counts = Counter(one.demand.place for one in self.placed.values())
        self.levels = self._levels()
        for one in self.placed.values():
            for node in _nodes(one):
                self.on_node.setdefault(node, []).append(one)

    def has_missing(self) -> bool:
        """Tell whether any model still misses a replica."""
        return any(self.counts[demand.place] < demand.missing for demand in self.demands)

    def step(self) -> None:
        """Lift what stands on a few nodes and pack it anew; keep the outcome unless it is worse."""
        ledger = self.placer.ledger
        mark = ledger.mark()
        target = self._target()
        lifted = self._lift(self._nodes_to_clear(target))
        self.steps += 1
        if lifted is None:
            ledger.undo(mark)
            return
        before = self.counts.copy()
        self.counts.subtract(one.demand.place for one in lifted)
        added = self._insert(target, lifted)
        levels = self._levels()
        if levels < self.levels:
            self.counts = before
            ledger.undo(mark)
            return
        self.levels = levels
        for one in lifted:
            del self.placed[id(one)]
            for node in _nodes(one):
                self.loosened.add((node, one.demand.shape.key))
                self.on_node[node] = [other for other in self.on_node[node] if other is not one]
        for one in added:
            self.placed[id(one)] = one
            for node in _nodes(one):
                self.on_node.setdefault(node, []).append(one)

    def _levels(self) -> Levels:
        return levels_of(self.by_place, self.counts)

    def _draw(self, below: int) -> int:
        """Return the next number of a fixed sequence (Lehmer 1951, with Park and Miller's constants)."""
        self.state = self.state * 48_271 % 2_147_483_647
        return self.state % below

    def _target(self) -> Demand:
        """Choose a model that misses something, those of high priority more often."""
        missing = [demand for demand in self.demands if self.counts[demand.place] < demand.missing]
        return missing[min(self._draw(len(missing)), self._draw(len(missing)))]

    def _nodes_to_clear(self, target: Demand) -> list[int]:
        """Choose nodes that the target could use, half of them with something left over."""
        groups = target.shape.groups
        selectors = sorted({selector for group in groups for _, selector in group.classes()})
        useful, gaps = (self._useful(selectors[self._draw(len(selectors))]))
        if not useful:
            return []
        wanted = 1 + self._draw(5) + min(6, max(group.size for group in groups) - 1)
        chosen = set()
        for _ in range(wanted):
            pool = gaps if gaps and self._draw(2) else useful
            chosen.add(pool[self._draw(len(pool))])
        return sorted(chosen)

    def _useful(self, selector: Selector) -> tuple[Sequence[int], Sequence[int]]:
        """Return the nodes a selector allows, and those of them with a gap, as of a few steps ago."""
        self.age += 1
        if self.age >= FORGET:
            self.age = 0
            self.gaps.clear()
        useful = self.placer.ledger.selected(selector)
        if selector not in self.gaps:
            offer = self.placer.ledger.offer
            self.gaps[selector] = [node for node in useful if offer(node).free_gpus > 0]
        return useful, self.gaps[selector]

    def _lift(self, nodes: Sequence[int]) -> list[Placed] | None:
        """Take the new replicas on some nodes off the ledger; None when what stays would land on other cards."""
        lifted: dict[int, Placed] = {}
        for node in nodes:
            for one in self.on_node.get(node, ()):
                if len(lifted) < MOST_LIFTED:
                    lifted[id(one)] = one
        touched = {node for one in lifted.values() for node in _nodes(one)}
        for node in touched:
            if not self._replay(node, [one for one in self.on_node[node] if id(one) not in lifted]):
                return None
        for one in lifted.values():
            for node, slot in {(stand.node, stand.slot) for stand in one.stands}:
                self.placer.ledger.lift_slot(node, one.demand.shape.key, slot)
        return list(lifted.values())

    def _replay(self, node: int, staying: Sequence[Placed]) -> bool:
        ledger = self.placer.ledger
        number: int | None = self.opening[node]
        for one in staying:
            for stand in one.stands:
                if stand.node == node and number is not None:
                    number = ledger.after(number, stand.seat.claim)
        if number is None:
            return False
        ledger.shift(node, number)
        return True

    def _insert(self, target: Demand, lifted: Sequence[Placed]) -> list[Placed]:
        """Place the target, then whatever is missing, in one of a few orders."""
        order = self._order(target, {one.demand.place for one in lifted})
        added: list[Placed] = []
        for demand, count in order:
            missing = min(count, demand.missing - self.counts[demand.place])
            found = list(place_some(demand, missing, self.placer)) if missing > 0 else []
            self.steps += len(found) + 1
            self.counts[demand.place] += len(found)
            added += found
        return added

    def _order(self, target: Demand, lifted: set[int]) -> Iterator[tuple[Demand, int]]:
        yield target, 1
        involved = [demand for demand in self.demands
                    if demand.place in lifted or self.counts[demand.place] < demand.missing]
        ranks: list[Callable[[Demand], tuple[int, ...]]] = [
            lambda demand: (-demand.priority, -_largest(demand)),
            lambda demand: (-_largest(demand), -demand.priority),
            lambda demand: (self._draw(1000), demand.place),
        ]
        for demand in sorted(involved, key=ranks[self._draw(3)]):
            if demand.live == 0 and not self.counts[demand.place]:
                yield demand, 1
        for demand in sorted(involved, key=ranks[self._draw(3)]):
            yield demand, demand.missing


def _largest(demand: Demand) -> int:
    return max(member.claim.gpus for group in demand.shape.groups for member in group.members)


def _nodes(one: Placed) -> set[int]:
    return {stand.node for stand in one.stands}

