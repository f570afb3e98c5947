"""The apply in CI, after a merge: apply a saved plan exactly, or plan the files; then report to the forge."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Literal

import typer

from fleetctl.apply.outcome import INTERRUPTED, PARTIAL, final_exit_code
from fleetctl.apply.prepare import ApplyOptions
from fleetctl.cli import failures, flags
from fleetctl.cli.apply import proposed, split_arguments
from fleetctl.cli.apply_run import ApplyOutput, carry_out, show_proposal
from fleetctl.cli.ci import job as ci
from fleetctl.cli.ci.job import Job, JobResult
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.process import this_invocation
from fleetctl.documents.events import HistoryRun, ReplicaOutcome
from fleetctl.documents.plan import Plan
from fleetctl.errors import DocumentError, FleetctlError, UsageError
from fleetctl.forge.forges import find_forge
from fleetctl.planner.options import PlanOptions
from fleetctl.render.problems import failure_report
from fleetctl.render.report.model import Report
from fleetctl.render.report.of_runs import run_report, totals
from fleetctl.workflow.saved_plan import read_saved_plan

app = command_app(
    "fleetctl ci apply -f fleets/prod.yaml --address http://ray-head:8265",
    "fleetctl ci apply prod.fleetplan",
    "fleetctl ci apply -f fleets/ --fail-on failed   # pass if only blocked",
    exit_codes="as for apply: 0 ready, 1 error, 3 partial, 4 refused by policy, 5 locked, 6 stale plan, 64 usage")
FailOn = Annotated[Literal["failed", "blocked", "never"], typer.Option(
    "--fail-on", envvar="FLEETCTL_FAIL_ON",
    help="Which replicas fail the job with 3: failed ones, also blocked ones, or none. An error always does.")]


@app.command()
def apply(
    *,
    named: Annotated[str | None, typer.Argument(
        metavar="PLAN|FILE", envvar="FLEETCTL_PLAN", show_default=False,
        help="Plan saved by `ci review`, or a fleet file as with -f.")] = None,
    files: flags.OptionalFiles = None,
    where: flags.Cluster,
    force: ci.ForceOption = False,
    ignore_cooldown: ci.IgnoreCooldownOption = False,
    lock_timeout: ci.LockTimeoutOption = 600,
    fail_on: FailOn = "blocked",
    forge: ci.ForgeOption = "auto",
) -> int:
    """Apply a merged change, and report to the forge.

    It asks no questions. A saved plan is applied exactly and only once; if what it relies on has changed, it is refused
    with 6. Without a plan the files are planned and applied. FLEETCTL_FILES may also name the files, one per line.
    """
    for name, why in (("FLEETCTL_REPORTS", "an apply writes no reports"),
                      ("FLEETCTL_INVENTORY", "an apply reads the cluster itself")):
        if os.environ.get(name, "").strip():  # the missing result would be noticed only afterwards
            raise UsageError(f"{why}, and {name} is set", hint="set it only for the review: in the action the inputs "
                             "`reports` and `inventory`, in GitLab variables of its job")
    plan_file, files = split_arguments([named] if named else [], files or [])
    job = Job(
        this_invocation(), () if plan_file else ci.lines_of(files, "FLEETCTL_FILES"), where,
        force=force, ignore_cooldown=ignore_cooldown, forge=find_forge(os.environ, forge))
    if not plan_file and not job.files:
        raise UsageError("nothing to apply", hint="give a saved PLAN, or -f FLEET, or FLEETCTL_FILES")
    output = ApplyOutput("table")
    result = _applied(job, plan_file, lock_timeout, output)
    ci.publish(job, result, comment=False)
    return exit_code_of(result, output, fail_on)


def exit_code_of(result: JobResult, output: ApplyOutput, fail_on: str) -> int:
    """Return the exit code of the job: that of its run, unless --fail-on lets a partial one pass."""
    if result.code != PARTIAL or fail_on == "blocked":
        return result.code
    begun = [row for row in output.outcomes if row.outcome != "blocked"]
    code = 0 if fail_on == "never" else final_exit_code(begun, interrupted=False)
    if code != result.code:
        say("note", f"the {output.verb} is partial ({result.code}), and --fail-on {fail_on} lets the job pass")
    return code


def _applied(job: Job, plan_file: str | None, lock_timeout_s: float, output: ApplyOutput) -> JobResult:
    try:
        options = PlanOptions(force=job.force, files=job.files, ignore_cooldown=job.ignore_cooldown)
        where = job.where if plan_file else ci.trusted_where(job)
        with proposed(job.invocation, plan_file, options, where, yes=True) as proposal:
            task = proposal.task
            if job.ignore_cooldown and not task.plan.options.ignore_cooldown:
                raise UsageError("--ignore-cooldown: the plan is already made and is applied unchanged",
                                 hint="give it to the review that saves the plan")
            output.plan = task.plan
            show_proposal(job.invocation, proposal, "table", force=job.force, yes=True)
            options_of_run = ApplyOptions(lock_timeout_s=lock_timeout_s, single_use=task.single_use)
            code = carry_out(task, options_of_run, output, None)
        return JobResult(_report(task.plan, output.outcomes, code), code, task.plan.plan_id, bool(task.plan.actions))
    except UsageError:
        raise
    except FleetctlError as error:
        failures.explain(error)
        return _failed(job, plan_file, output.plan, error)


def _report(plan: Plan, outcomes: list[ReplicaOutcome], code: int) -> Report:
    git = plan.fleet.git
    return outcomes_of_job(HistoryRun(
        id=f"apply:{plan.plan_id}", verb="apply", fleet=plan.fleet.name, state="ok" if code == 0 else "partial",
        message="", plan_id=plan.plan_id, commit=git.commit if git else None,
        branch=git.branch if git else None, tool_version=plan.tool_version, create=plan.summary.create,
        files=plan.fleet.files, outcomes=outcomes), code)


def outcomes_of_job(run: HistoryRun, code: int) -> Report:
    """Return the report of this run as the history shows it, under the name of the fleet."""
    conclusion = totals(run.outcomes, interrupted=code == INTERRUPTED, verb=run.verb)
    report = run_report(run.model_copy(update={"message": conclusion}))
    facts = tuple(fact for fact in report.facts if fact[0] != "run")  # the plan id is a separate fact
    return replace(report, identity=f"{run.verb}:{run.fleet}", conclusion=conclusion, exit_code=code, facts=facts,
                   title=f"{run.verb.capitalize()} of fleet {run.fleet}")


def _failed(job: Job, plan_file: str | None, plan: Plan | None, error: FleetctlError) -> JobResult:
    if plan is None and plan_file:  # a refused plan has the name of its fleet
        with suppress(DocumentError):
            plan = read_saved_plan(job.invocation, plan_file)
    name = plan.fleet.name if plan else ci.fleet_name(job.invocation, job.files, None) or "unknown"
    report = failure_report(error, identity=f"apply:{name}", fleet=name, title=f"No apply of fleet {name}")
    return JobResult(report, error.exit_code, plan.plan_id if plan else "", bool(plan and plan.actions))
