"""Checks whether a saved plan could be applied now, without applying it; and draws its placement map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetctl.apply.prepare import refuse_expired, refuse_moved, refuse_used
from fleetctl.documents.answers import PlacementMap
from fleetctl.documents.fleet import Cluster
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.errors import FleetctlError, PlanStale, PlanUsed
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.planner.options import require_complete
from fleetctl.workflow.dashboard import open_dashboard
from fleetctl.workflow.invocation import Invocation, Where


@dataclass(frozen=True, slots=True)
class Checked:
    """A plan, the inventory it was checked against (None = none), and why an apply would refuse it `now`."""

    plan: Plan
    inventory: Inventory | None
    refusal: PlanStale | PlanUsed | None
    now: str

    def map(self) -> PlacementMap | None:
        """Return the map with the plan's new replicas; None without an inventory or if the plan does not fit."""
        from fleetctl.planner.questions.occupancy import placement_map  # NumPy
        from fleetctl.planner.questions.scenario import Scenario

        if self.inventory is None or (self.refusal and self.refusal.listed):
            return None
        scenario = Scenario(_fleet_of(self.plan), self.inventory, self.plan.options.adopt_from)
        try:
            return placement_map(scenario, self.plan)
        except ValueError:  # it fits only with a policy of the fleet file, which is not available
            return None


def check_plan(invocation: Invocation, plan: Plan, saved_as: str, where: Where, *, ask: bool) -> Checked:
    """Check whether the plan, saved as that file, could be applied now; the cluster is read only with `ask`.

    Raises InventoryError when the inventory to check against is incomplete.
    """
    now, seen, refusal = invocation.now(), None, None
    try:
        if ask:
            with invocation.working("checking the plan against the cluster"):
                seen = _read(invocation, plan, saved_as, where)
            now = now if where.inventory else seen.observed_at
            refuse_moved(plan, seen, saved_as)
        refuse_expired(plan, now, saved_as)
    except (PlanStale, PlanUsed) as error:
        refusal = error
    return Checked(plan, seen, refusal, now)


def _read(invocation: Invocation, plan: Plan, saved_as: str, where: Where) -> Inventory:
    """Return the inventory to check against; first checks whether the cluster has applied the plan before."""
    if where.inventory:
        seen = Snapshot(where.inventory, stdin=invocation.stdin).read()
    else:
        with open_dashboard(invocation, where.address, plan.inventory.address, or_inventory=True) as client:
            refuse_used(client, plan, saved_as)
            seen = Live(client, invocation.now, plan.fleet.namespace).read()
    require_complete(seen)
    return seen


def _fleet_of(plan: Plan) -> ResolvedFleet:
    """Return the plan's fleet if its files still exist unchanged, else an empty fleet with its name."""
    files = plan.options.files
    plain = all(Path(file).is_file() or Path(file).is_dir() for file in files)  # plans may come from anywhere
    try:
        found = load_fleet(files) if files and plain else None
    except FleetctlError:
        found = None
    if found is not None and list(found.files) == plan.fleet.files:
        return found
    return ResolvedFleet(name=plan.fleet.name, cluster=Cluster(), policies=(), models=(), files=())
