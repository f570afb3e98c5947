"""How a command shows its document: --format for standard output, --report FORMAT=FILE for files beside it.

A command says once what its document looks like in each format (`Faces`); everything is made only when it is asked for.
The flags are checked before anything is read, so that a run of minutes does not end with a mistyped format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.render.report.formats import ReportFormat

if TYPE_CHECKING:
    from rich.console import Console

    from fleetctl.render.report.model import Report

REPORT_MODE = 0o644
"""Reports are masked, and are there to be uploaded by another step; only a saved plan is for its owner alone."""

REPORT_WIDTH = 120
JSON_FORMATS = (ReportFormat.JSON, ReportFormat.JSONL)

ReportFormatOption = Annotated[ReportFormat, typer.Option("--format", help="What to print on standard output.")]
ReportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--report", metavar="FORMAT=FILE", show_default=False,
        help="Also write the result to this file in this format, any that --format has; repeatable.",
    ),
]


@dataclass(frozen=True, slots=True)
class Faces:
    """One document in every form; each is made when it is asked for. `page` and `table` None = those any report has."""

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
    """Return what --report asks for; `beside` = another file this run writes, `reading` = what it reads: none of them
    may be a report as well.

    Raises UsageError, with everything that is wrong in it, for a format there is not, a file that is named twice, is
    read by this run, is no regular file or lies in a folder that cannot be written.
    """
    from fleetctl.cli.own_inputs import already_read, files_read
    from fleetctl.errors import UsageError

    problems: list[str] = []
    wanted: list[WantedReport] = []
    taken = {beside.resolve(): "--out"} if beside else {}
    inputs = files_read(reading) if values else set()
    for value in values or ():
        report, problem = _parse(value)
        problem = problem or (_file_problem(report.path) if report else None)
        if report and not problem and (other := taken.get(report.path.resolve())):
            problem = f"{report.path} is written by {other} as well"
        if report and not problem and report.path.resolve() in inputs:
            problem = already_read(report.path)
        if problem:
            problems.append(f"--report {value}: {problem}")
        elif report:
            taken[report.path.resolve()] = f"--report {value}"
            wanted.append(report)
    if problems:
        raise UsageError("; ".join(problems), hint="--report takes FORMAT=FILE, as in --report markdown=plan.md; "
                                                   f"formats: {_formats()}")
    return wanted


def write_reports(faces: Faces, wanted: Sequence[WantedReport]) -> None:
    """Write every report, each whole or not at all; raises FleetctlError for one that cannot be written."""
    from fleetctl.cli.write_file import write_file

    for report in wanted:
        write_file(report.path, text_of(faces, report.format), mode=REPORT_MODE)


def show(faces: Faces, chosen: ReportFormat, reports: Sequence[WantedReport] = ()) -> None:
    """Write the reports, then print the document on standard output; only the table may have colour."""
    from fleetctl.cli.console import result_console, write_document, write_result

    write_reports(faces, reports)
    if chosen is ReportFormat.TABLE:
        _print_table(faces, result_console())
    else:
        write = write_result if chosen in JSON_FORMATS else write_document
        write(text_of(faces, chosen))


def text_of(faces: Faces, chosen: ReportFormat) -> str:
    """Return the document in a format, without colour."""
    from fleetctl.render.report.formats import render_report

    if chosen is ReportFormat.TABLE:
        return _plain(faces)
    if chosen is ReportFormat.JSON:
        return faces.json()
    if chosen is ReportFormat.HTML and faces.page is not None:
        return faces.page()
    cwd = Path.cwd()
    return render_report(faces.report(), chosen, root=repository_root(os.environ, cwd), cwd=str(cwd))


def repository_root(environ: Mapping[str, str], cwd: Path) -> str:
    """Return the folder from which a forge counts paths: its runner's word for it, else the checkout around `cwd`."""
    told = environ.get("GITHUB_WORKSPACE") or environ.get("CI_PROJECT_DIR")
    return told or next((str(folder) for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), "")


def _print_table(faces: Faces, console: Console) -> None:
    from fleetctl.render.report.terminal import print_report

    if faces.table is None:
        print_report(faces.report(), console)
    else:
        faces.table(console)


def _plain(faces: Faces) -> str:
    import io

    from rich.console import Console

    out = io.StringIO()
    _print_table(faces, Console(file=out, width=REPORT_WIDTH, no_color=True, color_system=None, force_terminal=False,
                                highlight=False, markup=False, emoji=False))
    return out.getvalue()


def _parse(value: str) -> tuple[WantedReport | None, str | None]:
    name, equals, path = value.partition("=")
    if not equals or not path:
        return None, "it names no file"
    if name not in ReportFormat.__members__.values():
        return None, f"{name or 'nothing'} is no format"
    return WantedReport(ReportFormat(name), Path(path)), None


def _file_problem(path: Path) -> str | None:
    if str(path) == "-":
        return "standard output is what --format writes; name a file"
    if path.exists() and not path.is_file():
        return f"{path} is not a regular file"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path.parent, os.W_OK):
        return f"the folder {path.parent} cannot be written"
    return None


def _formats() -> str:
    return ", ".join(one.value for one in ReportFormat)
