"""The review of a change in CI: validate, plan, what the change causes alone; then the forge is told.

A plan that cannot be made is told as well: a comment that is silent about a broken file would still show the old plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from fleetctl.errors import FleetctlError, UsageError

if TYPE_CHECKING:
    from fleetctl.cli.ci_job import Job
    from fleetctl.cli.ci_publish import Told
    from fleetctl.cli.planning import Planned
    from fleetctl.documents.plan import Plan
    from fleetctl.fleetfile.load import LoadedFleet
    from fleetctl.forge.change import ChangeRequest
    from fleetctl.render.report.model import Finding, Report
    from fleetctl.review.inputs import Side


def run_review(job: Job) -> int:
    """Review, tell the forge, and return the exit code; raises UsageError for flags that do not go together."""
    from fleetctl.cli.ci_publish import annotate, publish

    job.check()
    told = _reviewed(job)
    publish(job.forge, told, comment=job.comment)
    annotate(job.forge, told.report)
    return job.exit_code(told.code)


def _reviewed(job: Job) -> Told:
    """Plan and write what was asked for; an error becomes what is told instead."""
    from fleetctl.cli import failures

    try:
        return _told(job, *_plan(job))
    except UsageError:
        raise
    except FleetctlError as error:
        failures.explain(error)
        return _failed(job, error)


def _plan(job: Job) -> tuple[LoadedFleet, Planned, Plan, Side | None]:
    from fleetctl.cli.changing import change_since
    from fleetctl.cli.ci_base import read_base, vouched_address
    from fleetctl.cli.planning import plan_fleet
    from fleetctl.fleetfile.load import inspect_fleet
    from fleetctl.planner.options import PlanOptions

    loaded = inspect_fleet(job.files)
    fleet, revision = loaded.sound(), _revision(job)
    base = read_base(job.files, revision) if revision is not None else None
    where = job.where
    if not where.inventory and not job.address():
        where = replace(where, address=vouched_address(fleet, base, job.forge))
    planned = plan_fleet(fleet, PlanOptions(force=job.force, files=job.files), where)
    plan = change_since(base, job.files, loaded, planned) if base else planned.plan
    return loaded, planned, plan, base


def _revision(job: Job) -> str | None:
    from fleetctl.cli.ci_base import base_revision

    return base_revision(_change(job), job.files) if job.base is None else job.base


def _change(job: Job) -> ChangeRequest | None:
    return job.forge.change if job.forge else None


def _told(job: Job, loaded: LoadedFleet, planned: Planned, plan: Plan, base: Side | None) -> Told:
    from fleetctl.cli.ci_base import tell_broken
    from fleetctl.cli.ci_publish import Told
    from fleetctl.cli.outdated import with_changes
    from fleetctl.cli.plan_faces import plan_faces
    from fleetctl.cli.reporting import parse_reports, show, write_reports
    from fleetctl.cli.saved_plan import save_plan
    from fleetctl.render.report.formats import ReportFormat

    reports = parse_reports(job.reports, beside=job.out)
    faces = plan_faces(with_changes(plan, planned.changes), planned.picture)
    show(faces, ReportFormat.TABLE)
    write_reports(faces, reports)
    if job.out:
        save_plan(plan, job.out)
    report = tell_broken(base, faces.report())
    report = replace(report, findings=(*report.findings, *_warnings(loaded)))
    return Told(report, plan.exit_code, plan.plan_id, bool(plan.actions), plan_file=str(job.out or ""),
                reports=tuple(str(one.path) for one in reports))


def _warnings(loaded: LoadedFleet) -> tuple[Finding, ...]:
    """Show the warnings of the fleet files in the log, and return them as annotations."""
    from fleetctl.cli.console import message_console
    from fleetctl.render.problems import render_problems
    from fleetctl.render.report.of_problems import problems_report

    render_problems(loaded.problems, message_console())
    return problems_report(loaded).findings


def _failed(job: Job, error: FleetctlError) -> Told:
    from fleetctl.cli.ci_base import fleet_name
    from fleetctl.cli.ci_publish import Told
    from fleetctl.render.report.of_problems import failure_report

    name = fleet_name(job.files, _known_revision(job))
    report = failure_report(error, identity=f"plan:{name}", fleet=name, title=f"No plan for fleet {name}")
    return Told(report, error.exit_code, reports=_write_instead(job, report))


def _write_instead(job: Job, report: Report) -> tuple[str, ...]:
    """Write the reports that can say why there is no plan, which `table` and `json` cannot; return those written.

    One that cannot be written, which may be why there is no plan, keeps nobody from being told.
    """
    from fleetctl.cli import failures
    from fleetctl.cli.reporting import Faces, parse_reports, write_reports
    from fleetctl.render.report.formats import OWN_FORMATS

    def no_plan(*_: object) -> NoReturn:
        raise AssertionError("there is no plan to show")

    faces, written = Faces(table=no_plan, json=no_plan, report=lambda: report), []
    for one in parse_reports(job.reports, beside=job.out):
        if one.format not in OWN_FORMATS:
            try:
                write_reports(faces, [one])
            except FleetctlError as error:
                failures.explain(error)
            else:
                written.append(str(one.path))
    return tuple(written)


def _known_revision(job: Job) -> str | None:
    try:
        return _revision(job)
    except FleetctlError:
        return None
