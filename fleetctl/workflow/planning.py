"""The one way to a plan, for `plan`, `apply` and `ci`: read the inventory, add git, time and version, and plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.apply.replan_command import USUAL_EXPIRY_S
from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import GitFacts, Plan
from fleetctl.documents.quantity import count_of
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.version import __version__
from fleetctl.workflow.cluster import asking_about, inventory_source, read, resolve_namespace
from fleetctl.workflow.git_facts import git_facts
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.planned import Planned

if TYPE_CHECKING:
    from fleetctl.inventory.dashboard import InventorySource
    from fleetctl.review.inputs import Side

AsIf = Callable[[Inventory], Inventory]


def plan_fleet(
    invocation: Invocation, loaded: LoadedFleet, options: PlanOptions, where: Where, *,
    base: Side | None = None, expires_s: float = USUAL_EXPIRY_S, as_if: AsIf | None = None, git: GitFacts | None = None,
) -> Planned:
    """Read the inventory and plan the fleet on it; with a `base` the plan says what the change since then causes alone.

    `as_if` = what to take the inventory for; `git` = the commit of the files, where they are not on disk. Warnings go
    to standard error. Raises FleetFileError for a fleet with errors, InventoryError when the inventory could not be
    read whole, UsageError when --target or --exclude name no model.
    """
    fleet = loaded.sound()
    with inventory_source(invocation, where, fleet.cluster) as source:
        def plan() -> Planned:
            return plan_on(invocation, source, fleet, options, where, expires_s, as_if, git)

        planned = plan()
        if not isinstance(source, Snapshot):
            from fleetctl.workflow.live_plan import with_answers  # needs the client and the history of applies

            planned = with_answers(invocation, source, planned, plan)
    for warning in planned.inventory.warnings:
        invocation.say("warning", warning)
    if base is None:
        return planned
    from fleetctl.workflow.base_plan import add_change  # comparing two fleets

    return replace(planned, plan=add_change(invocation, base, loaded, planned))


def expiry(observed_at: str, after_s: float = USUAL_EXPIRY_S) -> str | None:
    """Return when a plan made at `observed_at` (RFC 3339) expires; None for text that is not a time."""
    try:
        return (as_datetime(observed_at) + timedelta(seconds=int(after_s))).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):  # the latter for the last day there is
        return None


def plan_on(
    invocation: Invocation, source: InventorySource, fleet: ResolvedFleet, options: PlanOptions, where: Where,
    expires_s: float, as_if: AsIf | None = None, git: GitFacts | None = None,
) -> Planned:
    """Read the inventory from `source` and plan the fleet on it, once; warnings stay in the inventory."""
    seen = read(invocation, asking_about(source, fleet))
    seen = as_if(seen) if as_if else seen
    facts = PlanFacts(
        tool_version=__version__,
        git=git or git_facts([file.path for file in fleet.files], invocation.environ),
        expires_at=expiry(seen.observed_at, expires_s),
        namespace=resolve_namespace(invocation, where, fleet.cluster),
        address=seen.cluster.address,
    )
    with invocation.working(f"planning {count_of(len(fleet.models), 'model')}"):
        return Planned(fleet, seen, options, facts, (invocation.make_plan or _at_once)(fleet, seen, options, facts))


def _at_once(fleet: ResolvedFleet, seen: Inventory, options: PlanOptions, facts: PlanFacts) -> Plan:
    from fleetctl.planner.plan import make_plan  # NumPy: --help and an attached apply need none

    return make_plan(fleet, seen, options, facts)
