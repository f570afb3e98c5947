"""A packing that is on the ledger, of which new replicas can be lifted off and replaced.

Only replicas of this plan are lifted; running replicas are not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field

from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.ledger.ledger import Ledger

MOST_LIFTED = 64
"""The most replicas lifted at once, so that a step is cheap even on full nodes."""


@dataclass(slots=True)
class Lifts:
    """New replicas by identity, in order of creation, and by node."""

    ledger: Ledger
    opening: Sequence[int]
    """The numbers of the nodes' offers before the packing."""
    packing: InitVar[Sequence[Placed]]
    placed: dict[int, Placed] = field(default_factory=dict)
    on_node: dict[int, list[Placed]] = field(default_factory=dict)
    _loosened: set[tuple[int, str]] = field(default_factory=set)
    """(node, model) pairs that lost a replica for good."""

    def __post_init__(self, packing: Sequence[Placed]) -> None:
        for one in packing:
            self._enter(one)

    def lift(self, chosen: Iterable[Placed]) -> bool:
        """Take some replicas off the ledger; False if the others would then get other cards."""
        lifted = {id(one): one for one in chosen}
        for node in {node for one in lifted.values() for node in one.nodes}:
            if not self._replay(node, [one for one in self.on_node[node] if id(one) not in lifted]):
                return False
        for one in lifted.values():
            self._lift_slots(one)
        return True

    def accept(self, lifted: Iterable[Placed], added: Iterable[Placed]) -> None:
        """Replace the `lifted` replicas by `added` ones, which are on the ledger."""
        for one in lifted:
            del self.placed[id(one)]
            for node in one.nodes:
                self._loosened.add((node, one.demand.shape.key))
                self.on_node[node] = [other for other in self.on_node[node] if other is not one]
        for one in added:
            self._enter(one)

    def closed_up(self) -> list[Placed]:
        """Return the packing, after giving replicas on (node, model) pairs that lost one the lowest slots again."""
        placed = list(self.placed.values())
        gaps = [place for place, one in enumerate(placed)
                if any((assigned.node, one.demand.shape.key) in self._loosened for assigned in one.assignments)]
        for place in gaps:
            self._lift_slots(placed[place])
        for place in gaps:
            demand, assignments = placed[place]
            slots = self.ledger.take_slots(demand.shape.key, (assigned.node for assigned in assignments))
            placed[place] = Placed(demand, tuple(one._replace(slot=slots[one.node]) for one in assignments))
        return placed

    def _enter(self, one: Placed) -> None:
        self.placed[id(one)] = one
        for node in one.nodes:
            self.on_node.setdefault(node, []).append(one)

    def _lift_slots(self, one: Placed) -> None:
        self.ledger.lift_slots(one.demand.shape.key, {assigned.node: assigned.slot for assigned in one.assignments})

    def _replay(self, node: int, staying: Sequence[Placed]) -> bool:
        """Set a node to its opening offer less the replicas that stay; False if they no longer fit."""
        number = self.opening[node]
        for assigned in (assigned for one in staying for assigned in one.assignments if assigned.node == node):
            fit = self.ledger.fit(number, assigned.seat.claim)
            if fit is None:
                return False
            number = fit[1]
        self.ledger.shift(node, number)
        return True
