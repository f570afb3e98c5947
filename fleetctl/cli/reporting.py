"""Output of a command's document: --format for standard output, --report FORMAT=FILE for files.

A command declares how to make its document in each format (`Formats`); only the requested formats are made. The flags
are checked before anything is read, so that a run of minutes does not fail because of a mistyped format.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast, get_args

import typer

from fleetctl.cli import flags
from fleetctl.cli.console import result_console, show_report, write_document, write_result
from fleetctl.cli.flags import OutputFormat
from fleetctl.documents.base import Stored
from fleetctl.documents.canonical import indented_json
from fleetctl.errors import UsageError
from fleetctl.render.report.formats import ReportFormat, render_report
from fleetctl.render.report.model import Report
from fleetctl.workflow.output_files import already_read, files_read, real_path, write_file

if TYPE_CHECKING:
    from rich.console import Console

REPORT_MODE = 0o644
"""Reports are masked, and another CI step uploads them; only a saved plan is private to its owner."""

REPORT_WIDTH = 120
JSON_FORMATS = ("json", "jsonl")

ReportFormatOption = Annotated[ReportFormat, typer.Option("--format", help=flags.FORMAT_HELP)]
ReportOption = Annotated[list[str] | None, flags.option(
    "--report", metavar="FORMAT=FILE",
    help="Also write the result to FILE, as html, markdown, sarif, junit or another format; repeatable.")]

Document = TypeVar("Document", bound=Stored)


@dataclass(frozen=True, slots=True)
class Formats:
    """One document in every format, each made on demand. If `page` or `table` is None, it is made from the report."""

    json: Callable[[], str]
    report: Callable[[], Report]
    page: Callable[[], str] | None = None
    table: Callable[[Console], None] | None = None


@dataclass(frozen=True, slots=True)
class WantedReport:
    """One --report, parsed."""

    format: ReportFormat
    path: Path


def parse_reports(
    values: Sequence[str] | None, *, beside: Path | None = None, reading: Iterable[str | None] = ()
) -> list[WantedReport]:
    """Return the reports of --report. `beside` = another file this run writes, `reading` = the files it reads.

    Raises UsageError with all problems: an unknown format, or a file that is named twice, is read by this run, is not a
    regular file or is in a folder that cannot be written.
    """
    problems: list[str] = []
    wanted: list[WantedReport] = []
    taken = {real_path(beside): "--out"} if beside else {}
    inputs = files_read(reading) if values else set()
    for value in values or ():
        name, _, file = value.partition("=")
        path, real = Path(file), real_path(Path(file))
        problem = "no file is given" if not file else (
            f"{name or 'nothing'} is not a format" if name not in get_args(ReportFormat) else _file_problem(path))
        if problem is None and real in taken:
            problem = f"{path} is also written by {taken[real]}"
        if problem or real in inputs:
            problems.append(f"--report {value}: {problem or already_read(path)}")
        else:
            taken[real] = f"--report {value}"
            wanted.append(WantedReport(cast("ReportFormat", name), path))
    if problems:
        raise UsageError("; ".join(problems), hint="--report takes FORMAT=FILE, as in --report markdown=plan.md; "
                                                   f"formats: {', '.join(get_args(ReportFormat))}")
    return wanted


def formats_of(document: Document, report: Callable[[Document], Report]) -> Formats:
    """Return the formats of a document whose JSON is the document itself."""
    return Formats(json=lambda: indented_json(document), report=lambda: report(document))


def show_answer(answer: Document, chosen: OutputFormat, report: Callable[[Document], Report]) -> None:
    """Print an answer as a table, or as the JSON document itself."""
    show(formats_of(answer, report), chosen)


def write_reports(formats: Formats, wanted: Sequence[WantedReport]) -> None:
    """Write every report, each atomically; raises FleetctlError if one cannot be written."""
    for report in wanted:
        write_file(report.path, text_of(formats, report.format), mode=REPORT_MODE)


def show(formats: Formats, chosen: ReportFormat, reports: Sequence[WantedReport] = ()) -> None:
    """Write the reports, then print the document on standard output; only the table may have color."""
    write_reports(formats, reports)
    if chosen == "table":
        _print_table(formats, result_console())
    else:
        write = write_result if chosen in JSON_FORMATS else write_document
        write(text_of(formats, chosen))


def text_of(formats: Formats, chosen: ReportFormat) -> str:
    """Return the document in a format, without color."""
    if chosen == "table":
        from rich.console import Console

        out = io.StringIO()
        _print_table(formats, Console(file=out, width=REPORT_WIDTH, no_color=True, color_system=None,
                                      force_terminal=False, highlight=False, markup=False, emoji=False))
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
