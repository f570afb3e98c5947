"""What a run reports to the forge of its CI job: a comment on the change, the job's summary page, outputs, annotations.

`--report comment`, `summary` and `outputs` of any command request it; `fleetctl ci` requests all that its job can have.
A failure to report does not change the exit code: a refused comment says nothing about the plan.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.cli.console import say, write_document
from fleetctl.cli.verb import ci_address
from fleetctl.errors import FleetctlError, ForgeError, UsageError
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.sources import read_sources
from fleetctl.forge.forges import Forge, Sink, find_forge
from fleetctl.forge.sticky import Posted
from fleetctl.render.report.formats import render_report
from fleetctl.render.report.markdown import render_markdown
from fleetctl.render.report.model import Report
from fleetctl.workflow.dashboard import warn_if_readable
from fleetctl.workflow.invocation import Invocation

SUMMARY_BUDGET = 250_000
"""Characters of a summary page: at up to four bytes each they stay within GitHub's limit of 1 MiB."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """The forge of this job, and what of it gets the report; `annotates` = GitHub's log gets annotations, too."""

    invocation: Invocation
    forge: Forge
    sinks: Collection[Sink]
    annotates: bool = False

    def publish(self, report: Report, plan: Mapping[str, str], files: Iterable[Path]) -> None:
        """Report the result of a run. `plan` = the outputs about its plan, `files` = the reports that were written.

        The comment comes after the outputs, as it may take long or fail. GitLab reads JUnit, not annotations.
        """
        forge, footer = self.forge, self._footer()
        if ":" not in report.identity and report.fleet:  # one comment per fleet
            report = replace(report, identity=f"{report.identity}:{report.fleet}")
        writers: tuple[tuple[Sink, str, Callable[[], None]], ...] = (
            ("summary", "summary page", lambda: forge.summarize(render_markdown(report, SUMMARY_BUDGET) + footer)),
            ("outputs", "outputs", lambda: forge.output(_outputs(report, plan, files, forge.root))))
        for sink, name, write in writers:
            try:
                if sink in self.sinks:
                    write()
            except OSError as error:
                say("warning", f"no {name} of this run: {error.strerror or error}")
        if "comment" in self.sinks and forge.change:
            on = f"on {forge.change.label}"
            still = "; the plan is still valid" if report.kind == "plan" else ""
            self._send(lambda: forge.comment(render_markdown(report) + footer), "comment", on,
                       lost=f"no comment {on}{still}")
        if self.annotates and forge.name == "GitHub":
            write_document(render_report(report, "github", root=forge.root, cwd=str(Path.cwd())))

    def keep_issue(self, report: Report, *, is_open: bool) -> None:
        """Keep one issue about the report: opened or updated if `is_open`, otherwise closed with the last report."""
        text = render_markdown(report) + self._footer()
        self._send(lambda: self.forge.issue(report.title, text, is_open=is_open), "issue",
                   "and open" if is_open else "and closed", lost="no issue was written")

    def _send(self, post: Callable[[], Posted | None], what: str, where: str, *, lost: str) -> None:
        """Post something and report it; `lost` = the warning if the forge refuses."""
        try:
            warn_if_readable(self.invocation, self.forge.check_access(), "the token for the forge")
            posted = post()
        except ForgeError as error:
            say("warning", f"{lost}: {error.message}")
            if error.hint:
                say("hint", error.hint)
            return
        if posted:
            say(what, f"{'written' if posted.created else 'updated'} {where}{': ' if posted.url else ''}{posted.url}")

    def _footer(self) -> str:
        """Return the commit and the CI run of the report, so that an outdated comment can be recognized."""
        run, head = ci_address(self.invocation.environ), self.forge.change.head if self.forge.change else None
        made_by = f"[this run]({run})" if run else ""
        of_commit = f"commit {head}" if head and head.isalnum() else ""
        about = ", by ".join(part for part in (of_commit, made_by) if part)
        return f"\nAbout {about}.\n" if about else ""


def publisher_to(invocation: Invocation, sinks: Sequence[Sink]) -> Publisher:
    """Return a publisher to these sinks; raises UsageError if this is no job of a forge, or lacks what they need."""
    forge = find_forge(invocation.environ)
    if forge is None:
        raise UsageError(f"--report {sinks[0]}: not in a CI job: neither GITHUB_ACTIONS nor GITLAB_CI is true",
                         hint="--report markdown=FILE writes the text of the comment to a file")
    for sink in sinks:
        try:
            forge.require(sink)
        except ForgeError as error:
            raise UsageError(f"--report {sink}: {error.message}", hint=error.hint) from None
    return Publisher(invocation, forge, sinks)


def name_of_fleet(files: Sequence[str], base: Callable[[], str | None]) -> str:
    """Return the fleet's name even if its files have errors: from the files, from their base, else the file names."""
    read, _ = read_sources([file for file in files if file != "-"], None)
    size = 0
    for source in read:
        composed = compose_bytes(source, size)
        size += composed.size
        for document in composed.documents:
            node = document.node(("metadata", "name"))
            if node is not None and isinstance(node.value, str) and node.value:
                return node.value
    with suppress(FleetctlError):
        if (revision := base()) is not None:
            from fleetctl.review.inputs import load_base  # slow: comparing two fleets

            if fleet := load_base(files, revision, os.environ).fleet:
                return fleet.name
    return ", ".join(files) or "unknown"


def _outputs(report: Report, plan: Mapping[str, str], files: Iterable[Path], root: str) -> dict[str, str]:
    """Return the outputs for later steps; paths are relative to `root`, the root of the checkout.

    `summary` has no text from a fleet file, a plan or a cluster, because people put it into scripts.
    """
    counts = ", ".join(f"{total.count} {total.label}" for total in report.totals)
    return {
        "plan_id": plan["plan_id"], "has_changes": plan["has_changes"], "exit_code": str(report.exit_code),
        "summary": counts if report.kind == "problems" else report.conclusion,
        "plan_file": _from_root(plan["plan_file"], root),
        "reports": "\n".join(_from_root(str(file), root) for file in files),
    }


def _from_root(file: str, root: str) -> str:
    """Return a path relative to the root of the checkout; for a file outside, the absolute path."""
    if not file or not root:
        return file
    whole = Path(os.path.abspath(file))  # noqa: PTH100  resolve() would follow links
    return str(whole.relative_to(root)) if whole.is_relative_to(root) else str(whole)
