"""The jobs of CI that change nothing: `ci validate`, `ci review` of a change, and on a schedule `ci drift`.

`ci validate` is for jobs without access to a cluster: any branch, pull requests from forks. The other two report an
error to the forge, too: otherwise the comment would still show the old plan.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from fleetctl.apply.history import failures_of
from fleetctl.cli import flags
from fleetctl.cli.ci.job import CiJob, ForceOption, ForgeOption, IgnoreCooldownOption, job_of, lines_of
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.fleet_files import check_files
from fleetctl.cli.plan import plan_and_show
from fleetctl.cli.reporting import Formats, ReportOption, show
from fleetctl.doctor.diagnose import capacity_findings
from fleetctl.documents.position import Position
from fleetctl.fleetfile.file_tree import MAX_BYTES, read_whole
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.records import read_records
from fleetctl.planner.options import PlanOptions
from fleetctl.planner.policy import CHANGES, NOTHING_TO_DO, PARTIAL
from fleetctl.render.plan_json import render_plan_json
from fleetctl.render.report.model import EVERYONE, Column, Finding, Report, Table
from fleetctl.render.report.of_diagnosis import drift_report
from fleetctl.review.git_discovery import NoRepository
from fleetctl.review.inputs import Side
from fleetctl.review.revisions import GitTree, MissingRevision, repository_of
from fleetctl.workflow.dashboard import open_dashboard
from fleetctl.workflow.invocation import Where
from fleetctl.workflow.planning import plan_fleet, why_unknown

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
    forge: ForgeOption = "auto",
) -> int:
    """Check fleet files, and report to the forge.

    The forge gets annotations, a summary page and outputs; no cluster is contacted. FLEETCTL_FILES may also name the
    files, and FLEETCTL_REPORTS the reports, one per line.
    """
    job = job_of(lines_of(files, "FLEETCTL_FILES"), Where(), forge, reports=lines_of(report, "FLEETCTL_REPORTS"))
    return check_files(job.files, "table", job.reports)


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
    force: ForceOption = False,
    ignore_cooldown: IgnoreCooldownOption = False,
    comment: Annotated[bool, typer.Option(
        "--comment/--no-comment", envvar="FLEETCTL_COMMENT", help="Keep a comment on the change up to date.")] = True,
    pull_request: Annotated[int | None, flags.option(
        "--pull-request", metavar="N", envvar="FLEETCTL_PULL_REQUEST",
        help="Pull or merge request to comment on, if it cannot be detected.")] = None,
    forge: ForgeOption = "auto",
) -> int:
    """Plan a change, and report to the forge.

    The forge gets a comment that is kept up to date, a summary page, annotations and outputs. Nothing is changed in the
    cluster. FLEETCTL_FILES may also name the files, and FLEETCTL_REPORTS the reports, one per line. Without a forge it
    prints the plan; `--report markdown=FILE` writes the text of the comment.
    """
    job = job_of(lines_of(files, "FLEETCTL_FILES"), replace(where, inventory=inventory), forge, comments=comment,
                 number=pull_request, out=out, reports=lines_of(report, "FLEETCTL_REPORTS"))
    options = PlanOptions(force=force, files=job.files, ignore_cooldown=ignore_cooldown)
    with job.reports.of_error("plan", "plan for", job.files, base=lambda: job.revision(base)):
        loaded = inspect_fleet(job.files)
        fleet, before = loaded.sound(), job.read_base(job.revision(base))
        if before is None:
            job.invocation.say("note", NO_BASE)

        def more(report: Report) -> Report:
            report = _with_own_inventory(job, before, _with_broken_base(before, report))
            return _with_other_content(job, fleet, report)

        code = plan_and_show(job.invocation, loaded, options, job.trusted_for(fleet, before), job.reports,
                             base=before, out=out, more=more)
    return 0 if code in FINE[fail_on] else code


def _with_broken_base(base: Side | None, report: Report) -> Report:
    """Return the report; if the base has errors, with a warning that the effect of the change alone is unknown."""
    if base is None or not base.problems:
        return report
    text = why_unknown(base)
    table = Table("base", "This change alone", (Column("message", "what"),), ((text,),), rank=0,
                  readers=EVERYONE - {"terminal"})  # where plan has said it
    return replace(report, tables=(table, *report.tables),
                   findings=(*report.findings, Finding("warning", "BASE_BROKEN", base.revision.name, text)))


def _with_own_inventory(job: CiJob, base: Side | None, report: Report) -> Report:
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


def _with_other_content(job: CiJob, fleet: ResolvedFleet, report: Report) -> Report:
    """Return the report; if a file here is not the one of HEAD, but for line ends, with a warning.

    The attribute `working-tree-encoding` of a change does that to a file which git takes for unchanged.
    """
    if job.forge is None or job.forge.change is None:
        return report
    try:
        repository = repository_of(job.files[0], job.invocation.environ)
        tree = GitTree(repository, repository.commit("HEAD"))
        differing = [source.path for source in (*fleet.files, *fleet.house_rules)
                     if (committed := _content(tree, source.path)) is not None and committed is not UNREADABLE
                     and committed.replace(b"\r\n", b"\n") != read_whole(source.path).replace(b"\r\n", b"\n")]
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


def _content(tree: GitTree, path: str) -> bytes | None:
    """Return the file at a commit; None if there is none, UNREADABLE if it leads out of the repository."""
    try:
        return tree.read(path, MAX_BYTES) if tree.is_file(path) else None
    except OSError:
        return UNREADABLE


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
    forge: ForgeOption = "auto",
) -> int:
    """Check on a schedule that the cluster matches the files.

    Makes a plan and reads the latest apply, and reports what is missing, blocked, outdated, restarting, no longer
    ready or failed. Cards in use by others, expired cordons, pauses, cooldowns and recent failures are warnings, and do
    not change the exit code. On a forge one issue is kept up to date: open while there is drift or a warning, otherwise
    closed. Nothing is changed in the cluster. FLEETCTL_FILES may also name the files, and FLEETCTL_REPORTS the reports,
    one per line.
    """
    job = job_of(lines_of(files, "FLEETCTL_FILES"), where, forge, reports=lines_of(report, "FLEETCTL_REPORTS"))
    with job.reports.of_error("drift", "check of", job.files):
        loaded, where = inspect_fleet(job.files), job.trusted()
        planned = plan_fleet(job.invocation, loaded, PlanOptions(files=job.files), where)
        with open_dashboard(job.invocation, where.address, planned.fleet.cluster.address) as client:
            failed = failures_of(client, planned.plan)
            beside = capacity_findings(read_records(client), loaded, planned.inventory)
        drifted = drift_report(planned.shown(), failed, beside)
        show(Formats(json=lambda: render_plan_json(planned.plan), report=lambda: drifted,
                     plan_id=planned.plan.plan_id, acts=bool(planned.plan.actions)), "table", job.reports)
    if issue and job.reports.publisher:
        job.reports.publisher.keep_issue(drifted, is_open=drifted.exit_code != NOTHING_TO_DO or bool(beside))
    return drifted.exit_code
