"""A packing that is on the ledger, with the new replicas of some nodes lifted off and put back.

Only replicas of this plan are lifted; what runs is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field

from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.ledger.ledger import Ledger

MOST_LIFTED = 64
"""Replicas that are lifted at once at most; a step stays cheap however full the nodes are."""


@dataclass(slots=True)
class Lifts:
    """New replicas by identity, in order of creation, and by node."""

    ledger: Ledger
    opening: Sequence[int]
    """Numbers of the nodes' offers before any of them was placed."""
    packing: InitVar[Sequence[Placed]]
    placed: dict[int, Placed] = field(default_factory=dict)
    on_node: dict[int, list[Placed]] = field(default_factory=dict)
    _loosened: set[tuple[int, str]] = field(default_factory=set)
    """(node, model) pairs from which a replica was lifted for good."""

    def __post_init__(self, packing: Sequence[Placed]) -> None:
        for one in packing:
            self._enter(one)

    def lift(self, chosen: Iterable[Placed]) -> bool:
        """Take some replicas off the ledger; False when what stays would then land on other cards."""
        lifted = {id(one): one for one in chosen}
        for node in {node for one in lifted.values() for node in one.nodes}:
            if not self._replay(node, [one for one in self.on_node[node] if id(one) not in lifted]):
                return False
        for one in lifted.values():
            self.ledger.lift_slots(one.demand.shape.key, {assigned.node: assigned.slot for assigned in one.assignments})
        return True

    def accept(self, lifted: Iterable[Placed], added: Iterable[Placed]) -> None:
        """Let `added`, which are on the ledger, take the place of what was lifted."""
        for one in lifted:
            del self.placed[id(one)]
            for node in one.nodes:
                self._loosened.add((node, one.demand.shape.key))
                self.on_node[node] = [other for other in self.on_node[node] if other is not one]
        for one in added:
            self._enter(one)

    def closed_up(self) -> list[Placed]:
        """Return the packing; replicas on (node, model) pairs that lost one in between get the lowest slots again."""
        placed = list(self.placed.values())
        moved = [place for place, one in enumerate(placed)
                 if any((assigned.node, one.demand.shape.key) in self._loosened for assigned in one.assignments)]
        for place in moved:
            key = placed[place].demand.shape.key
            self.ledger.lift_slots(key, {assigned.node: assigned.slot for assigned in placed[place].assignments})
        for place in moved:
            demand, assignments = placed[place]
            slots = self.ledger.take_slots(demand.shape.key, (assigned.node for assigned in assignments))
            placed[place] = Placed(demand, tuple(one._replace(slot=slots[one.node]) for one in assignments))
        return placed

    def _enter(self, one: Placed) -> None:
        self.placed[id(one)] = one
        for node in one.nodes:
            self.on_node.setdefault(node, []).append(one)

    def _replay(self, node: int, staying: Sequence[Placed]) -> bool:
        number = self.opening[node]
        for assigned in (assigned for one in staying for assigned in one.assignments if assigned.node == node):
            fit = self.ledger.fit(number, assigned.seat.claim)
            if fit is None:
                return False
            number = fit[1]
        self.ledger.shift(node, number)
        return True
