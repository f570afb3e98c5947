"""The questions of an apply: show the plan and ask before applying it; offer a new plan if a saved one is stale.

A script is never asked. --yes does not accept a new plan: it was given for the saved one.
"""

from __future__ import annotations

from fleetctl.apply.prepare import ApplyTask
from fleetctl.cli import console
from fleetctl.cli.apply.output import ApplyFormat
from fleetctl.cli.console import confirm, message_console, result_console, say, show_report
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetctlError, PlanStale
from fleetctl.planner.policy import refusing
from fleetctl.render.report.of_plan import plan_report
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.proposal import Proposal, edited_since, plan_again, refuse_by_policy
from fleetctl.workflow.saved_plan import origin_of


def agreed_to(
    invocation: Invocation, proposal: Proposal, output_format: ApplyFormat, *, force: bool, yes: bool
) -> bool:
    """Show the plan, refuse it if policy forbids it, and ask if there is something to create; with `yes`, do not ask.

    Raises PolicyRefused, and UsageError if there is no terminal to ask on.
    """
    plan = proposal.task.plan
    asks = bool(plan.acts or plan.new_nodes) and not yes and not proposal.agreed
    if not proposal.agreed and (output_format == "table" or asks):
        # in the formats for programs the plan is not part of the result: it is shown only to a person who is asked
        shown_on = result_console() if output_format == "table" else message_console()
        show_report(plan_report(proposal.shown), shown_on)
        shown_on.print()
    refuse_by_policy(invocation, plan, force=force)
    return not asks or _confirmed(invocation, proposal.task)


def _confirmed(invocation: Invocation, task: ApplyTask) -> bool:
    if task.single_use:
        say("plan", origin_of(task.plan, invocation.now()))
    plan, steps = task.plan, list[str]()
    if plan.actions or not (plan.acts or plan.new_nodes):
        steps.append(f"create {count_of(len(plan.actions), 'replica')}")
    if plan.reloads:
        steps.append(f"reload the weights of {count_of(len(plan.reloads), 'replica')} in place")
    if plan.summary.prefetch:
        steps.append(f"fetch weights onto {count_of(plan.summary.prefetch, 'node')}")
    if plan.new_nodes:
        steps.append(f"request {plan.new_nodes} from the autoscaler")
    question = " and ".join(steps)
    return confirm(f"{question[0].upper()}{question[1:]}?", yes=False, otherwise="nothing was done")


def offer_new_plan(
    invocation: Invocation, address: str | None, stale: PlanStale, plan: Plan, *, force: bool, yes: bool
) -> Plan:
    """Make a new plan from the files and flags of a stale one, show it, and return it if it is accepted.

    Otherwise, or if no new plan can be made here, raises the PlanStale.
    """
    try:
        fresh = plan_again(invocation, plan, address, force=force)
    except FleetctlError as error:
        say("note", f"no new plan can be made here: {error.message}")
        raise stale from None
    asks = console.may_ask() and not yes and fresh.acts and not refusing(fresh.policy)
    if asks:
        say("refused", stale.message)
        say("moved", *stale.listed)
    say("note", "the plan as it would be made now:")
    show_report(plan_report(fresh), message_console())
    say("warning", *(f"{path} has changed since the plan was made" for path in edited_since(plan, fresh)))
    if not asks:
        raise stale
    if not confirm("Apply the new plan instead?", yes=False):
        raise PlanStale("the stale plan was not applied", hint=stale.hint)
    return fresh
