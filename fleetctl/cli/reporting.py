"""Output of a command's document: --format for standard output, --report for files and for the forge of a CI job.

A command declares how to make its document in each format (`Formats`); only the requested formats are made. The flags
are checked before anything is read, so that a run of minutes does not fail because of a mistyped format.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast, get_args

import typer

from fleetctl.cli import failures, flags
from fleetctl.cli.console import result_console, show_report, write_document, write_result
from fleetctl.cli.flags import OutputFormat
from fleetctl.cli.process import this_invocation
from fleetctl.documents.base import Stored
from fleetctl.documents.canonical import indented_json
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.render.report.formats import OWN_FORMATS, ReportFormat, RunFormat, render_report
from fleetctl.render.report.model import Report
from fleetctl.workflow.output_files import already_read, files_read, real_path, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from fleetctl.cli.publish import Publisher
    from fleetctl.documents.plan import Plan
    from fleetctl.forge.forges import Sink

REPORT_MODE = 0o644
"""Reports are masked, and another CI step uploads them; only a saved plan is private to its owner."""

REPORT_WIDTH = 120
JSON_FORMATS = ("json", "jsonl")

RUN_FORMATS = get_args(RunFormat)
OUTCOME_FORMATS = ("table", "markdown", "html", "github")
"""Those of a run that ends here: its own --format has events and their summary as JSON."""
SINKS: tuple[Sink, ...] = ("comment", "summary", "outputs")
"""The values of --report that are no file; see `publish.py`."""

ReportFormatOption = Annotated[ReportFormat, typer.Option("--format", help=flags.FORMAT_HELP)]
RunFormatOption = Annotated[RunFormat, typer.Option("--format", help=flags.FORMAT_HELP)]
_report = partial(flags.option, "--report", metavar="FORMAT=FILE|comment|summary|outputs")
_IN_CI = "in a CI job also a comment on the change, the job's summary page or its outputs; repeatable."
ReportOption = Annotated[list[str] | None, _report(
    help=f"Also write the result to FILE, as html, markdown, sarif, junit or another format; {_IN_CI}")]
RunReportOption = Annotated[list[str] | None, _report(
    help=f"Also write the result to FILE, as html, markdown or another format; {_IN_CI}")]

Document = TypeVar("Document", bound=Stored)


@dataclass(frozen=True, slots=True)
class Formats:
    """One document in every format, each made on demand. If `page` or `table` is None, it is made from the report.

    `plan_id` = of the plan that it is about, `acts` = whether that creates, reloads or fetches anything, `plan_file` =
    where it was saved.
    """

    json: Callable[[], str]
    report: Callable[[], Report]
    page: Callable[[], str] | None = None
    table: Callable[[Console], None] | None = None
    plan_id: str = ""
    acts: bool = False
    plan_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Reports:
    """Where the result of a run goes besides standard output: files, and the forge of the CI job.

    `errors_too` = an error is a result, too: a comment must not go on showing the plan before it.
    """

    files: Mapping[Path, ReportFormat] = field(default_factory=dict)
    publisher: Publisher | None = None
    errors_too: bool = False

    def write(self, formats: Formats) -> None:
        """Write the files, each atomically; raises FleetctlError if one cannot be written."""
        for path, chosen in self.files.items():
            write_file(path, text_of(formats, chosen), mode=REPORT_MODE)

    def publish(self, formats: Formats) -> None:
        """Report to the forge."""
        if self.publisher is not None:
            self.publisher.publish(formats.report(), {
                "plan_id": formats.plan_id, "has_changes": str(formats.acts).lower(),
                "plan_file": str(formats.plan_file or "")}, self.files)

    @contextmanager
    def of_error(
        self, kind: str, what: str, files: Sequence[str], *, base: Callable[[], str | None] = lambda: None,
        plan: Callable[[], Plan | None] = lambda: None,
    ) -> Iterator[None]:
        """Report an error of this block instead of the result, and exit with its code; a usage error is only raised.

        `kind` = of the report that could not be made, `what` = "plan for" in "No plan for fleet lab". `plan` returns
        the plan if there is one by then; else the fleet has the name that the `files` or their `base` say. Files in a
        format that has no place for an error are not written. A report that cannot be written, which may be the error
        itself, does not prevent the others.
        """
        try:
            yield
        except UsageError:
            raise
        except FleetctlError as error:
            if not self.errors_too:
                raise
            from fleetctl.cli.publish import name_of_fleet
            from fleetctl.render.problems import failure_report

            failures.explain(error)
            made = plan()
            name = made.fleet.name if made else name_of_fleet(files, base)
            report = failure_report(error, identity=f"{kind}:{name}", fleet=name, title=f"No {what} fleet {name}")
            formats = Formats(json=str, report=lambda: report)
            if made:
                formats = replace(formats, plan_id=made.plan_id, acts=bool(made.actions))
            replace(self, files=self._written(formats)).publish(formats)
            raise typer.Exit(error.exit_code) from None

    def _written(self, formats: Formats) -> dict[Path, ReportFormat]:
        """Write an error to the files that have a place for it, and return those that could be written."""
        written: dict[Path, ReportFormat] = {}
        for path, chosen in self.files.items():
            if chosen in OWN_FORMATS:
                continue
            try:
                Reports({path: chosen}).write(formats)
            except FleetctlError as also:
                failures.explain(also)
            else:
                written[path] = chosen
        return written


def parse_reports(
    values: Sequence[str] | None, *, formats: Sequence[str] = get_args(ReportFormat), sinks: Sequence[Sink] = SINKS,
    beside: Path | None = None, reading: Iterable[str | None] = (),
) -> Reports:
    """Return the reports of --report, in one of `formats` or in `sinks`. `beside` = another file this run writes,
    `reading` = the files it reads.

    Raises UsageError with all problems: an unknown format, or a file that is named twice, is read by this run, is not a
    regular file or is in a folder that cannot be written; and for a sink that this job does not have.
    """
    problems: list[str] = []
    wanted: dict[Path, ReportFormat] = {}
    chosen = [sink for sink in sinks if sink in (values or ())]
    taken = {real_path(beside): "--out"} if beside else {}
    inputs = files_read(reading) if values else set()
    for value in values or ():
        if value in chosen:
            continue
        name, _, file = value.partition("=")
        path, real = Path(file), real_path(Path(file))
        problem = "no file is given" if not file else (
            f"{name or 'nothing'} is not a format of this command" if name not in formats else _file_problem(path))
        if problem is None and real in taken:
            problem = f"{path} is also written by {taken[real]}"
        if problem or real in inputs:
            problems.append(f"--report {value}: {problem or already_read(path)}")
        else:
            taken[real] = f"--report {value}"
            wanted[path] = cast("ReportFormat", name)
    if problems:
        also = f"; in a CI job also {', '.join(sinks)}" if sinks else ""
        raise UsageError("; ".join(problems), hint="--report takes FORMAT=FILE, as in --report markdown=plan.md; "
                                                   f"formats: {', '.join(formats)}{also}")
    if not chosen:
        return Reports(wanted)
    from fleetctl.cli.publish import publisher_to  # the forges, which are only needed in their jobs

    return Reports(wanted, publisher_to(this_invocation(), chosen), errors_too=True)


def formats_of(document: Document, report: Callable[[Document], Report]) -> Formats:
    """Return the formats of a document whose JSON is the document itself."""
    return Formats(json=lambda: indented_json(document), report=lambda: report(document))


def show_answer(answer: Document, chosen: OutputFormat, report: Callable[[Document], Report]) -> None:
    """Print an answer as a table, or as the JSON document itself."""
    show(formats_of(answer, report), chosen)


def show(formats: Formats, chosen: ReportFormat, reports: Reports | None = None) -> None:
    """Write the reports, print the document on standard output, and publish it; only the table may have color."""
    if reports and reports.files:
        reports.write(formats)
    if chosen == "table":
        _print_table(formats, result_console())
    else:
        write = write_result if chosen in JSON_FORMATS else write_document
        write(text_of(formats, chosen))
    if reports and reports.publisher:
        reports.publish(formats)


def text_of(formats: Formats, chosen: ReportFormat) -> str:
    """Return the document in a format, without color."""
    if chosen == "table":
        from fleetctl.render.report.terminal import plain_console  # rich

        out = io.StringIO()
        _print_table(formats, plain_console(out, REPORT_WIDTH))
        return out.getvalue()
    if chosen == "json":
        return formats.json()
    if chosen == "html" and formats.page is not None:
        return formats.page()
    cwd = Path.cwd()
    return render_report(formats.report(), chosen, root=repository_root(os.environ, cwd), cwd=str(cwd))


def repository_root(environ: Mapping[str, str], cwd: Path) -> str:
    """Return the folder that paths on the forge start from: the runner's workspace, else the checkout around `cwd`."""
    named = environ.get("GITHUB_WORKSPACE") or environ.get("CI_PROJECT_DIR")
    return named or next((str(folder) for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), "")


def _print_table(formats: Formats, console: Console) -> None:
    if formats.table is None:
        show_report(formats.report(), console)
    else:
        formats.table(console)


def _file_problem(path: Path) -> str | None:
    if str(path) == "-":
        return "--format writes to standard output; name a file"
    try:
        if path.exists() and not path.is_file():
            return f"{path} is not a regular file"
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}"
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    if not os.access(path.parent, os.W_OK):
        return f"the folder {path.parent} cannot be written"
    return None
