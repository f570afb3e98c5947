"""`fleetctl validate`: every problem of the fleet files at once, each with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import FilesOption
from fleetctl.cli.reporting import Faces, ReportFormatOption, ReportOption
from fleetctl.render.report.formats import ReportFormat

if TYPE_CHECKING:
    from rich.console import Console

    from fleetctl.fleetfile.load import LoadedFleet
    from fleetctl.render.report.model import Report

EPILOG = epilog(
    examples=["fleetctl validate -f fleets/prod.yaml", "fleetctl validate -f fleets/ --format json",
              "fleetctl validate -f fleets/ --report sarif=fleet.sarif --report junit=fleet.xml"],
    exit_codes="0 fine (warnings included), 1 errors, 64 usage",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("validate", epilog=EPILOG)(validate)


def validate(
    files: FilesOption,
    output_format: ReportFormatOption = ReportFormat.TABLE,
    report: ReportOption = None,
) -> int:
    """Check fleet files and print every problem with its place.

    Reads files only, asks no cluster. Each problem is one line on standard output, as FILE:LINE:COLUMN; what is allowed
    and the nearest spelling stand below it. The codes are listed in the documentation of the fleet file.
    """
    from fleetctl.cli.connect import read_stdin
    from fleetctl.cli.reporting import parse_reports, show
    from fleetctl.fleetfile.load import inspect_fleet

    wanted = parse_reports(report, reading=files)
    loaded = inspect_fleet(files, stdin=read_stdin)
    faces = problem_faces(loaded)
    show(faces, output_format, wanted)
    if output_format is ReportFormat.TABLE:
        _say_verdict(loaded)
    return 1 if loaded.errors else 0


def problem_faces(loaded: LoadedFleet) -> Faces:
    """Return the problems of fleet files in every format."""

    def table(console: Console) -> None:
        from fleetctl.render.problems import render_problems

        render_problems(loaded.problems, console)

    def report() -> Report:
        from fleetctl.render.report.of_problems import problems_report

        return problems_report(loaded)

    return Faces(table=table, json=lambda: _json(loaded), report=report)


def _json(loaded: LoadedFleet) -> str:
    import json

    document = {"valid": not loaded.errors, "problems": [problem.as_json() for problem in loaded.problems]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _say_verdict(loaded: LoadedFleet) -> None:
    from fleetctl.cli.console import say
    from fleetctl.render.report.of_problems import problems_verdict

    say("valid" if loaded.fleet else "error", problems_verdict(loaded))
