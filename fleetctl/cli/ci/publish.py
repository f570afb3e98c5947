"""Reports the result of a job to the forge: a comment on the change, the summary page, outputs, annotations.

None of it changes the exit code: a forge that refuses a comment says nothing about the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.cli.ci.job import Job, JobResult
from fleetctl.cli.console import say, write_document
from fleetctl.cli.identity import ci_address
from fleetctl.errors import ForgeError
from fleetctl.forge.change import Forge
from fleetctl.forge.sticky import Posted
from fleetctl.render.report.formats import ReportFormat, render_report
from fleetctl.render.report.markdown import render_markdown

SUMMARY_BUDGET = 250_000
"""Characters of a summary page: even of four bytes each they stay within GitHub's limit of 1 MiB."""


def publish(job: Job, result: JobResult, *, comment: bool) -> None:
    """Write the summary page, the outputs, the comment if there is a change and `comment` is set, and the annotations.

    The comment comes after the outputs, for it may take long or fail. GitLab reads the JUnit report, not annotations.
    """
    forge, report = job.forge, result.report
    if forge is None:
        return
    footer = _footer(job)
    with _warning_if_lost("summary page"):
        forge.summarise(render_markdown(report, SUMMARY_BUDGET) + footer)
    with _warning_if_lost("outputs"):
        forge.output(result.outputs(forge.root))
    if comment and forge.change:
        _comment(forge, render_markdown(report) + footer)
    if forge.name == "GitHub":
        write_document(render_report(report, ReportFormat.GITHUB, root=forge.root, cwd=str(Path.cwd())))


@contextmanager
def _warning_if_lost(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        say("warning", f"no {what} of this run: {error.strerror or error}")


def _comment(forge: Forge, body: str) -> None:
    label = forge.change.label if forge.change else ""
    try:
        posted = forge.comment(body)
    except ForgeError as error:
        say("warning", f"no comment on {label}; the plan is still valid: {error.message}")
        if error.hint:
            say("hint", error.hint)
    else:
        _say_posted("comment", f"on {label}", posted)


def keep_issue(job: Job, result: JobResult, *, is_open: bool) -> None:
    """Keep one issue about the report: opened or updated where `is_open`, else closed with the last report."""
    if job.forge is None:
        return
    try:
        posted = job.forge.issue(result.report.title, render_markdown(result.report) + _footer(job), is_open=is_open)
    except ForgeError as error:
        say("warning", f"no issue was written: {error.message}")
        if error.hint:
            say("hint", error.hint)
    else:
        _say_posted("issue", "and open" if is_open else "and closed", posted)


def _say_posted(what: str, where: str, posted: Posted | None) -> None:
    if posted:
        say(what, f"{'written' if posted.created else 'updated'} {where}{': ' if posted.url else ''}{posted.url}")


def _footer(job: Job) -> str:
    """Return which commit this is about and which run made it, so that an outdated comment can be recognised."""
    run, head = ci_address(job.invocation.environ), job.change.head if job.change else None
    made_by = f"[this run]({run})" if run else ""
    of_commit = f"commit {head}" if head and head.isalnum() else ""
    about = ", by ".join(part for part in (of_commit, made_by) if part)
    return f"\nAbout {about}.\n" if about else ""
