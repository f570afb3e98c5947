"""`fleetctl apply`: carry out a plan as far as it fits, and report the outcome of every replica. Removes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.apply.prepare import ApplyOptions, ApplyTask
from fleetctl.cli import flags
from fleetctl.cli.apply_run import ApplyOutput, FormatOption, attach_to, carry_out, offer_new_plan, show_proposal
from fleetctl.cli.commands import MadeBy, command_app
from fleetctl.cli.console import say
from fleetctl.cli.process import this_invocation
from fleetctl.cli.reporting import OUTCOME_FORMATS, RunReportOption, parse_reports
from fleetctl.cli.verb import DECLINED, perform
from fleetctl.documents.plan import Plan
from fleetctl.errors import DocumentError, InventoryError, LockHeld, UsageError
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.planner.options import PlanOptions
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.proposal import Proposal, proposed_by_fleet, proposed_by_plan, refuse_by_policy
from fleetctl.workflow.saved_plan import read_saved_plan

app = command_app(
    "fleetctl apply -f fleets/prod.yaml         # plans, asks, applies",
    "fleetctl apply -f fleets/prod.yaml --yes   # in CI",
    "fleetctl apply prod.fleetplan              # a plan saved by plan --out",
    "fleetctl apply --attach                    # follow a running apply",
    exit_codes="0 every wanted replica is ready, 1 error before any action, 3 partial: something is blocked, "
               "failed or still starting, 4 refused by policy, 5 another apply holds the lock, 6 the saved plan is "
               "stale or used, 7 --wait-timeout passed, 64 usage, 130 interrupted, 143 terminated")
POLL_S = 3.0
PlanNow = Callable[[], AbstractContextManager[Proposal]]
"""Plans on the current state of the cluster."""
STILL_REQUESTED = "they stay requested from Ray's autoscaler"


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The flags about the run itself: how much at a time, and how long it waits for what. Seconds."""

    parallelism: flags.Parallelism = 1000
    lock_timeout: flags.LockTimeout = 0
    wait_timeout: flags.WaitTimeout = None
    wait_for_nodes: Annotated[float | None, typer.Option(
        "--wait-for-nodes", metavar="DURATION", parser=flags.duration, show_default=False,
        help="How long to wait for nodes requested from Ray's autoscaler (spec.cluster.grow), creating replicas as "
             "they come. [default: do not wait]")] = None
    no_wait: Annotated[bool, typer.Option(
        "--no-wait", help="End once everything is created, before it is ready; exit with 0 unless blocked.")] = False


@app.command()
def apply(
    *,
    named: Annotated[list[str] | None, typer.Argument(
        metavar="PLAN|FILE", show_default=False,
        help="Plan saved by `plan --out`, or fleet files as with -f; with --attach, the job to follow.")] = None,
    files: flags.OptionalFiles = None,
    where: flags.Cluster,
    yes: flags.Yes = False,
    attach: Annotated[bool, typer.Option("--attach", help="Follow a running apply.")] = False,
    output_format: FormatOption = "table",
    planning: flags.Planning,
    run: Annotated[RunFlags, MadeBy(RunFlags)],
    report: RunReportOption = None,
) -> int:
    """Start missing replicas, as many as fit, and wait until they are ready.

    No running replica is removed, shrunk, moved or restarted. Closing this command does not stop the apply. Ctrl-C
    stops it: nothing more is started. A second Ctrl-C within a second detaches and leaves it running.
    """
    plan_file, files = split_arguments(named or [], files or [], attach=attach)
    _check_usage(plan_file, files, planning, where, run, attach=attach)
    if report and attach:
        raise UsageError("--report: with --attach there is no plan to report on",
                         hint="`fleetctl history show RUN --report ...` reports on a run that has ended")
    reports = parse_reports(report, formats=OUTCOME_FORMATS, reading=(plan_file, *files))
    options = replace(planning, files=tuple(files))
    output, invocation = ApplyOutput(output_format), this_invocation()
    with reports.of_error("apply", "apply of", files, plan=lambda: output.plan or saved_plan(plan_file)):
        with output.ends_with_summary():
            if yes or attach:  # nothing will be asked
                output.waiting.begin()
            if attach:
                return attach_to(invocation, plan_file, files, where.address, output, run.wait_timeout)
            code = run_apply(invocation, plan_file, options, where, output, run, yes=yes)
        if code != DECLINED:
            output.report_to(reports, code)
    return code


def run_apply(
    invocation: Invocation, plan_file: str | None, options: PlanOptions, where: Where, output: ApplyOutput,
    run: RunFlags, *, yes: bool,
) -> int:
    """Propose the saved plan or a new one, ask, and carry it out, again as nodes come; returns the exit code."""
    def run_task(task: ApplyTask) -> int:
        return carry_out(task, ApplyOptions(run.parallelism, run.lock_timeout, task.single_use, wait=not run.no_wait),
                         output, run.wait_timeout)

    with proposed(invocation, plan_file, options, where, yes=yes) as proposal:
        output.plan = plan = proposal.task.plan
        if options.ignore_cooldown and not plan.options.ignore_cooldown:
            raise UsageError("--ignore-cooldown: the plan is already made and is applied unchanged",
                             hint="give it to the review that saves the plan")
        question = show_proposal(invocation, proposal, output.format, force=options.force, yes=yes)

        def begin() -> int:
            output.goes_on = run.wait_for_nodes is not None and plan.waits_for_nodes
            return run_task(proposal.task)

        code = perform(begin, question, yes=yes)
    if not output.goes_on or proposal.loaded is None:
        return code
    # the fleet that was agreed to, even if its files have changed; quiet, because it is planned many times
    quiet = replace(invocation, say=lambda *_: None, working=nullcontext)
    plan_now = partial(proposed_by_fleet, quiet, proposal.loaded, replace(options, ignore_cooldown=False), where)
    return apply_on_new_nodes(plan_now, partial(refuse_by_policy, invocation, force=options.force), output,
                              run.wait_for_nodes or 0, run_task)


def _check_usage(
    plan_file: str | None, files: list[str], planning: PlanOptions, where: Where, run: RunFlags, *, attach: bool
) -> None:
    """Raise UsageError if there is nothing to apply, or two things, or for flags that would have no effect."""
    if plan_file and files and not attach:
        raise UsageError("give a saved plan or fleet files, not both")
    if not plan_file and not files and not attach:
        raise UsageError("nothing to apply", hint="give -f FLEET, a saved PLAN, or --attach")
    choices = {"--target": planning.targets, "--exclude": planning.excludes, "--selector": planning.selector,
               "--adopt-from": planning.adopt_from, "--namespace": where.namespace,
               "--force": planning.force and attach, "--ignore-cooldown": planning.ignore_cooldown,
               "--wait-for-nodes": run.wait_for_nodes}
    given = [flag for flag, value in choices.items() if value]
    if given and (plan_file is not None or attach):
        raise UsageError(f"{', '.join(given)}: the plan is already made and is applied unchanged",
                         hint="give them to `fleetctl plan`, or to `fleetctl apply -f FLEET`")


def saved_plan(file: str | None) -> Plan | None:
    """Return a saved plan for the name of its fleet, even if it can no longer be applied; None if there is none."""
    with suppress(DocumentError):
        return read_saved_plan(this_invocation(), file) if file else None
    return None


def split_arguments(named: list[str], files: list[str], *, attach: bool = False) -> tuple[str | None, list[str]]:
    """Return the saved plan or job, and the fleet files: a YAML file or a folder is never a plan."""
    fleets = [word for word in named if not attach and (flags.names_fleet(word) or Path(word).is_dir())]
    others = [word for word in named if word not in fleets]
    if len(others) > 1:
        raise UsageError(f"give one plan or job, not {' and '.join(others)}")
    return others[0] if others else None, [*files, *fleets]


def proposed(
    invocation: Invocation, plan_file: str | None, options: PlanOptions, where: Where, *, yes: bool
) -> AbstractContextManager[Proposal]:
    """Return the proposal for the saved plan, or for a plan made now from the files."""
    if plan_file is None:
        return proposed_by_fleet(invocation, inspect_fleet(options.files, stdin=invocation.stdin), options, where)
    offer = partial(offer_new_plan, invocation, where.address, force=options.force, yes=yes)
    return proposed_by_plan(invocation, plan_file, where.address, offer)


def apply_on_new_nodes(
    plan_now: PlanNow, check_policy: Callable[[Plan], None], output: ApplyOutput, wait_s: float,
    run: Callable[[ApplyTask], int],
) -> int:
    """Apply again whenever there is something to create, until nothing waits for nodes or the time is over.

    Each round is a separate apply, so that the lock is free in between. Returns the exit code of the whole.
    """
    until, waits_for, shown = time.monotonic() + wait_s, "", set[str]()
    try:
        while True:
            late = time.monotonic() >= until
            try:
                code, nodes = _run_round(plan_now, check_policy, output, run, shown, late=late)
            except InventoryError:
                if late or not output.goes_on:
                    raise
                nodes = waits_for  # the dashboard may be away for a moment
            if not output.goes_on:
                return code
            if nodes not in ("", waits_for):
                waits_for = nodes
                say("note", f"waiting for {nodes}; if this command ends, {STILL_REQUESTED}")
            output.waiting.now("nodes", waits_for or "the cluster's answer")
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return output.detach(f"no longer waiting for nodes; {STILL_REQUESTED}")


def _run_round(
    plan_now: PlanNow, check_policy: Callable[[Plan], None], output: ApplyOutput, run: Callable[[ApplyTask], int],
    shown: set[str], *, late: bool,
) -> tuple[int, str]:
    """Plan, and apply if there is something to create, more nodes to request, or this is the last round.

    Returns the exit code, and the nodes it waits for. Each message of the autoscaler is shown once.
    """
    code = 0
    with plan_now() as proposal:
        plan = proposal.task.plan
        for sentence in proposal.shown.autoscaler:
            if sentence not in shown:
                say("note", sentence)
        shown.update(proposal.shown.autoscaler)
        asks_more = output.plan is None or plan.asks_more_than(output.plan)  # its pilots are ready
        if plan.starts or late or asks_more or not plan.waits_for_nodes:
            if late and plan.waits_for_nodes:
                say("warning", f"the time to wait for nodes is over; {STILL_REQUESTED}")
            check_policy(plan)
            output.goes_on = plan.waits_for_nodes and not late
            output.plan = plan
            try:
                code = run(proposal.task)
            except LockHeld:
                if late:
                    raise
                output.goes_on = True  # another apply runs, perhaps for the same nodes
    return code, plan.new_nodes
