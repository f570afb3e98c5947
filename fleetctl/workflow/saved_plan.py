"""Saved plans: written for `apply` by `plan --out`, read again by `apply` and `show`.

`show` also checks whether a plan could be applied now, and draws its placement map.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.documents.canonical import short_commit
from fleetctl.documents.fleet import Cluster
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.loading import load_plan
from fleetctl.documents.plan import Plan
from fleetctl.errors import DocumentError, FleetctlError, PlanStale, PlanUsed
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.planner.options import has_expired, require_complete
from fleetctl.planner.policy import refusing
from fleetctl.render.plan_json import saved_plan_json
from fleetctl.version import __version__
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.output_files import write_file

if TYPE_CHECKING:
    from fleetctl.documents.answers import PlacementMap


def save_plan(invocation: Invocation, plan: Plan, out: Path, now: str) -> None:
    """Write the plan, readable only by its owner, and print how to apply it; `now` is RFC 3339."""
    write_file(out, saved_plan_json(plan), mode=0o600)
    refused = ""
    if has_expired(plan, now):
        refused = f"its inventory is from {plan.inventory.observed_at}, so it expired at {plan.expires_at}"
    elif refusing(plan.policy):
        refused = ("a policy of the fleet forbids it" if refusing(plan.policy, force=True)
                   else "it exceeds a threshold of the fleet's policy; plan or apply it with --force")
    if refused:
        invocation.say("saved", str(out))
        invocation.say("warning", f"`fleetctl apply` will refuse it: {refused}")
        return
    until = f" until {plan.expires_at}" if plan.expires_at else ""
    invocation.say("saved", f"{out}; run it with `fleetctl apply {shlex.quote(str(out))}`{until}")


def read_saved_plan(invocation: Invocation, path: str, *, masked_too: bool = False) -> Plan:
    """Return the plan in `path`, or on standard input for `-`; raises DocumentError for a file that is not a plan.

    `masked_too` = also accept the output of `plan --format json`, which can be shown but not applied.
    """
    try:
        text = (invocation.stdin() if path == "-" else read_whole(path)).decode("utf-8")
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path} is not UTF-8 text (byte {error.start})") from None
    return load_plan(text, path, masked_too=masked_too)


def origin_of(plan: Plan, now: str) -> str:
    """Return the origin of a saved plan, and until when it may be applied. `now` is RFC 3339."""
    git = plan.fleet.git
    dirty = " with uncommitted changes" if git and git.dirty else ""
    commit = f"commit {short_commit(git.commit)}{dirty}" if git else "commit unknown"
    other = "" if plan.tool_version == __version__ else f" (this is {__version__})"
    until = (f"{'expired at' if has_expired(plan, now) else 'valid until'} {plan.expires_at}" if plan.expires_at
             else "never expires")
    return f"{plan.plan_id[:10]}, {commit}, made by fleetctl {plan.tool_version}{other}, {until}"


@dataclass(frozen=True, slots=True)
class CheckedPlan:
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


def check_plan(invocation: Invocation, plan: Plan, saved_as: str, where: Where, *, ask: bool) -> CheckedPlan:
    """Check whether the plan, saved as that file, could be applied now; the cluster is read only with `ask`.

    Raises InventoryError when the inventory to check against is incomplete.
    """
    from fleetctl.apply.prepare import refuse_expired, refuse_moved, refuse_used  # the client, which no plan needs
    from fleetctl.inventory.dashboard import Live
    from fleetctl.workflow.dashboard import open_dashboard

    def read() -> Inventory:
        if where.inventory:
            return Snapshot(where.inventory, stdin=invocation.stdin).read()
        with open_dashboard(invocation, where.address, plan.inventory.address, or_inventory=True) as client:
            refuse_used(client, plan, saved_as)
            return Live(client, invocation.now, plan.fleet.namespace).read()

    now, seen, refusal = invocation.now(), None, None
    try:
        if ask:
            with invocation.working("checking the plan against the cluster"):
                seen = read()
            require_complete(seen)
            now = now if where.inventory else seen.observed_at
            refuse_moved(plan, seen, saved_as)
        refuse_expired(plan, now, saved_as)
    except (PlanStale, PlanUsed) as error:
        refusal = error
    return CheckedPlan(plan, seen, refusal, now)


def _fleet_of(plan: Plan) -> ResolvedFleet:
    """Return the plan's fleet if its files still exist unchanged, else an empty fleet with its name."""
    files = plan.options.files
    plain = all(Path(file).is_file() or Path(file).is_dir() for file in files)  # plans may come from anywhere
    try:
        fleet = load_fleet(files) if files and plain else None
    except FleetctlError:
        fleet = None
    if fleet is not None and list(fleet.files) == plan.fleet.files:
        return fleet
    return ResolvedFleet(name=plan.fleet.name, cluster=Cluster(), policies=(), models=(), files=())
