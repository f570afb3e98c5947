"""The jobs of CI that change nothing: `ci validate`, `ci review` of a change, and on a schedule `ci drift`.

`ci validate` is for jobs without access to a cluster: any branch, pull requests from forks. The other two report an
error to the forge, too: otherwise the comment would still show the old plan.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from fleetctl.cli import failures, flags
from fleetctl.cli.ci import job as ci
from fleetctl.cli.ci.job import Job, JobResult
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.fleet_files import problem_formats
from fleetctl.cli.plan import plan_formats
from fleetctl.cli.process import this_invocation
from fleetctl.cli.reporting import Formats, ReportOption, WantedReport, parse_reports, show, write_reports
from fleetctl.documents.position import Position
from fleetctl.errors import FleetctlError, RevisionError, UsageError
from fleetctl.fleetfile.file_tree import MAX_BYTES, read_whole
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.forge.forges import find_forge
from fleetctl.planner.options import PlanOptions
from fleetctl.planner.policy import CHANGES, NOTHING_TO_DO, PARTIAL
from fleetctl.render.plan_json import render_plan_json
from fleetctl.render.problems import failure_report, problems_conclusion
from fleetctl.render.report.formats import OWN_FORMATS
from fleetctl.render.report.model import EVERYONE, Column, Finding, Report, Table
from fleetctl.render.report.of_diagnosis import drift_report
from fleetctl.render.report.of_plan import plan_report
from fleetctl.review.git_discovery import NoRepository
from fleetctl.review.inputs import Side
from fleetctl.review.revisions import GitTree, MissingRevision, repository_of
from fleetctl.workflow.base_plan import why_unknown
from fleetctl.workflow.dashboard import open_dashboard
from fleetctl.workflow.examination import capacity_findings, failures_of
from fleetctl.workflow.invocation import Where
from fleetctl.workflow.planning import plan_fleet
from fleetctl.workflow.saved_plan import save_plan

app = command_app()
NO_BASE = ("no base is known, so the effect of the change alone is not shown; --base REV names one, such as --base "
           "origin/main...")
OWN_INVENTORY = "This change edits the inventory that it is planned on"
OWN_INVENTORY_HINT = "the plan shows what its author wants; take the inventory from a job that reads the cluster"
DIFFERS = "A fleet file is not here what the commit has"
DIFFERS_HINT = ("the plan is for the file in this checkout, but a watch reads the one in the commit; see .gitattributes"
                " and the steps before this one")
UNREADABLE = b"\0"
FINE = {"policy": (CHANGES, PARTIAL), "blocked": (CHANGES,)}
"""Exit codes of plans that do not fail a review, by --fail-on; changes alone never do."""


@app.command(epilog=epilog(
    "fleetctl ci validate -f fleets/prod.yaml --report junit=fleet.xml",
    exit_codes="0 valid (warnings allowed), 1 errors, 64 usage"))
def validate(
    files: flags.OptionalDiskFiles = None,
    report: ReportOption = None,
    forge: ci.ForgeOption = "auto",
) -> int:
    """Check fleet files, and report to the forge.

    The forge gets annotations, a summary page and outputs; no cluster is contacted. FLEETCTL_FILES may also name the
    files, and FLEETCTL_REPORTS the reports, one per line.
    """
    job = Job(this_invocation(), ci.lines_of(files, "FLEETCTL_FILES"), Where(),
              reports=ci.lines_of(report, "FLEETCTL_REPORTS"), forge=find_forge(os.environ, forge))
    job.check()
    loaded = inspect_fleet(job.files)
    formats, reports = problem_formats(loaded), parse_reports(job.reports)
    show(formats, "table", reports)
    job.invocation.say("valid" if loaded.fleet else "error", problems_conclusion(loaded))
    shown = formats.report()
    name = f"validate:{loaded.fleet.name}" if loaded.fleet else "validate"
    result = JobResult(replace(shown, identity=name), shown.exit_code, reports=reports)
    ci.publish(job, result, comment=False)
    return result.code


@app.command(epilog=epilog(
    "fleetctl ci review -f fleets/prod.yaml --address http://ray-head:8265",
    "fleetctl ci review -f fleets/ --inventory lab.json --report markdown=c.md",
    "fleetctl ci review -f fleets/ --out prod.fleetplan --fail-on blocked",
    exit_codes="0 planned, 1 error, 3 blocked (with --fail-on blocked), 4 refused by policy, 64 usage"))
def review(
    *,
    files: flags.OptionalDiskFiles = None,
    where: flags.Cluster,
    inventory: Annotated[str | None, flags.option(
        "--inventory", metavar="FILE", envvar="FLEETCTL_INVENTORY",
        help="Read this inventory document instead of the cluster.")] = None,
    base: Annotated[str | None, flags.option(
        "--base", metavar="REV", envvar="FLEETCTL_BASE",
        help="Compare with this git revision. [default: the base of the pull request]")] = None,
    out: Annotated[Path | None, flags.option(
        "--out", "-o", metavar="FILE", envvar="FLEETCTL_PLAN", dir_okay=False, help=flags.OUT_HELP)] = None,
    report: ReportOption = None,
    fail_on: Annotated[Literal["policy", "blocked"], typer.Option(
        "--fail-on", envvar="FLEETCTL_FAIL_ON",
        help="What fails the job besides errors: a refusal by policy, or also blocked replicas.")] = "policy",
    force: ci.ForceOption = False,
    ignore_cooldown: ci.IgnoreCooldownOption = False,
    comment: Annotated[bool, typer.Option(
        "--comment/--no-comment", envvar="FLEETCTL_COMMENT", help="Keep a comment on the change up to date.")] = True,
    pull_request: Annotated[int | None, flags.option(
        "--pull-request", metavar="N", envvar="FLEETCTL_PULL_REQUEST",
        help="Pull or merge request to comment on, if it cannot be detected.")] = None,
    forge: ci.ForgeOption = "auto",
) -> int:
    """Plan a change, and report to the forge.

    The forge gets a comment that is kept up to date, a summary page, annotations and outputs. Nothing is changed in the
    cluster. FLEETCTL_FILES may also name the files, and FLEETCTL_REPORTS the reports, one per line. Without a forge it
    prints the plan; `--report markdown=FILE` writes the text of the comment.
    """
    job = Job(
        this_invocation(), ci.lines_of(files, "FLEETCTL_FILES"), replace(where, inventory=inventory), base=base,
        out=out, reports=ci.lines_of(report, "FLEETCTL_REPORTS"), force=force, ignore_cooldown=ignore_cooldown,
        forge=find_forge(os.environ, forge, number=pull_request))
    job.check()
    try:
        result = _reviewed(job)
    except UsageError:
        raise
    except FleetctlError as error:
        failures.explain(error)
        result = _failed(job, error)
    ci.publish(job, result, comment=comment)
    return 0 if result.code in FINE[fail_on] else result.code


def _reviewed(job: Job) -> JobResult:
    loaded = inspect_fleet(job.files)
    fleet, revision = loaded.sound(), _revision(job)
    base = ci.read_base(job.invocation, job.files, revision) if revision is not None else None
    if base is None:
        job.invocation.say("note", NO_BASE)
    where = job.where
    if not where.inventory and not job.address():
        where = replace(where, address=ci.trusted_address(fleet, base, job.forge))
    options = PlanOptions(force=job.force, files=job.files, ignore_cooldown=job.ignore_cooldown)
    planned = plan_fleet(job.invocation, loaded, options, where, base=base)
    plan, reports = planned.plan, parse_reports(job.reports, beside=job.out)
    shown = planned.shown()
    report = _with_own_inventory(job, base, _with_broken_base(base, plan_report(shown)))
    report = _with_other_content(job, fleet, report)
    formats = plan_formats(shown, planned.map, lambda: report)
    show(formats, "table")
    write_reports(formats, reports)
    if job.out:
        now = job.invocation.now() if where.inventory else planned.inventory.observed_at
        save_plan(job.invocation, plan, job.out, now)
    return JobResult(report, plan.exit_code, plan.plan_id, bool(plan.actions), plan_file=str(job.out or ""),
                     reports=reports)


def _revision(job: Job) -> str | None:
    """Return --base, or the revision the change starts from; None if there is no change, or its base is unknown.

    Forges check out a merge commit: its first parent is the target branch, its second the change. That parent is named
    by its commit, which stays the same whatever is checked out when the name is read. Raises RevisionError for files
    outside a repository.
    """
    if job.base is not None or job.change is None:
        return job.base
    try:
        repository = repository_of(job.files[0], job.invocation.environ).outermost
    except NoRepository as error:
        raise RevisionError(error.message, hint="check out the repository with its history before this step") from None
    merged = repository.find("HEAD^2")
    if merged and merged.id == job.change.head:
        return repository.commit("HEAD^1").id
    return f"{job.change.base}...HEAD" if job.change.base else None


def _with_broken_base(base: Side | None, report: Report) -> Report:
    """Return the report; if the base has errors, with a warning that the effect of the change alone is unknown."""
    if base is None or not base.problems:
        return report
    text = why_unknown(base)
    table = Table("base", "This change alone", (Column("message", "what"),), ((text,),), rank=0,
                  readers=EVERYONE - {"terminal"})  # where plan has said it
    return replace(report, tables=(table, *report.tables),
                   findings=(*report.findings, Finding("warning", "BASE_BROKEN", base.revision.name, text)))


def _with_own_inventory(job: Job, base: Side | None, report: Report) -> Report:
    """Return the report; if the change edits the inventory that it was planned on, with a warning.

    Links are followed in both commits: a change may also put a link in the way.
    """
    path = job.where.inventory
    if not path or base is None or base.revision.commit is None:
        return report
    try:
        repository = repository_of(path, job.invocation.environ)
        before, after = (_content(GitTree(repository, repository.commit(name)), path)
                         for name in (base.revision.commit, "HEAD"))
    except (NoRepository, MissingRevision):  # the file is in no repository, or in another one than the change
        return report
    if before == after and before is not UNREADABLE:
        return report
    finding = Finding("warning", "INVENTORY_CHANGED", path, f"{OWN_INVENTORY}: {OWN_INVENTORY_HINT}")
    return _with_warning(report, "inventory", OWN_INVENTORY, [f"{path}: {OWN_INVENTORY_HINT}"], [finding])


def _with_other_content(job: Job, fleet: ResolvedFleet, report: Report) -> Report:
    """Return the report; if a file here is not the one of HEAD, but for line ends, with a warning.

    The attribute `working-tree-encoding` of a change does that to a file which git takes for unchanged.
    """
    if job.forge is None or job.forge.change is None:
        return report
    try:
        repository = repository_of(job.files[0], job.invocation.environ)
        tree = GitTree(repository, repository.commit("HEAD"))
        differing = [source.path for source in (*fleet.files, *fleet.house_rules)
                     if (known := _content(tree, source.path)) is not None and known is not UNREADABLE
                     and _with_plain_ends(known) != _with_plain_ends(read_whole(source.path))]
    except (NoRepository, MissingRevision, OSError):
        return report
    if not differing:
        return report
    findings = [Finding("warning", "FILE_DIFFERS", path, f"{DIFFERS}: {DIFFERS_HINT}",
                        Position(file=path, line=1, column=1)) for path in differing]
    return _with_warning(report, "checkout", DIFFERS, [f"{path}: {DIFFERS_HINT}" for path in differing], findings)


def _with_warning(report: Report, name: str, title: str, rows: list[str], findings: list[Finding]) -> Report:
    """Return the report that opens with these rows, and has the findings as well."""
    table = Table(name, title, (Column("message", "what"),), tuple((row,) for row in rows), rank=0, line="{message}")
    return replace(report, tables=(table, *report.tables), findings=(*report.findings, *findings))


def _with_plain_ends(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n")


def _content(tree: GitTree, path: str) -> bytes | None:
    """Return the file at a commit; None if there is none, UNREADABLE if it leads out of the repository."""
    try:
        return tree.read(path, MAX_BYTES) if tree.is_file(path) else None
    except OSError:
        return UNREADABLE


def _failed(job: Job, error: FleetctlError) -> JobResult:
    try:
        revision = _revision(job)
    except FleetctlError:
        revision = None
    name = ci.fleet_name(job.invocation, job.files, revision)
    report = failure_report(error, identity=f"plan:{name}", fleet=name, title=f"No plan for fleet {name}")
    return JobResult(report, error.exit_code, reports=_write_failure(job, report))


def _write_failure(job: Job, report: Report) -> list[WantedReport]:
    """Write the failure in every requested format that has a place for it, so not as table or JSON; return the reports.

    A report that cannot be written, which may be the failure itself, does not prevent the others.
    """
    formats, written = Formats(json=str, report=lambda: report), []
    for one in parse_reports(job.reports, beside=job.out):
        if one.format not in OWN_FORMATS:
            try:
                write_reports(formats, [one])
            except FleetctlError as error:
                failures.explain(error)
            else:
                written.append(one)
    return written


@app.command(epilog=epilog(
    "fleetctl ci drift -f fleets/prod.yaml --address http://ray-head:8265",
    "fleetctl ci drift -f fleets/ --no-issue --report html=drift.html",
    exit_codes="0 no drift, 1 error, 2 something is missing or differs from the files, 3 something is blocked, "
               "restarting, no longer ready or failed, 4 a policy refuses missing replicas, 64 usage"))
def drift(
    *,
    files: flags.OptionalDiskFiles = None,
    where: flags.Cluster,
    report: ReportOption = None,
    issue: Annotated[bool, typer.Option(
        "--issue/--no-issue", envvar="FLEETCTL_ISSUE",
        help="Keep one issue up to date: open while there is drift, otherwise closed.")] = True,
    forge: ci.ForgeOption = "auto",
) -> int:
    """Check on a schedule that the cluster matches the files.

    Makes a plan and reads the latest apply, and reports what is missing, blocked, outdated, restarting, no longer
    ready or failed. Cards in use by others, expired cordons, pauses, cooldowns and recent failures are warnings, and do
    not change the exit code. On a forge one issue is kept up to date: open while there is drift or a warning, otherwise
    closed. Nothing is changed in the cluster. FLEETCTL_FILES may also name the files, and FLEETCTL_REPORTS the reports,
    one per line.
    """
    job = Job(this_invocation(), ci.lines_of(files, "FLEETCTL_FILES"), where,
              reports=ci.lines_of(report, "FLEETCTL_REPORTS"), forge=find_forge(os.environ, forge))
    job.check()
    try:
        result, is_open = _drift_of(job)
    except UsageError:
        raise
    except FleetctlError as error:
        result, is_open, issue = ci.failed(job, error, "drift", "check"), True, False  # the issue stays as it is
    ci.publish(job, result, comment=False)
    if issue:
        ci.keep_issue(job, result, is_open=is_open)
    return result.code


def _drift_of(job: Job) -> tuple[JobResult, bool]:
    """Return the result, and whether there is drift or a warning."""
    loaded, where = inspect_fleet(job.files), ci.trusted_where(job)
    plan = (planned := plan_fleet(job.invocation, loaded, PlanOptions(files=job.files), where)).plan
    with open_dashboard(job.invocation, where.address, planned.fleet.cluster.address) as client:
        failed, beside = failures_of(client, plan), capacity_findings(client, loaded, planned.inventory)
    report = drift_report(planned.shown(), failed, beside)
    formats, reports = Formats(json=lambda: render_plan_json(plan), report=lambda: report), parse_reports(job.reports)
    show(formats, "table")
    write_reports(formats, reports)
    result = JobResult(report, report.exit_code, plan.plan_id, bool(plan.actions), reports=reports)
    return result, result.code != NOTHING_TO_DO or bool(beside)
