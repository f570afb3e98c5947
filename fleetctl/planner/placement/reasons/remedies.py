"""All that a plan says about what is blocked: why, what is in the way, and what would have to be added.

One inquiry serves one plan. Models that ask alike are answered once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.plan import Addition, Blocked, InTheWay
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.occupants import Occupants
from fleetctl.planner.placement.policies import ONE_EACH
from fleetctl.planner.placement.reasons.addition import find_addition, why_nothing
from fleetctl.planner.placement.reasons.explain import Explanation, explain
from fleetctl.planner.placement.reasons.node_shapes import NodeShapes
from fleetctl.planner.placement.reasons.node_table import NodeTable
from fleetctl.planner.placement.reasons.removal import Removal, RemovalSearch


@dataclass
class Inquiry:
    """Asks the ledger as packing left it, of `placer`, and who holds what once the plan is applied."""

    placer: Placer
    occupants: Occupants
    policies: Sequence[NodePolicy]
    _why: dict[ReplicaShape, Explanation] = field(default_factory=dict)
    _added: dict[tuple[ReplicaShape, int], list[Addition]] = field(default_factory=dict)
    _removals: dict[tuple[ReplicaShape, int], Removal | str] = field(default_factory=dict)

    def blocked(self, shape: ReplicaShape, replicas: int, priority: int) -> Blocked:
        """Say why `replicas` more of a shape do not fit, and what would help."""
        alike = shape if self.placer.ledger.tells_apart(shape) else replace(shape, key="")
        if alike not in self._why:
            self._why[alike] = explain(shape, self.placer, self.table)
        why = self._why[alike]
        # which replicas a model may not name depends on the model itself, where it runs or will run
        own = shape if shape.key in self._own_models else alike
        by_default = ONE_EACH.source in why.message
        removal, notes = self._removal(own, why, priority), list[str]()
        added = [] if why.misspelt or by_default else self._addition(alike, why, replicas)
        if isinstance(removal, str):
            notes.append(removal)
        if why.misspelt:
            notes.append("no addition is named while a label looks misspelt")
        elif by_default:
            notes.append("would fit with a higher maxReplicasPerModel of the nodes, in spec.nodes")
        elif not added and why.missing is not None:
            notes.append(why_nothing(why.missing, self._shapes))
        return Blocked(
            model=shape.key, replicas=replicas, code=why.code, message=why.message, reasons=why.reasons,
            counted=why.counted, make_room=[] if isinstance(removal, str) else list(self._in_the_way(removal)),
            would_fit=added,
            no_remedy="; ".join(note for note in notes if note),
        )

    @cached_property
    def table(self) -> NodeTable:
        """The ledger as a table."""
        return NodeTable(self.placer.ledger)

    @cached_property
    def _shapes(self) -> NodeShapes:
        return NodeShapes(self.table, self.occupants.nodes, self.policies)

    @cached_property
    def search(self) -> RemovalSearch:
        """Which replicas would have to go; one search for all models, as there is a limit to its steps."""
        return RemovalSearch(self.occupants)

    @cached_property
    def _own_models(self) -> frozenset[str]:
        return frozenset(one.model for one in self.occupants.replicas if one.ours)

    def _removal(self, shape: ReplicaShape, why: Explanation, priority: int) -> Removal | str:
        if why.missing is None:
            return ""
        if (shape, priority) not in self._removals:
            self._removals[shape, priority] = self.search.find(replace(why.missing, shape=shape), priority)
        return self._removals[shape, priority]

    def _addition(self, shape: ReplicaShape, why: Explanation, replicas: int) -> list[Addition]:
        if why.missing is None:
            return []
        if (shape, replicas) not in self._added:
            self._added[shape, replicas] = find_addition(why.missing, replicas, self._shapes)
        return self._added[shape, replicas]

    def _in_the_way(self, removal: Removal) -> Iterator[InTheWay]:
        for one in map(self.occupants.replicas.__getitem__, removal.gone):
            places = [place for place in removal.places if place in one.places]
            yield InTheWay(
                replica=one.name, model=one.model, replica_id=one.replica_id,
                nodes=[self.placer.ledger.nodes[place].name for place in places],
                frees=sum(one.units(place) for place in places), planned=bool(one.planned), surplus=not one.wanted,
                owner="fleet" if one.ours else "otherFleet" if one.fleet is not None else "foreign",
                fleet=None if one.ours else one.fleet, priority=one.priority)
