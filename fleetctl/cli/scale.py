"""`fleetctl scale` and `fleetctl deploy`: an apply of one model, to a number of replicas other than the file's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from fleetctl.apply.prepare import ApplyOptions
from fleetctl.cli import flags
from fleetctl.cli.apply_run import ApplyFormat, ApplyOutput, FormatOption, carry_out, show_proposal
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import say
from fleetctl.cli.process import this_invocation
from fleetctl.cli.verb import perform
from fleetctl.documents.fleet import MAX_REPLICAS
from fleetctl.documents.names import command_line
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.planner.options import PlanOptions, file_flags
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.proposal import proposed_by_fleet
from fleetctl.workflow.scaling import Scaling, look_up

app = command_app()


def _added(value: str) -> int:
    """Return the number of --scale-up; 0 = none was given."""
    if value and not (value.isascii() and value.isdecimal() and 1 <= int(value[:9]) <= MAX_REPLICAS):
        raise typer.BadParameter(f"{value} is not in the range 1<=x<={MAX_REPLICAS}")
    return int(value or 0)


@app.command(epilog=epilog(
    "fleetctl deploy org/model -f fleets/prod.yaml",
    "fleetctl deploy org/model --replicas 3 -f fleets/prod.yaml",
    exit_codes="0 all are ready, 1 error before any action, or replicas are already live, 3 partial, 4 refused by "
               "policy, 5 another apply holds the lock, 7 --wait-timeout passed, 64 usage, 130 interrupted"))
def deploy(
    *,
    model: flags.Model,
    files: flags.FlaggedFiles,
    replicas: Annotated[int, flags.option(
        "--replicas", metavar="N", min=1, max=MAX_REPLICAS, help="Number of replicas to start. [default: 1]")] = 1,
    start: flags.Starting,
    output_format: FormatOption = "table",
) -> int:
    """Start the first replicas of a model in the fleet file.

    Refused if any replica of the model is live.
    """
    invocation = this_invocation()
    scaling = look_up(invocation, files, model, start.where)
    if scaling.live:
        raise FleetctlError(f"{scaling.model} has {count_of(scaling.live, 'live replica')}",
                            hint=f"`{command_line('fleetctl scale', [model], f'--replicas N {file_flags(files)}')}` "
                                 "starts more")
    return _apply(invocation, scaling, files, replicas, start, output_format)


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
        "--scale-up", metavar="[N]", parser=_added,
        help="Number of replicas to add to the live ones; without a number, those of --replicas are added.")] = None,
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
    if (replicas is None) == (not scale_up):
        raise UsageError("give either --replicas N or --scale-up N",
                         hint="--replicas N --scale-up adds N replicas, too")
    invocation = this_invocation()
    scaling = look_up(invocation, files, model, start.where)
    number = replicas or 0 if scale_up is None else scaling.live + (scale_up or replicas or 0)
    if number <= scaling.live:
        say("note", f"{scaling.model}: {scaling.live} are live, {number} wanted; nothing to start. Scale never removes "
                    "replicas; `fleetctl evict` does")
    return _apply(invocation, scaling, files, number, start, output_format, dedicated=dedicated)


def _apply(
    invocation: Invocation, scaling: Scaling, files: Sequence[str], number: int, start: flags.StartFlags,
    output_format: ApplyFormat, *, dedicated: bool = False,
) -> int:
    """Show the plan for this number of replicas, ask and apply; returns the exit code.

    `dedicated` as in `ResolvedModel`. First reports what the next apply will do about a number other than the file's.
    """
    if number > max(scaling.live, scaling.wanted):
        say("note", f"{scaling.model}: the fleet file wants {scaling.wanted}; change it there, or the next plan "
                    f"holds {number - scaling.wanted} of them as surplus")
    elif scaling.live < number < scaling.wanted:
        say("note", f"{scaling.model}: the fleet file wants {scaling.wanted}; the next apply starts "
                    f"{count_of(scaling.wanted - number, 'replica')} more")
    output = ApplyOutput(output_format)
    options = PlanOptions((scaling.model,), force=start.force, files=tuple(files),
                          ignore_cooldown=start.ignore_cooldown)
    with output.ends_with_summary(), \
            proposed_by_fleet(invocation, scaling.to(number, dedicated=dedicated), options, start.where) as proposal:
        output.plan = proposal.task.plan
        options_of_run = ApplyOptions(lock_timeout_s=start.lock_timeout)
        question = show_proposal(invocation, replace(proposal, shown=_about(proposal.shown, scaling.model)),
                                 output_format, force=start.force, yes=start.yes or start.dry_run)
        return perform(lambda: carry_out(proposal.task, options_of_run, output, start.wait_timeout), question,
                       yes=start.yes, dry_run=start.dry_run, foreseen=output.show_dry_run)


def _about(plan: Plan, model: str) -> Plan:
    """Return the part of the plan about one model, for display."""
    [row] = [row for row in plan.models if row.key == model]
    drift = [item for item in plan.drift if item.model == model]
    lost = [replica for replica in plan.lost if replica.model == model]
    summary = plan.summary.model_copy(update={
        "wanted": row.wanted, "live": row.live, "hold": row.surplus, "starting": row.starting - row.restarting,
        "restarting": row.restarting, "not_ready": row.not_ready, "outdated": row.outdated, "drift": len(drift),
        "lost": len(lost), "unmanaged": 0})
    return plan.model_copy(update={"models": [row], "drift": drift, "lost": lost, "unmanaged": [], "summary": summary})
