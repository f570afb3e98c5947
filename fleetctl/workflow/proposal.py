"""The plan of an apply: made now or saved, checked against the cluster and the fleet's policy.

A plan made now is made again during the apply, only for the replicas that nodes refuse, and those that follow a pilot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.apply.prepare import ApplyTask, prepare_saved
from fleetctl.apply.run import ReplanWanted, limited_to_refused
from fleetctl.documents.plan import Plan
from fleetctl.errors import FleetctlError, PlanStale, PolicyRefused
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.planner.options import USUAL_EXPIRY_S, PlanOptions, options_of
from fleetctl.planner.policy import refusing
from fleetctl.workflow.dashboard import live_source, open_dashboard
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.planning import Adjust, PlannedFleet, plan_fleet, plan_on
from fleetctl.workflow.saved_plan import read_saved_plan

FINDINGS_LISTED = 20
"""Thousands of models may violate a policy."""

OfferNewPlan = Callable[[PlanStale, Plan], Plan]
"""Offers a new plan for a stale one and returns it if the user accepts; raises the PlanStale otherwise."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan to apply; `shown` = the plan with additions for display, `agreed` = the user has confirmed this plan.

    `loaded` = the fleet it was planned from; None = the plan was saved.
    """

    task: ApplyTask
    shown: Plan
    agreed: bool = False
    loaded: LoadedFleet | None = None


@contextmanager
def proposed_by_fleet(
    invocation: Invocation, loaded: LoadedFleet, options: PlanOptions, where: Where, adjust: Adjust | None = None
) -> Iterator[Proposal]:
    """Plan now; such an apply is never stale, and adapts to its agent's findings. Raises as `plan_fleet` does."""
    with open_dashboard(invocation, where.address, loaded.sound().cluster.address) as client:
        planned = plan_fleet(invocation, loaded, options, where, adjust=adjust)
        replanner = FleetReplanner(invocation, planned, where)
        yield Proposal(ApplyTask(client, planned.plan, replanner=replanner), planned.shown(), loaded=loaded)


@contextmanager
def proposed_by_plan(
    invocation: Invocation, plan_file: str, address: str | None, offer_new_plan: OfferNewPlan
) -> Iterator[Proposal]:
    """Load a saved plan and check that it is still valid; `offer_new_plan` is called if it is not.

    Raises PlanStale, with the differences, unless the user accepts the new plan instead; and PlanUsed.
    """
    plan = read_saved_plan(invocation, plan_file)
    with open_dashboard(invocation, address, plan.inventory.address) as client:
        try:
            with invocation.working("checking the plan against the cluster"):
                task, agreed = prepare_saved(client, plan, invocation.now, plan_file), False
        except PlanStale as stale:
            task, agreed = ApplyTask(client, offer_new_plan(stale, plan)), True
        yield Proposal(task, task.plan, agreed)


def plan_again(invocation: Invocation, plan: Plan, address: str | None, *, force: bool) -> Plan:
    """Plan from the files and flags of a saved plan, on the cluster as it is now; raises FleetctlError."""
    options = options_of(plan)
    options = replace(options, force=force or options.force)
    if not options.files:
        raise FleetctlError("the plan does not say which fleet files it was made from")
    if "-" in options.files:
        raise FleetctlError("the plan was made from standard input")
    loaded = inspect_fleet(options.files)
    fleet = loaded.sound()
    if fleet.name != plan.fleet.name:  # the same file names in another folder
        raise FleetctlError(f"the files here belong to fleet {fleet.name}, the plan to fleet {plan.fleet.name}")
    # an address in a file, not a given one: the plan is also a file, and must not decide where a token goes
    there = fleet.cluster.model_copy(update={"address": plan.inventory.address})
    loaded = replace(loaded, fleet=replace(fleet, cluster=there))
    return plan_fleet(invocation, loaded, options, Where(None, address, plan.fleet.namespace)).plan


def edited_since(plan: Plan, fresh: Plan) -> Iterator[str]:
    """Yield the fleet files whose text has changed since the plan was made; the changes may be unreviewed."""
    then = {source.path: source.sha256 for source in plan.fleet.files}
    return (str(Path(source.path)) for source in fresh.fleet.files if then.get(source.path) != source.sha256)


def refuse_by_policy(invocation: Invocation, plan: Plan, *, force: bool) -> None:
    """As `require_allowed`, with a warning for each limit that --force lifts."""
    require_allowed(plan, force=force)
    for finding in plan.policy:
        invocation.say("warning", f"lifted by --force: {finding.key}: {finding.limit}; the plan {finding.found}")


def require_allowed(plan: Plan, *, force: bool) -> None:
    """Raise PolicyRefused with every policy that forbids the plan; `force` lifts thresholds."""
    findings = refusing(plan.policy, force=force)
    if findings:
        reasons = "" if len(findings) == 1 else f", for {len(findings)} reasons"
        listed, left_out = [finding.message for finding in findings[:FINDINGS_LISTED]], len(findings) - FINDINGS_LISTED
        listed += [f"and {left_out} more; `fleetctl plan --format json` lists them"] if left_out > 0 else []
        raise PolicyRefused(f"refused by the policy of the fleet{reasons}; nothing was started", listed=listed,
                            hint="use smaller steps, or change spec.policy in a separate review")


class FleetReplanner:
    """Makes the plan of one apply again, each time for the replicas that nodes have refused, that have failed, or that
    follow a pilot.
    """

    def __init__(self, invocation: Invocation, planned: PlannedFleet, where: Where) -> None:
        self._invocation = replace(invocation, working=nullcontext)  # the apply has its own display
        self._planned = planned
        self._where = where
        self._blocked = {row.model: row for row in planned.plan.blocked}
        self._after_pilot: Mapping[str, int] = Counter(action.model for action in planned.plan.after_pilot)
        self._held_back = planned.options.held_back

    def __call__(self, wanted: ReplanWanted) -> Plan:
        """Return the plan for these replicas, with the agent's view of the cluster; raises FleetctlError.

        A variant that has failed gets no more replicas in this apply, however often that was.
        """
        refused, planned = wanted.wanted_by_model(self._after_pilot), self._planned
        ignore = planned.options.ignore_cooldown and not wanted.lacks_image  # else that node would be chosen again
        self._held_back |= wanted.failed_variants
        options = replace(planned.options, targets=tuple(sorted(refused)), ignore_cooldown=ignore,
                          held_back=self._held_back)
        with live_source(self._invocation, self._where, planned.fleet.cluster) as source:
            seen_by_agent = replace(source, agent=wanted.view())
            made = plan_on(self._invocation, seen_by_agent, planned.fleet, options, self._where, USUAL_EXPIRY_S,
                           git=planned.facts.git)
        former = planned.plan.model_copy(update={"blocked": list(self._blocked.values())})
        limited = limited_to_refused(made.plan, former, refused, wanted.failed_by_model())
        self._blocked = {key: row for key, row in self._blocked.items() if key not in refused}
        self._blocked |= {row.model: row for row in limited.blocked}
        later = Counter(action.model for action in limited.after_pilot)
        self._after_pilot = {**self._after_pilot, **{model: later[model] for model in refused}}
        return limited
