"""The scheduled check that the cluster matches the main branch; one issue on the forge has the result."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fleetctl.cli import failures, flags
from fleetctl.cli.ci.base import fleet_name, trusted_where
from fleetctl.cli.ci.job import ForgeOption, Job, JobResult, keep_issue, lines_of, publish
from fleetctl.cli.commands import command_app
from fleetctl.cli.process import this_invocation
from fleetctl.cli.reporting import Formats, ReportOption, parse_reports, show, write_reports
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.forge.detect import find_forge
from fleetctl.planner.options import PlanOptions
from fleetctl.planner.outcome import NOTHING_TO_DO
from fleetctl.render.plan_json import render_plan_json
from fleetctl.render.report.of_diagnosis import drift_report
from fleetctl.render.report.of_problems import failure_report
from fleetctl.workflow.dashboard import open_dashboard
from fleetctl.workflow.examination import capacity_findings, failures_of
from fleetctl.workflow.planning import plan_fleet

app = command_app(
    "fleetctl ci drift -f fleets/prod.yaml --address http://ray-head:8265",
    "fleetctl ci drift -f fleets/ --no-issue --report html=drift.html",
    exit_codes="0 no drift, 1 error, 2 something is missing or differs from the files, 3 something is blocked, "
               "restarting or failed, 4 a policy refuses missing replicas, 64 usage")


@app.command()
def drift(
    *,
    files: flags.OptionalDiskFiles = None,
    where: flags.Cluster,
    report: ReportOption = None,
    issue: Annotated[bool, typer.Option(
        "--issue/--no-issue", envvar="FLEETCTL_ISSUE",
        help="Keep one issue up to date: open while there is drift, otherwise closed.")] = True,
    forge: ForgeOption = "auto",
) -> int:
    """Check on a schedule that the cluster matches the files.

    Makes a plan and reads the latest apply, and reports what is missing, blocked, outdated, restarting or failed. Cards
    in use by others, expired cordons, cooldowns and recent failures are warnings, and do not change the exit code. On a
    forge one issue is kept up to date: open while there is drift or a warning, otherwise closed. Nothing is changed in
    the cluster. FLEETCTL_FILES may also name the files, and FLEETCTL_REPORTS the reports, one per line.
    """
    job = Job(this_invocation(), lines_of(files, "FLEETCTL_FILES"), where,
              reports=lines_of(report, "FLEETCTL_REPORTS"), forge=find_forge(os.environ, forge))
    job.check()
    try:
        result, is_open = _checked(job)
    except UsageError:
        raise
    except FleetctlError as error:
        failures.explain(error)
        name = fleet_name(job.invocation, job.files, None)
        failure = failure_report(error, identity=f"drift:{name}", fleet=name, title=f"No check of fleet {name}")
        result, is_open, issue = JobResult(failure, error.exit_code), True, False  # the issue stays as it is
    publish(job, result, comment=False)
    if issue:
        keep_issue(job, result, is_open=is_open)
    return result.code


def _checked(job: Job) -> tuple[JobResult, bool]:
    """Return the result, and whether there is drift or a warning."""
    loaded, where = inspect_fleet(job.files), trusted_where(job)
    plan = (planned := plan_fleet(job.invocation, loaded, PlanOptions(files=job.files), where)).plan
    with open_dashboard(job.invocation, where.address, planned.fleet.cluster.address) as client:
        failed, beside = failures_of(client, plan), capacity_findings(client, loaded, planned.inventory)
    report = drift_report(planned.shown(), failed, beside)
    formats, reports = Formats(json=lambda: render_plan_json(plan), report=lambda: report), parse_reports(job.reports)
    show(formats, "table")
    write_reports(formats, reports)
    result = JobResult(report, report.exit_code, plan.plan_id, plan.acts, reports=reports)
    return result, result.code != NOTHING_TO_DO or bool(beside)
