"""A CI job from its flags and variables, the base of its change, its result, and the report to the forge.

Neither the base nor the cluster it is planned on comes from the change itself: otherwise a pull request could name a
cluster and be sent this job's token. An address trusted here counts as given with --address (see
`workflow/dashboard.py:open_dashboard`); no other address in a file does.

The report is a comment on the change, the summary page, outputs and annotations. A failure to report does not change
the exit code: a refused comment says nothing about the plan.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetctl.cli import failures, flags
from fleetctl.cli.console import say, write_document
from fleetctl.cli.reporting import WantedReport, parse_reports
from fleetctl.cli.verb import ci_address
from fleetctl.errors import FleetctlError, ForgeError, RevisionError, UsageError
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import read_sources
from fleetctl.forge.change import ChangeRequest, Forge, ForgeName
from fleetctl.forge.sticky import Posted
from fleetctl.render.problems import failure_report
from fleetctl.render.report.formats import render_report
from fleetctl.render.report.markdown import render_markdown
from fleetctl.render.report.model import Report
from fleetctl.review.inputs import Side, load_base
from fleetctl.review.revisions import MissingRevision
from fleetctl.workflow.contexts import given_address
from fleetctl.workflow.dashboard import warn_if_readable
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.output_files import check_out

# every flag has a variable, because a template cannot build a command line safely
ForgeOption = Annotated[ForgeName, typer.Option("--forge", envvar="FLEETCTL_FORGE", help="Forge to report to.")]
ForceOption = Annotated[bool, typer.Option("--force", envvar="FLEETCTL_FORCE", help=flags.FORCE_HELP)]
IgnoreCooldownOption = Annotated[bool, typer.Option(
    "--ignore-cooldown", envvar="FLEETCTL_IGNORE_COOLDOWN", help=flags.IGNORE_COOLDOWN_HELP)]
SelectorOption = Annotated[Any, flags.option(
    "--selector", "-l", metavar="LABELS", envvar="FLEETCTL_SELECTOR", parser=flags.label_selector,
    help="Only models with these labels.")]
LockTimeoutOption = Annotated[float, flags.option(
    "--lock-timeout", metavar="DURATION", envvar="FLEETCTL_LOCK_TIMEOUT", parser=flags.duration,
    help=f"{flags.LOCK_TIMEOUT_HELP} [default: 10m]")]
SUMMARY_BUDGET = 250_000
"""Characters of a summary page: at up to four bytes each they stay within GitHub's limit of 1 MiB."""

NOT_FETCHED = ("the checkout lacks the base of the change: in GitHub Actions set fetch-depth: 0 of actions/checkout, "
               "in GitLab set GIT_DEPTH: 0")
NAME_CLUSTER = "name the cluster to plan on: --address, FLEETCTL_ADDRESS, or the action's input `address`"


@dataclass(frozen=True, slots=True)
class Job:
    """One run of `fleetctl ci`."""

    invocation: Invocation
    files: tuple[str, ...]
    where: Where
    forge: Forge | None = None
    base: str | None = None
    out: Path | None = None
    reports: tuple[str, ...] = ()
    force: bool = False
    ignore_cooldown: bool = False

    @property
    def change(self) -> ChangeRequest | None:
        """The pull or merge request under review; None if there is none."""
        return self.forge.change if self.forge else None

    def check(self) -> None:
        """Raise UsageError for invalid settings, before any file or cluster is read."""
        if not self.files:
            raise UsageError("no fleet files", hint="give -f FLEET, or set FLEETCTL_FILES")
        if "-" in self.files:
            raise UsageError("standard input is not a file of the repository", hint="name the fleet files")
        reading = (*self.files, self.where.inventory)
        check_out(self.out, reading)
        parse_reports(self.reports, beside=self.out, reading=reading)

    def address(self) -> str | None:
        """Return the cluster address from the job's own settings."""
        return given_address(self.invocation, self.where.address)


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job. `code` is the exit code of the plan or apply; the process may exit with another one."""

    report: Report
    code: int
    plan_id: str = ""
    has_changes: bool = False
    plan_file: str = ""
    reports: Sequence[WantedReport] = ()

    def outputs(self, root: str) -> dict[str, str]:
        """Return the outputs for later steps; paths are relative to `root`, the root of the checkout.

        `summary` has no text from a fleet file, a plan or a cluster, because people put it into scripts.
        """
        counts = ", ".join(f"{total.count} {total.label}" for total in self.report.totals)
        return {
            "plan_id": self.plan_id,
            "has_changes": str(self.has_changes).lower(),
            "exit_code": str(self.code),
            "summary": counts if self.report.kind == "problems" else self.report.conclusion,
            "plan_file": _from_root(self.plan_file, root),
            "reports": "\n".join(_from_root(str(one.path), root) for one in self.reports),
        }


def _from_root(file: str, root: str) -> str:
    """Return a path relative to the root of the checkout; for a file outside, the absolute path."""
    if not file or not root:
        return file
    whole = Path(os.path.abspath(file))  # noqa: PTH100  resolve() would follow links
    return str(whole.relative_to(root)) if whole.is_relative_to(root) else str(whole)


def lines_of(given: list[str] | None, variable: str) -> tuple[str, ...]:
    """Return the values of a flag, otherwise the lines of its variable."""
    entries = os.environ.get(variable, "").splitlines()
    return tuple(given or (line.strip() for line in entries if line.strip()))


def read_base(invocation: Invocation, files: Sequence[str], revision: str) -> Side:
    """Return the fleet at the revision; if it is missing, raises RevisionError with a hint how to fetch it."""
    try:
        return load_base(files, revision, invocation.environ)
    except MissingRevision as error:
        raise RevisionError(error.message, hint=NOT_FETCHED) from None


def trusted_address(head: ResolvedFleet, base: Side | None, forge: Forge | None) -> str | None:
    """Return the cluster address of the files if it can be trusted: the base has the same address, or the forge reports
    no change under review. None = not trusted, the author of the files may be anyone.

    Raises FleetctlError if a change names another cluster than its base.
    """
    if base is None and (forge is None or forge.change is None):
        return head.cluster.address if forge else None
    if (base is None or base.problems) and head.cluster.address:
        raise FleetctlError(
            "the change sets spec.cluster.address, and the address in its base is unknown; that cluster was not "
            "contacted", hint=NAME_CLUSTER)
    known = base.fleet.cluster.address if base and base.fleet else None
    if head.cluster.address not in (None, known):
        raise FleetctlError(
            "the change sets another spec.cluster.address than its base; that cluster was not contacted",
            hint=NAME_CLUSTER)
    return head.cluster.address


def trusted_where(job: Job) -> Where:
    """Return the cluster for a job without a change under review: its own settings, else those of the files."""
    if job.address() or "-" in job.files or job.forge is None or job.forge.change:
        return job.where
    return replace(job.where, address=trusted_address(load_fleet(job.files), None, job.forge))


def fleet_name(invocation: Invocation, files: Sequence[str], revision: str | None) -> str:
    """Return the fleet's name even if the files have errors: from the files, from the base, else the file names."""
    read, _ = read_sources(files, None)
    size = 0
    for source in read:
        composed = compose_bytes(source, size)
        size += composed.size
        for document in composed.documents:
            node = document.node(("metadata", "name"))
            if node is not None and isinstance(node.value, str) and node.value:
                return node.value
    if revision is not None:
        with suppress(RevisionError):
            base = read_base(invocation, files, revision)
            if base.fleet:
                return base.fleet.name
    return ", ".join(files)


def failed(job: Job, error: FleetctlError, kind: str, what: str) -> JobResult:
    """Show the error that ended a job and return its result: there is no `what`. `kind` = of the job's reports."""
    failures.explain(error)
    name = fleet_name(job.invocation, job.files, None)
    report = failure_report(error, identity=f"{kind}:{name}", fleet=name, title=f"No {what} of fleet {name}")
    return JobResult(report, error.exit_code)


def publish(job: Job, result: JobResult, *, comment: bool) -> None:
    """Write the summary page, the outputs, the annotations and, if there is a change and `comment` is set, the comment.

    The comment comes after the outputs, as it may take long or fail. GitLab reads the JUnit report, not annotations.
    """
    forge, report = job.forge, result.report
    if forge is None:
        return
    footer = _footer(job)
    with _warning_if_lost("summary page"):
        forge.summarize(render_markdown(report, SUMMARY_BUDGET) + footer)
    with _warning_if_lost("outputs"):
        forge.output(result.outputs(forge.root))
    if comment and forge.change and forge.change.number is not None:
        on = f"on {forge.change.label}"
        _send(job, lambda: forge.comment(render_markdown(report) + footer), "comment", on,
              lost=f"no comment {on}; the plan is still valid")
    if forge.name == "GitHub":
        write_document(render_report(report, "github", root=forge.root, cwd=str(Path.cwd())))


@contextmanager
def _warning_if_lost(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        say("warning", f"no {what} of this run: {error.strerror or error}")


def keep_issue(job: Job, result: JobResult, *, is_open: bool) -> None:
    """Keep one issue about the report: opened or updated if `is_open`, otherwise closed with the last report."""
    forge, report = job.forge, result.report
    if forge is not None:
        _send(job, lambda: forge.issue(report.title, render_markdown(report) + _footer(job), is_open=is_open), "issue",
              "and open" if is_open else "and closed", lost="no issue was written")


def _send(job: Job, post: Callable[[], Posted | None], what: str, where: str, *, lost: str) -> None:
    """Post something and report it; `lost` = the warning if the forge refuses."""
    try:
        if job.forge:
            warn_if_readable(job.invocation, job.forge.check_access(), "the token for the forge")
        posted = post()
    except ForgeError as error:
        say("warning", f"{lost}: {error.message}")
        if error.hint:
            say("hint", error.hint)
        return
    if posted:
        say(what, f"{'written' if posted.created else 'updated'} {where}{': ' if posted.url else ''}{posted.url}")


def _footer(job: Job) -> str:
    """Return the commit and the CI run of the report, so that an outdated comment can be recognized."""
    run, head = ci_address(job.invocation.environ), job.change.head if job.change else None
    made_by = f"[this run]({run})" if run else ""
    of_commit = f"commit {head}" if head and head.isalnum() else ""
    about = ", by ".join(part for part in (of_commit, made_by) if part)
    return f"\nAbout {about}.\n" if about else ""
