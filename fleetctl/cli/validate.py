"""`fleetctl validate`: all problems of the fleet files at once, each with file, line and column."""

from __future__ import annotations

import json
from pathlib import Path

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.process import read_stdin
from fleetctl.cli.reporting import Formats, ReportFormatOption, ReportOption, parse_reports, show
from fleetctl.documents.quantity import some
from fleetctl.fleetfile.file_tree import DISK
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.fleetfile.sources import fleet_files
from fleetctl.render.problems import render_problems
from fleetctl.render.report.of_problems import problems_conclusion, problems_report

app = command_app(
    "fleetctl validate -f fleets/prod.yaml",
    "fleetctl validate -f fleets/ --format json",
    "fleetctl validate -f fleets/ --report sarif=fleet.sarif",
    exit_codes="0 valid (warnings allowed), 1 errors, 64 usage")


@app.command()
def validate(
    files: flags.Files,
    output_format: ReportFormatOption = "table",
    report: ReportOption = None,
) -> int:
    """Check fleet files; print every problem with file, line and column.

    Reads only files and contacts no cluster. Each problem is one line on standard output that begins with
    FILE:LINE:COLUMN, followed by the allowed values and the nearest spelling. `fleetctl explain CODE` explains a code.
    """
    wanted = parse_reports(report, reading=files)
    loaded = inspect_fleet(files, stdin=read_stdin)
    show(problem_formats(loaded), output_format, wanted)
    if output_format == "table":
        say("valid" if loaded.fleet else "error", problems_conclusion(loaded))
        for folder in files:
            if below := _folders_below(folder):
                say("note", f"{folder}: subfolders were not read, as each is a fleet of its own: {some(below)}")
    return 1 if loaded.errors else 0


def _folders_below(folder: str) -> list[str]:
    """Return the names of the subfolders with YAML files, which are not part of this fleet."""
    try:
        below = Path(folder).iterdir() if Path(folder).is_dir() else ()
        return sorted(one.name for one in below if one.is_dir() and fleet_files(str(one), DISK))
    except OSError:  # a folder that cannot be listed needs no note
        return []


def problem_formats(loaded: LoadedFleet) -> Formats:
    """Return the problems of fleet files in every format."""
    document = {"valid": not loaded.errors, "problems": [problem.as_json() for problem in loaded.problems]}
    return Formats(table=lambda console: render_problems(loaded.problems, console),
                   json=lambda: json.dumps(document, indent=2, ensure_ascii=False) + "\n",
                   report=lambda: problems_report(loaded))
