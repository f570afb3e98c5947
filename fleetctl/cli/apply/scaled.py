"""The run behind `scale` and `deploy`: an apply of one model, to a number of replicas other than the file's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetctl.apply.prepare import ApplyOptions
from fleetctl.cli.apply.agreement import agreed_to
from fleetctl.cli.apply.follow import carry_out
from fleetctl.cli.apply.output import ApplyFormat, ApplyOutput
from fleetctl.cli.console import say
from fleetctl.cli.flags import StartFlags
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.planner.options import PlanOptions
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.proposal import proposed_by_fleet
from fleetctl.workflow.scaling import Scaling


def apply_scaled(
    invocation: Invocation, found: Scaling, files: Sequence[str], replicas: int, start: StartFlags,
    output_format: ApplyFormat, *, dedicated: bool = False,
) -> int:
    """Show the plan, ask and apply; returns the exit code. `dedicated` as in `ResolvedModel`."""
    if replicas > found.live:
        _compare(found, replicas)
    output = ApplyOutput(output_format)
    options = PlanOptions((found.model,), force=start.force, files=tuple(files),
                          ignore_cooldown=start.ignore_cooldown)
    with output.ends_with_summary(), \
            proposed_by_fleet(invocation, found.to(replicas, dedicated=dedicated), options, start.where) as proposal:
        output.plan = proposal.task.plan
        shown = replace(proposal, shown=_about(proposal.shown, found.model))
        if not agreed_to(invocation, shown, output_format, force=start.force, yes=start.yes or start.dry_run):
            return 1
        if start.dry_run:
            return output.show_dry_run()
        return carry_out(proposal.task, ApplyOptions(lock_timeout_s=start.lock_timeout), output, start.wait_timeout)


def _compare(found: Scaling, number: int) -> None:
    """Report what the next apply will do about a number that differs from the file's."""
    if number > found.wanted:
        say("note", f"{found.model}: the fleet file wants {found.wanted}; change it there, or the next plan "
                    f"holds {number - found.wanted} of them as surplus")
    elif number < found.wanted:
        say("note", f"{found.model}: the fleet file wants {found.wanted}; the next apply starts "
                    f"{count_of(found.wanted - number, 'replica')} more")


def _about(plan: Plan, model: str) -> Plan:
    """Return the part of the plan about one model, for display."""
    [row] = [row for row in plan.models if row.key == model]
    drift = [one for one in plan.drift if one.model == model]
    lost = [one for one in plan.lost if one.model == model]
    summary = plan.summary.model_copy(update={
        "wanted": row.wanted, "live": row.live, "hold": row.surplus, "starting": row.starting - row.restarting,
        "restarting": row.restarting, "outdated": row.outdated, "drift": len(drift), "lost": len(lost), "unmanaged": 0})
    return plan.model_copy(update={"models": [row], "drift": drift, "lost": lost, "unmanaged": [], "summary": summary})
