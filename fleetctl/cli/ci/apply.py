"""The apply in CI, after a merge: apply a saved plan exactly, or plan the files; then report to the forge."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import typer

from fleetctl.apply.outcome import PARTIAL, final_exit_code
from fleetctl.cli import flags
from fleetctl.cli.apply import RunFlags, run_apply, saved_plan, split_arguments
from fleetctl.cli.apply_run import ApplyOutput
from fleetctl.cli.ci.job import ForceOption, ForgeOption, IgnoreCooldownOption, LockTimeoutOption, job_of, lines_of
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.errors import UsageError
from fleetctl.planner.options import PlanOptions

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
    force: ForceOption = False,
    ignore_cooldown: IgnoreCooldownOption = False,
    lock_timeout: LockTimeoutOption = 600,
    fail_on: FailOn = "blocked",
    forge: ForgeOption = "auto",
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
    named_files = () if plan_file else lines_of(files, "FLEETCTL_FILES")
    if not plan_file and not named_files:
        raise UsageError("nothing to apply", hint="give a saved PLAN, or -f FLEET, or FLEETCTL_FILES")
    job = job_of(named_files, where, forge, may_lack_files=True)
    output = ApplyOutput("table")
    options = PlanOptions(force=force, files=job.files, ignore_cooldown=ignore_cooldown)
    with job.reports.of_error("apply", "apply of", job.files, plan=lambda: output.plan or saved_plan(plan_file)):
        with output.waiting:
            code = run_apply(job.invocation, plan_file, options, where if plan_file else job.trusted(), output,
                             RunFlags(lock_timeout=lock_timeout), yes=True)
        output.report_to(job.reports, code)
    return exit_code_of(code, output, fail_on)


def exit_code_of(code: int, output: ApplyOutput, fail_on: str) -> int:
    """Return the exit code of the job: that of its run, unless --fail-on lets a partial one pass."""
    if code != PARTIAL or fail_on == "blocked":
        return code
    begun = [row for row in output.outcomes if row.outcome != "blocked"]
    passed = 0 if fail_on == "never" else final_exit_code(begun, interrupted=False)
    if passed != code:
        say("note", f"the {output.verb} is partial ({code}), and --fail-on {fail_on} lets the job pass")
    return passed
