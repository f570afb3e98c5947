"""What a question is asked of: a fleet, an inventory, and the ledger of what is free in it.

Every question uses the same two facts as a plan, so its answers agree with what `plan` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleetctl.documents.fleet import Cluster, Policy
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.label_selector import LabelSelector
from fleetctl.documents.plan import Plan, PlanInventory
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.complete import require_complete
from fleetctl.planner.live import LiveState, sort_out
from fleetctl.planner.opening import open_ledger
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.placement.claims import Claim, ReplicaShape, replica_shape
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.occupants import Occupant, Occupants, Planned, look_around
from fleetctl.planner.plan import make_plan

NO_FLEET = ResolvedFleet(name="", cluster=Cluster(), policies=(), models=(), files=())
"""Used where no fleet is named: no models, no policies; everything that runs is foreign."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet and an inventory; `adopt_from` as for a plan."""

    fleet: ResolvedFleet
    inventory: Inventory
    adopt_from: str | None = None
    selector: LabelSelector | None = None
    """Labels of the models that are planned; None = any."""

    @property
    def named(self) -> str | None:
        """Return the fleet's name; None where there is no fleet."""
        return self.fleet.name or None

    def plan(self) -> Plan:
        """Plan the fleet on the inventory; raises InventoryError when it is not complete.

        Of the fleet's policy only quotas and cooldown are asked, which decide what is planned: the rest is about what
        may be applied, and what is only supposed never is.
        """
        ours = self.fleet.policy
        policy = Policy().model_copy(update={"quotas": ours.quotas, "cooldown": ours.cooldown})
        return make_plan(replace(self.fleet, policy=policy), self.inventory,
                         PlanOptions(adopt_from=self.adopt_from, selector=self.selector), PlanFacts(tool_version=""))

    def shapes(self) -> dict[str, ReplicaShape]:
        """Return the shape of one replica by model key."""
        return {model.key: replica_shape(model) for model in self.fleet.models}

    def sorted_out(self) -> LiveState:
        """Return what runs, and whose it is."""
        return sort_out(self.inventory, self.fleet.name, self.shapes(), self.adopt_from)

    def ledger(self) -> Ledger:
        """Open a ledger of what is free now; raises InventoryError when the inventory is not complete."""
        require_complete(self.inventory)
        return self.opened()

    def opened(self) -> Ledger:
        """Open a ledger of what is free now, as far as it could be read."""
        return open_ledger(self.inventory, self.fleet.policies, self.sorted_out(), self.shapes())

    def occupants(self, ledger: Ledger, plan: Plan | None = None) -> Occupants:
        """Return who holds what, and who would with `plan` applied, which is taken from the ledger."""
        models = {model.key: model for model in self.fleet.models}
        found = look_around(self.inventory.nodes, ledger.nodes, self.sorted_out().running, models)
        found.replicas += take_planned(plan, ledger) if plan else ()
        return found

    def about(self) -> PlanInventory:
        """Return which inventory this is, as answers name it."""
        return PlanInventory(observed_at=self.inventory.observed_at, source=self.inventory.source,
                             address=self.inventory.cluster.address, session_id=self.inventory.cluster.session_id)


def take_planned(plan: Plan, ledger: Ledger) -> list[Occupant]:
    """Take every new replica of `plan` from the ledger, in order of creation; returns them with their cards.

    Raises ValueError when the ledger is not the one the plan was made on.
    """
    places = {node.id: place for place, node in enumerate(ledger.nodes)}
    return [take_members(action.model, action.replica_id, [
        (places[one.node_id], Claim(one.gpus, one.vram, one.cpus, one.memory), one.gpus) for one in action.members
    ], ledger) for action in plan.actions]


def take_members(model: str, replica_id: int, members: Iterable[tuple[int, Claim, int]], ledger: Ledger) -> Occupant:
    """Take a replica from the ledger; `members` = place, claim, GPU share in 1/10000. ValueError if it does not fit."""
    there: dict[int, tuple[Planned, ...]] = {}
    for place, claim, gpus in members:
        taken = ledger.take(place, claim)
        if taken is None:
            raise ValueError(f"{model}/{replica_id} does not fit on {ledger.nodes[place].name} any more")
        there[place] = (*there.get(place, ()), Planned(claim, gpus, taken.indices))
    ledger.take_slots(model, there)
    return Occupant(model, replica_id, planned=there)
