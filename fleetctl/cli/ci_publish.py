"""Tells the forge how a run came out: a comment on the change, the summary page, outputs, annotations.

None of it changes the exit code: a forge that does not take a comment says nothing about the plan.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.forge.change import Forge
    from fleetctl.render.report.model import Report

SUMMARY_BUDGET = 250_000
"""Characters of a summary page: even of four bytes each they stay within the 1 MiB that GitHub takes."""


@dataclass(frozen=True, slots=True)
class Told:
    """How a run came out. `code` is what the plan or apply came to, whatever the process ends with."""

    report: Report
    code: int
    plan_id: str = ""
    has_changes: bool = False
    plan_file: str = ""
    reports: tuple[str, ...] = ()

    def outputs(self, root: str) -> dict[str, str]:
        """Return the values for later steps; files are named from `root` on, the checkout's, as steps take them.

        `summary` holds no text of a fleet file, a plan or a cluster: people put it into scripts.
        """
        return {
            "plan_id": self.plan_id,
            "has_changes": str(self.has_changes).lower(),
            "exit_code": str(self.code),
            "summary": counts(self.report) if self.report.kind == "problems" else self.report.verdict,
            "plan_file": _from_root(self.plan_file, root),
            "reports": "\n".join(_from_root(file, root) for file in self.reports),
        }


def publish(forge: Forge | None, told: Told, *, comment: bool) -> None:
    """Write the summary, the outputs and, where there is a change under review and `comment` is wanted, the comment.

    The comment comes last, for it is what may take long or fail.
    """
    if forge is None:
        return
    from fleetctl.render.report.markdown import render_markdown

    footer = _footer(forge)
    with _warning_if_lost("summary page"):
        forge.summarise(render_markdown(told.report, SUMMARY_BUDGET) + footer)
    with _warning_if_lost("outputs"):
        forge.output(told.outputs(forge.root))
    if comment and forge.change:
        _comment(forge, render_markdown(told.report) + footer)


def annotate(forge: Forge | None, report: Report) -> None:
    """Print the annotations of GitHub's runner; GitLab reads the JUnit report instead."""
    if forge is None or forge.name != "GitHub":
        return
    from fleetctl.cli.console import write_document
    from fleetctl.render.report.formats import ReportFormat, render_report

    write_document(render_report(report, ReportFormat.GITHUB, root=forge.root, cwd=str(Path.cwd())))


@contextmanager
def _warning_if_lost(what: str) -> Iterator[None]:
    from fleetctl.cli.console import say

    try:
        yield
    except OSError as error:
        say("warning", f"no {what} of this run: {error.strerror or error}")


def _from_root(file: str, root: str) -> str:
    """Return a file as seen from the root of the checkout; one that lies elsewhere, with its whole path."""
    if not file or not root:
        return file
    whole = Path(os.path.abspath(file))  # noqa: PTH100  resolve() would follow links
    return str(whole.relative_to(root)) if whole.is_relative_to(root) else str(whole)


def _comment(forge: Forge, body: str) -> None:
    from fleetctl.cli.console import say
    from fleetctl.errors import ForgeError

    label = forge.change.label if forge.change else ""
    try:
        posted = forge.comment(body)
    except ForgeError as error:
        say("warning", f"no comment on {label}, the plan stands all the same: {error.message}")
        if error.hint:
            say("hint", error.hint)
    else:
        done = "written" if posted.created else "brought up to date"
        say("comment", f"{done} on {label}{': ' if posted.url else ''}{posted.url}")


def _footer(forge: Forge) -> str:
    """Say which commit this is about, so that a comment that was left behind can be told, and which run made it."""
    from fleetctl.cli.who import who

    run, head = who(os.environ).ci_run, forge.change.head if forge.change else None
    made_by = f"[this run]({run})" if run else ""
    of_commit = f"commit {head}" if head and head.isalnum() else ""
    told = ", by ".join(part for part in (of_commit, made_by) if part)
    return f"\nAbout {told}.\n" if told else ""


def counts(report: Report) -> str:
    """Return what a report without a plan comes to, as `1 error, 0 warnings`."""
    return ", ".join(f"{total.count} {total.label}" for total in report.totals)
