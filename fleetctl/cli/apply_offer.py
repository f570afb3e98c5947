"""A saved plan that is stale: shows the plan as it would be made now, and on a terminal asks whether to take that one.

Nobody is asked in a script, and --yes is no answer here: it was said about the plan that was saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError, PlanStale

if TYPE_CHECKING:
    from fleetctl.documents.plan import Plan


def take_new_plan(stale: PlanStale, plan: Plan, address: str | None, *, force: bool, yes: bool) -> Plan:
    """Show the plan that would be made now from the same files and flags; return it if a person takes it.

    Raises `stale` otherwise, also where no new plan can be made here.
    """
    from fleetctl.cli.console import confirm, may_ask, message_console, say
    from fleetctl.planner.policy import refusing
    from fleetctl.render.report.of_plan import plan_report
    from fleetctl.render.report.terminal import print_report

    try:
        fresh = _plan_again(plan, address, force=force)
    except FleetctlError as error:
        say("note", f"no new plan can be made here: {error.message}")
        raise stale from None
    asks = may_ask() and not yes and bool(fresh.actions) and not refusing(fresh.policy)
    if asks:
        _say_why(stale)
    say("note", "the plan as it would be made now:")
    print_report(plan_report(fresh), message_console())
    for path in _edited(plan, fresh):
        say("warning", f"{path} is not what it was when the plan was made")
    if not asks:
        raise stale
    if not confirm("Apply the new plan instead?", yes=False):
        raise PlanStale("the stale plan was not applied", hint=stale.hint)
    return fresh


def _plan_again(plan: Plan, address: str | None, *, force: bool) -> Plan:
    """Plan from the same files, with the same flags, on the cluster as it is; raises FleetctlError where it cannot."""
    from fleetctl.cli.planning import Where, plan_fleet
    from fleetctl.fleetfile.load import load_fleet
    from fleetctl.planner.options import PlanOptions

    said = plan.options
    options = PlanOptions(tuple(said.targets), tuple(said.excludes), said.adopt_from, force or said.force,
                          tuple(said.files))
    if not options.files:
        raise FleetctlError("the plan does not say which fleet files it was made from")
    if "-" in options.files:
        raise FleetctlError("the plan was made from standard input")
    fleet = load_fleet(options.files)
    if fleet.name != plan.fleet.name:  # the same file names in another folder
        raise FleetctlError(f"the files here are those of fleet {fleet.name}, the plan is of {plan.fleet.name}")
    # as what a file names, not as what was given: the plan is a file, too, and may not say where a token goes
    there = fleet.cluster.model_copy(update={"address": plan.inventory.address})
    return plan_fleet(replace(fleet, cluster=there), options, Where(None, address, plan.fleet.namespace)).plan


def _edited(plan: Plan, fresh: Plan) -> Iterator[str]:
    """Yield the fleet files whose text has changed since the plan was made; what is in them now may be unreviewed."""
    then = {source.path: source.sha256 for source in plan.fleet.files}
    for source in fresh.fleet.files:
        if then.get(source.path) != source.sha256:
            yield str(Path(source.path))


def _say_why(stale: PlanStale) -> None:
    from fleetctl.cli.console import say

    say("refused", stale.message)
    for moved in stale.moved:
        say("moved", moved)
