"""Everything a plan says about what is blocked: why, what is in the way, and what would have to be added.

One inquiry serves one plan. Models that are alike share an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.plan import Addition, Blocked, InTheWay
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.occupants import Occupants
from fleetctl.planner.placement.policies import ONE_EACH
from fleetctl.planner.placement.reasons.addition import find_addition
from fleetctl.planner.placement.reasons.explain import Explanation, explain
from fleetctl.planner.placement.reasons.node_shapes import NodeShapes
from fleetctl.planner.placement.reasons.node_table import NodeTable
from fleetctl.planner.placement.reasons.removal import Removal, RemovalSearch


class Inquiry:
    """Reads the ledger of `placer` as packing left it; `occupants` = what holds what once the plan is applied.

    `search` finds replicas in the way for all models, since its steps are limited.
    """

    def __init__(self, placer: Placer, occupants: Occupants, policies: Sequence[NodePolicy]) -> None:
        self.placer, self.occupants, self.table = placer, occupants, NodeTable(placer.ledger)
        self.search = RemovalSearch(occupants)
        self._shapes = NodeShapes(self.table, occupants.nodes, policies)
        self._own_models = frozenset(one.model for one in occupants.replicas if one.ours)
        self._why: dict[ReplicaShape, Explanation] = {}
        self._additions: dict[tuple[ReplicaShape, int], list[Addition] | str] = {}
        self._removals: dict[tuple[ReplicaShape, int], Removal | str] = {}

    def blocked(self, shape: ReplicaShape, replicas: int, priority: int) -> Blocked:
        """Say why `replicas` more of a shape do not fit, and what would help."""
        alike = shape if self.placer.ledger.tells_apart(shape) else replace(shape, key="")
        if alike not in self._why:
            self._why[alike] = explain(shape, self.placer, self.table)
        why = self._why[alike]
        # a model's own replicas are never named, so a model that runs or will run has an answer of its own
        removal = self._removal(shape if shape.key in self._own_models else alike, why, priority)
        added = self._addition(alike, why, replicas)
        return Blocked(
            model=shape.key, replicas=replicas, code=why.code, message=why.message, reasons=why.reasons,
            counted=why.counted, make_room=[] if isinstance(removal, str) else list(self._in_the_way(removal)),
            would_fit=[] if isinstance(added, str) else added,
            no_remedy="; ".join(note for note in (removal, added) if note and isinstance(note, str)),
        )

    def _removal(self, shape: ReplicaShape, why: Explanation, priority: int) -> Removal | str:
        if why.missing is None:
            return ""
        if (shape, priority) not in self._removals:
            self._removals[shape, priority] = self.search.find(replace(why.missing, shape=shape), priority)
        return self._removals[shape, priority]

    def _addition(self, shape: ReplicaShape, why: Explanation, replicas: int) -> list[Addition] | str:
        if why.misspelled:
            return "no addition is suggested while a label looks misspelled"
        if ONE_EACH.source in why.message:
            return "would fit with a higher maxReplicasPerModel of the nodes, in spec.nodes"
        if why.missing is None:
            return ""
        if (shape, replicas) not in self._additions:
            self._additions[shape, replicas] = find_addition(why.missing, replicas, self._shapes)
        return self._additions[shape, replicas]

    def _in_the_way(self, removal: Removal) -> Iterator[InTheWay]:
        for one in map(self.occupants.replicas.__getitem__, removal.gone):
            places = [place for place in removal.places if place in one.places]
            yield InTheWay(
                replica=one.name, model=one.model, replica_id=one.replica_id,
                nodes=[self.placer.ledger.nodes[place].name for place in places],
                frees=sum(one.units(place) for place in places), planned=bool(one.planned), surplus=not one.wanted,
                owner="fleet" if one.ours else "otherFleet" if one.fleet is not None else "foreign",
                fleet=None if one.ours else one.fleet, priority=one.priority)
