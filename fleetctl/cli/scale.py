"""`fleetctl scale` and `fleetctl deploy`: an apply of one model, to a number of replicas other than the file's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import Annotated

import typer

from fleetctl.apply.prepare import ApplyOptions
from fleetctl.cli import flags
from fleetctl.cli.apply_run import ApplyFormat, ApplyOutput, FormatOption, agreed_to, carry_out
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import say
from fleetctl.cli.process import this_invocation
from fleetctl.documents.fleet import MAX_REPLICAS
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.planner.options import PlanOptions, file_flags
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.proposal import proposed_by_fleet
from fleetctl.workflow.scaling import Scaling, look_up

app = command_app()


@app.command(epilog=epilog(
    "fleetctl deploy org/model -f fleets/prod.yaml",
    "fleetctl deploy org/model --replicas 1 -f fleets/prod.yaml",
    exit_codes="0 all are ready, 1 error before any action, or replicas are already live, 3 partial, 4 refused by "
               "policy, 5 another apply holds the lock, 7 --wait-timeout passed, 64 usage, 130 interrupted"))
def deploy(
    *,
    model: flags.Model,
    files: flags.FlaggedFiles,
    replicas: Annotated[int | None, flags.option(
        "--replicas", metavar="N", min=1, max=MAX_REPLICAS,
        help="Number of replicas to start. [default: the number in the file]")] = None,
    start: flags.Starting,
    output_format: FormatOption = "table",
) -> int:
    """Start the first replicas of a model in the fleet file.

    Refused if any replica of the model is live.
    """
    invocation = this_invocation()
    found = look_up(invocation, files, model, start.where)
    if found.live:
        raise FleetctlError(f"{model} has {count_of(found.live, 'live replica')}",
                            hint=f"`fleetctl scale {quote(model)} --replicas N {file_flags(files)}` starts more")
    return _apply(invocation, found, files, replicas if replicas is not None else found.wanted, start, output_format)


@app.command(epilog=epilog(
    "fleetctl scale openai-community/gpt2 --replicas 5 -f fleets/demo.yaml",
    "fleetctl scale openai-community/gpt2 --scale-up 2 -f fleets/demo.yaml",
    exit_codes="0 all are ready, 1 error before any action, 3 partial, 4 refused by policy, 5 another apply holds the "
               "lock, 7 --wait-timeout passed, 64 usage, 130 interrupted"))
def scale(
    *,
    model: flags.Model,
    files: flags.FlaggedFiles,
    replicas: Annotated[int | None, flags.option(
        "--replicas", metavar="N", min=0, max=MAX_REPLICAS, help="Total number of replicas that should run.")] = None,
    scale_up: Annotated[int | None, flags.option(
        "--scale-up", metavar="N", min=1, max=MAX_REPLICAS, help="Number of replicas to add to the live ones.")] = None,
    dedicated: Annotated[bool, typer.Option(
        "--dedicated", help="Give the new replicas whole cards instead of the share in the file.")] = False,
    start: flags.Starting,
    output_format: FormatOption = "table",
) -> int:
    """Start replicas of a model until N run; it never removes any.

    The fleet file must have the model, and is not changed: if it wants fewer, plans hold the surplus replicas and
    report them. Plans treat a replica started with --dedicated like any other; a replica that an apply or `replace`
    starts in its place gets the file's share again.
    """
    if (replicas is None) == (scale_up is None):
        raise UsageError("give either --replicas N or --scale-up N")
    invocation = this_invocation()
    found = look_up(invocation, files, model, start.where)
    number = replicas if replicas is not None else found.live + (scale_up or 0)
    if number <= found.live:
        say("note", f"{model}: {found.live} are live, {number} wanted; nothing to start. Scale never removes "
                    "replicas; `fleetctl evict` does")
    return _apply(invocation, found, files, number, start, output_format, dedicated=dedicated)


def _apply(
    invocation: Invocation, found: Scaling, files: Sequence[str], number: int, start: flags.StartFlags,
    output_format: ApplyFormat, *, dedicated: bool = False,
) -> int:
    """Show the plan for this number of replicas, ask and apply; returns the exit code.

    `dedicated` as in `ResolvedModel`. First reports what the next apply will do about a number other than the file's.
    """
    if number > max(found.live, found.wanted):
        say("note", f"{found.model}: the fleet file wants {found.wanted}; change it there, or the next plan "
                    f"holds {number - found.wanted} of them as surplus")
    elif found.live < number < found.wanted:
        say("note", f"{found.model}: the fleet file wants {found.wanted}; the next apply starts "
                    f"{count_of(found.wanted - number, 'replica')} more")
    output = ApplyOutput(output_format)
    options = PlanOptions((found.model,), force=start.force, files=tuple(files),
                          ignore_cooldown=start.ignore_cooldown)
    with output.ends_with_summary(), \
            proposed_by_fleet(invocation, found.to(number, dedicated=dedicated), options, start.where) as proposal:
        output.plan = proposal.task.plan
        shown = replace(proposal, shown=_about(proposal.shown, found.model))
        if not agreed_to(invocation, shown, output_format, force=start.force, yes=start.yes or start.dry_run):
            return 1
        if start.dry_run:
            return output.show_dry_run()
        return carry_out(proposal.task, ApplyOptions(lock_timeout_s=start.lock_timeout), output, start.wait_timeout)


def _about(plan: Plan, model: str) -> Plan:
    """Return the part of the plan about one model, for display."""
    [row] = [row for row in plan.models if row.key == model]
    drift = [one for one in plan.drift if one.model == model]
    lost = [one for one in plan.lost if one.model == model]
    summary = plan.summary.model_copy(update={
        "wanted": row.wanted, "live": row.live, "hold": row.surplus, "starting": row.starting - row.restarting,
        "restarting": row.restarting, "not_ready": row.not_ready, "outdated": row.outdated, "drift": len(drift),
        "lost": len(lost), "unmanaged": 0})
    return plan.model_copy(update={"models": [row], "drift": drift, "lost": lost, "unmanaged": [], "summary": summary})
