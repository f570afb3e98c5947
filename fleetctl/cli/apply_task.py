"""What an apply is to carry out, and whether it may: a plan made now or a saved one, its policy, and the question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.cli.apply_output import ApplyFormat

if TYPE_CHECKING:
    from fleetctl.apply.prepare import ApplyTask
    from fleetctl.cli.outdated import Changes
    from fleetctl.cli.planning import Where
    from fleetctl.documents.plan import Plan
    from fleetctl.planner.options import PlanOptions


FINDINGS_LISTED = 20


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is to be applied; `agreed` = a person has seen this plan and said yes to it.

    `changes` = what outdated replicas run differently, to be shown.
    """

    task: ApplyTask
    agreed: bool = False
    changes: Changes = field(default_factory=dict)


@contextmanager
def proposed_by_files(options: PlanOptions, where: Where) -> Iterator[Proposal]:
    """Plan afresh; such an apply is never stale, and plans around what its agent finds. Raises what planning raises."""
    from fleetctl.apply.prepare import ApplyTask
    from fleetctl.cli.connect import open_dashboard, read_stdin
    from fleetctl.cli.planning import plan_fleet
    from fleetctl.cli.replanning import FleetReplanner
    from fleetctl.fleetfile.load import load_fleet

    fleet = load_fleet(options.files, stdin=read_stdin)
    with open_dashboard(where.address, fleet.cluster.address) as client:
        planned = plan_fleet(fleet, options, where)
        yield Proposal(ApplyTask(client, planned.plan, replanner=FleetReplanner(fleet, options, where, planned.plan)),
                       changes=planned.changes)


@contextmanager
def proposed_by_plan(plan_file: str, address: str | None, *, force: bool, yes: bool) -> Iterator[Proposal]:
    """Load a saved plan and check that what it relies on still holds; where it does not, offer the plan as it is now.

    Raises PlanStale, with what has moved, unless a person takes the new plan instead; and PlanUsed.
    """
    from fleetctl.apply.prepare import ApplyTask, prepare_saved
    from fleetctl.cli.apply_offer import take_new_plan
    from fleetctl.cli.connect import now_text, open_dashboard
    from fleetctl.cli.saved_plan import read_saved_plan
    from fleetctl.errors import PlanStale

    plan = read_saved_plan(plan_file)
    with open_dashboard(address, plan.inventory.address) as client:
        try:
            proposal = Proposal(prepare_saved(client, plan, now_text(), plan_file))
        except PlanStale as stale:
            fresh = take_new_plan(stale, plan, address, force=force, yes=yes)
            proposal = Proposal(ApplyTask(client, fresh), agreed=True)
        yield proposal


def agreed_to(proposal: Proposal, output_format: ApplyFormat, *, force: bool, yes: bool) -> bool:
    """Show the plan, refuse what policy forbids, and ask where there is something to create; `yes` answers.

    Raises PolicyRefused, and UsageError when there is nobody to ask.
    """
    from fleetctl.cli.outdated import with_changes

    plan = proposal.task.plan
    asks = bool(plan.actions) and not yes and not proposal.agreed
    if not proposal.agreed:
        _show_plan(with_changes(plan, proposal.changes), output_format, asks=asks)
    refuse_by_policy(plan, force=force)
    return not asks or _confirmed(proposal.task)


def refuse_by_policy(plan: Plan, *, force: bool) -> None:
    """Raise PolicyRefused, naming every policy that forbids the plan; `force` lifts thresholds."""
    from fleetctl.cli.console import say
    from fleetctl.errors import PolicyRefused
    from fleetctl.planner.policy import refusing

    findings = refusing(plan.policy, force=force)
    if findings:
        reasons = "" if len(findings) == 1 else f", for {len(findings)} reasons"
        raise PolicyRefused(f"refused by the policy of the fleet{reasons}; nothing was begun",
                            findings=_listed([finding.message for finding in findings]),
                            hint="go in smaller steps, or change spec.policy in a review of its own")
    for finding in plan.policy:
        say("warning", f"lifted by --force: {finding.key}: {finding.limit}; the plan {finding.found}")


def _listed(messages: Sequence[str]) -> list[str]:
    """Return what an error lists: a policy that is broken for every model of a fleet is not told thousands of times."""
    left_out = len(messages) - FINDINGS_LISTED
    more = [f"and {left_out} more; `fleetctl plan --format json` lists them"] if left_out > 0 else []
    return [*messages[:FINDINGS_LISTED], *more]


def _show_plan(plan: Plan, output_format: ApplyFormat, *, asks: bool) -> None:
    """Show the plan as part of the result; in a format for programs only to the person who is asked."""
    from fleetctl.cli.console import message_console, result_console
    from fleetctl.render.report.of_plan import plan_report
    from fleetctl.render.report.terminal import print_report

    if output_format is ApplyFormat.TABLE or asks:
        console = result_console() if output_format is ApplyFormat.TABLE else message_console()
        print_report(plan_report(plan), console)
        console.print()


def _confirmed(task: ApplyTask) -> bool:
    from fleetctl.cli.connect import now_text
    from fleetctl.cli.console import confirm, say
    from fleetctl.cli.saved_plan import origin_of

    if task.single_use:
        say("plan", origin_of(task.plan, now_text()))
    count = len(task.plan.actions)
    if confirm(f"Create {count} replica{'' if count == 1 else 's'}?", yes=False):
        return True
    say("note", "nothing was done")
    return False
