"""The input of a question: a fleet, an inventory, and its ledger.

Every question uses the same inputs as a plan, so its answers agree with `plan`. Also scenarios with new nodes that
`spec.cluster.grow` may add, and a plan's waiting replicas placed on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from fleetctl.documents.fleet import Cluster, Policy
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.plan import Plan, PlanInventory
from fleetctl.documents.selector import LabelSelector
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.growth import living, next_node
from fleetctl.planner.live import LiveState, sort_out
from fleetctl.planner.options import PlanFacts, PlanOptions, require_complete
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.greedy import pack_greedily
from fleetctl.planner.placement.ledger.ledger import Ledger, open_ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.occupants import Occupant, Occupants, Planned, look_around
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.plan import make_plan
from fleetctl.planner.questions.new_node import new_names
from fleetctl.planner.variants import counted_shapes, demands_of, left_of, shapes_of

NO_FLEET = ResolvedFleet(name="", cluster=Cluster(), policies=(), models=(), files=())
"""Used if no fleet is given: no models, no policies; everything that runs is foreign."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet and an inventory; `adopt_from` as for a plan."""

    fleet: ResolvedFleet
    inventory: Inventory
    adopt_from: str | None = None
    selector: LabelSelector | None = None
    """Labels of the models that are planned; None = any."""
    new_prices: Mapping[str, int] = field(default_factory=dict)
    """By id of a new node, what its type says that it costs an hour, in 1/10^6."""

    @property
    def named(self) -> str | None:
        """The fleet's name; None if there is no fleet."""
        return self.fleet.name or None

    def plan(self) -> Plan:
        """Plan the fleet on the inventory; raises InventoryError if it is not complete.

        Only quotas and cooldown of the fleet's policy are used, since they decide what is planned: the rest limits what
        may be applied, and a hypothetical plan never is.
        """
        full = self.fleet.policy
        policy = Policy().model_copy(update={"quotas": full.quotas, "cooldown": full.cooldown})
        return make_plan(replace(self.fleet, policy=policy), self.inventory,
                         PlanOptions(adopt_from=self.adopt_from, selector=self.selector), PlanFacts(tool_version=""))

    def sorted_out(self) -> LiveState:
        """Return the replicas of the inventory, sorted for this fleet."""
        return sort_out(self.inventory, self.fleet.name, self.fleet.labels, self.adopt_from)

    def ledger(self) -> Ledger:
        """Open a ledger of what is free now; raises InventoryError if the inventory is not complete."""
        require_complete(self.inventory)
        return self.opened()

    def opened(self) -> Ledger:
        """Open a ledger of what is free now, as far as it could be read."""
        shapes = counted_shapes(shapes_of(self.fleet, self.inventory))
        return open_ledger(self.inventory, self.fleet.policies, self.sorted_out(), shapes)

    def occupants(self, ledger: Ledger, plan: Plan | None = None) -> Occupants:
        """Return the replicas and what they hold; those of `plan` are included, and taken from the ledger."""
        models = {model.key: model for model in self.fleet.models}
        found = look_around(self.inventory.nodes, ledger.nodes, self.sorted_out().running, models)
        found.replicas += take_planned(plan, ledger) if plan else ()
        return found

    def about(self) -> PlanInventory:
        """Return the description of this inventory for answers."""
        return PlanInventory(observed_at=self.inventory.observed_at, source=self.inventory.source,
                             address=self.inventory.cluster.address, session_id=self.inventory.cluster.session_id)


def take_planned(plan: Plan, ledger: Ledger) -> list[Occupant]:
    """Take every new replica of `plan` from the ledger, in order of creation; returns them with their cards.

    Raises ValueError if the plan was not made on this ledger.
    """
    places = {node.id: place for place, node in enumerate(ledger.nodes)}
    return [take_members(action.model, action.replica_id, [
        (places[one.node_id], Claim(one.gpus, one.vram, one.cpus, one.memory), one.gpus) for one in action.members
    ], ledger, action.variant or "") for action in plan.starts]


def take_members(model: str, replica_id: int, members: Iterable[tuple[int, Claim, int]], ledger: Ledger,
                 variant: str) -> Occupant:
    """Take a replica from the ledger; `members` = place, claim, GPU share in 1/10000. ValueError if it does not fit."""
    planned: dict[int, tuple[Planned, ...]] = {}
    for place, claim, gpus in members:
        taken = ledger.take(place, claim)
        if taken is None:
            raise ValueError(f"{model}/{replica_id} no longer fits on {ledger.nodes[place].name}")
        planned[place] = (*planned.get(place, ()), Planned(claim, gpus, taken.indices))
    ledger.take_slots(model, planned)
    return Occupant(model, replica_id, planned=planned, variant=variant)


def most_new(scenario: Scenario) -> dict[str, int]:
    """Return how many nodes of each type may be added."""
    return {kind.name: max(0, kind.max - len(living(scenario.inventory, kind))) for kind in scenario.fleet.cluster.grow}


def with_new_nodes(scenario: Scenario, counts: Mapping[str, int]) -> Scenario:
    """Return the scenario with `counts` empty nodes of each type, named `new-<type>-<n>`."""
    nodes, prices = list[Node](), dict[str, int]()
    for kind in scenario.fleet.cluster.grow:
        like = next_node(kind, living(scenario.inventory, kind))
        names = [*islice(new_names(scenario.inventory, f"new-{kind.name}"), counts.get(kind.name, 0))]
        nodes += [like.model_copy(update={"id": name, "name": name}) for name in names]
        if kind.price is not None:
            prices.update(dict.fromkeys(names, kind.price))
    inventory = scenario.inventory.model_copy(update={"nodes": [*scenario.inventory.nodes, *nodes]})
    return replace(scenario, inventory=inventory, new_prices={**scenario.new_prices, **prices})


def take_waiting(scenario: Scenario, plan: Plan, ledger: Ledger) -> list[Occupant]:
    """Take the plan's waiting replicas from a ledger that has new nodes and the plan; returns them with their cards."""
    waiting = {row.model: row.on_new_nodes for row in plan.blocked if row.on_new_nodes}
    created, state = Counter(action.model for action in plan.starts), scenario.sorted_out()
    shapes = shapes_of(scenario.fleet, scenario.inventory) if waiting else {}
    of_each = Counter((action.model, action.spec_hash) for action in plan.starts)
    demands = list[Demand]()
    for place, model in enumerate(scenario.fleet.models):
        if model.key in waiting:
            new = Counter({(place, number): of_each[model.key, one.spec_hash]
                           for number, one in enumerate(model.alternatives)})
            demands += [replace(one, missing=waiting[model.key])
                        for one in left_of(demands_of(model, state.models[model.key], shapes[model.key], place), new)]
    if not demands:
        return []
    mark = ledger.mark()
    placed = pack_greedily(state_problem(demands, ledger), Placer(ledger))
    ledger.undo(mark)
    ids = {key: islice(state.models[key].new_ids(created[key] + missing), created[key], None)
           for key, missing in waiting.items()}
    return [take_members(one.demand.shape.key, next(ids[one.demand.shape.key]),
                         [(new.node, new.seat.claim, new.gpus) for new in one.assignments], ledger,
                         scenario.fleet.models[one.demand.place].alternatives[one.demand.variant].variant)
            for one in placed]
