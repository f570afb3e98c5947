"""Who stands where: every live replica and every one that a plan would create, with its name and its standing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetctl.documents.inventory import LIVE_STATES, Inventory, Replica, ReplicaMember, dead_node_ids, is_lost
from fleetctl.planner.live import LiveState, in_fixed_order
from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Stand
from fleetctl.planner.placement.reasons.site import Occupant, Site
from fleetctl.spec.resolved import ResolvedFleet, ResolvedModel

NOTHING: Mapping[int, tuple[Any, ...]] = {}


def survey_site(
    fleet: ResolvedFleet, inventory: Inventory, state: LiveState, placed: Sequence[Placed], ledger: Ledger,
    adopt_from: str | None = None,
) -> Site:
    """Return the nodes in ledger order and who stands on them: what runs, then `placed` in order of creation."""
    documents = {node.id: node for node in inventory.nodes}
    models = {model.key: model for model in fleet.models}
    live = _live(inventory, ledger, _Models(fleet.name, adopt_from, models, state))
    nodes = [documents[node.id] for node in ledger.nodes]
    return Site(nodes, fleet.policies, [*live, *_planned(placed, fleet.models, state)])


@dataclass(slots=True)
class _Models:
    """Whose a replica is, and whether its model needs it."""

    fleet: str
    adopt_from: str | None
    models: Mapping[str, ResolvedModel]
    state: LiveState
    _cuts: dict[str, int] = field(default_factory=dict)

    def is_ours(self, replica: Replica) -> bool:
        if replica.replica_id is None or replica.fleet is None:
            return False
        return replica.fleet == self.fleet or (replica.fleet == self.adopt_from and replica.model in self.models)

    def is_wanted(self, replica: Replica) -> bool:
        """Tell whether it counts toward a target; of a surplus, those with the highest ids are beyond it."""
        model = self.models.get(replica.model)
        if model is None or replica.level != "HOT" or replica.replica_id is None:
            return False
        if model.key not in self._cuts:
            ids = sorted(other.replica_id or 0 for other in self.state.models[model.key].live)
            self._cuts[model.key] = ids[model.replicas] if len(ids) > model.replicas else max(ids, default=-1) + 1
        return replica.replica_id < self._cuts[model.key]


def _live(inventory: Inventory, ledger: Ledger, models: _Models) -> Iterator[Occupant]:
    places = {node.id: place for place, node in enumerate(ledger.nodes)}
    dead = dead_node_ids(inventory)
    for replica in in_fixed_order(inventory.replicas):
        if replica.state not in LIVE_STATES or is_lost(replica, dead):
            continue
        there = _by_node(replica.members, places)
        if there:
            ours, model = models.is_ours(replica), models.models.get(replica.model)
            yield Occupant(replica.model, replica.replica_id, replica.foreign_id, replica.fleet,
                           model.priority if model and ours else None, ours, not ours or models.is_wanted(replica),
                           there, NOTHING)


def _by_node(members: Sequence[ReplicaMember], places: Mapping[str, int]) -> dict[int, tuple[ReplicaMember, ...]]:
    there: dict[int, tuple[ReplicaMember, ...]] = {}
    for member in members:
        place = places.get(member.node_id or "")
        if place is not None:
            there[place] = (*there[place], member) if place in there else (member,)
    return there


def _planned(
    placed: Sequence[Placed], models: Sequence[ResolvedModel], state: LiveState
) -> Iterator[Occupant]:
    counts: dict[int, int] = {}
    for one in placed:
        counts[one.demand.place] = counts.get(one.demand.place, 0) + 1
    ids = {place: iter(state.models[models[place].key].new_ids(count)) for place, count in counts.items()}
    for one in placed:
        model, number = models[one.demand.place], next(ids[one.demand.place])
        there: dict[int, tuple[Stand, ...]] = {}
        for stand in one.stands:
            there[stand.node] = (*there.get(stand.node, ()), stand)
        yield Occupant(model.key, number, None, None, model.priority, True, True, NOTHING, there)
