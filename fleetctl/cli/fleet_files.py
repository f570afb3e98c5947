"""Commands that read only fleet files: `fleetctl validate`, `fmt`, `render`, `diff` between revisions or files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import say, write_document, write_file_diff, write_result
from fleetctl.cli.process import read_stdin
from fleetctl.cli.reporting import (
    Formats,
    ReportFormatOption,
    ReportOption,
    Reports,
    formats_of,
    parse_reports,
    show,
)
from fleetctl.documents.quantity import count_of, some
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.extends import join
from fleetctl.fleetfile.file_tree import DISK
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.fleetfile.sources import STDIN_NAME, fleet_files
from fleetctl.render.problems import problems_conclusion, problems_report
from fleetctl.render.report.formats import ReportFormat
from fleetctl.workflow.output_files import write_file

app = command_app()


@app.command(epilog=epilog(
    "fleetctl validate -f fleets/prod.yaml",
    "fleetctl validate -f fleets/ --format json",
    "fleetctl validate -f fleets/ --report sarif=fleet.sarif",
    exit_codes="0 valid (warnings allowed), 1 errors, 64 usage"))
def validate(
    files: flags.Files,
    output_format: ReportFormatOption = "table",
    report: ReportOption = None,
) -> int:
    """Check fleet files; print every problem with file, line and column.

    Reads only files and contacts no cluster. Each problem is one line on standard output that begins with
    FILE:LINE:COLUMN, followed by the allowed values and the nearest spelling. `fleetctl explain CODE` explains a code.
    """
    return check_files(files, output_format, parse_reports(report, reading=files))


def check_files(files: Sequence[str], output_format: ReportFormat, reports: Reports) -> int:
    """Check the files, show their problems and report them; returns the exit code."""
    loaded = inspect_fleet(files, stdin=read_stdin)
    show(problem_formats(loaded), output_format, reports)
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
        return sorted(path.name for path in below if path.is_dir() and fleet_files(str(path), DISK))
    except OSError:  # a folder that cannot be listed needs no note
        return []


def problem_formats(loaded: LoadedFleet) -> Formats:
    """Return the problems of fleet files in every format."""
    document = {"valid": not loaded.errors, "problems": [problem.as_json() for problem in loaded.problems]}
    from fleetctl.render.problems import render_problems  # loads rich, which `fmt` does not need

    return Formats(table=lambda console: render_problems(loaded.problems, console),
                   json=lambda: json.dumps(document, indent=2, ensure_ascii=False) + "\n",
                   report=lambda: problems_report(loaded))


@app.command(epilog=epilog(
    "fleetctl fmt fleets/",
    "fleetctl fmt --check fleets/   # in CI",
    "fleetctl fmt --diff fleets/prod.yaml",
    "fleetctl fmt - < fleet.yaml > formatted.yaml",
    exit_codes="0 formatted, 1 a broken file, or with --check an unformatted one, 64 usage"))
def fmt(
    files: flags.Files,
    check: Annotated[bool, typer.Option("--check", help="Only list unformatted files; exit with 1 if any.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; print the changes as a diff.")] = False,
) -> int:
    """Format fleet files: key order, indentation, blank lines.

    Comments, quotes and one-line lists stay as written, and the meaning never changes. A broken file is not touched.
    Standard input is formatted to standard output.
    """
    from fleetctl.fleetfile.format import format_sources  # keeps the layout, which no other command needs

    formatted, problems = format_sources(files, stdin=read_stdin)
    changed = [file for file in formatted if file.changed]
    if diff:
        for file in changed:
            write_file_diff(file.file, file.before, file.after, f"{file.file} (formatted)")
    elif check:
        write_result("".join(f"{file.file}\n" for file in changed))
    else:
        for file in formatted:
            if file.file == STDIN_NAME:
                write_document(file.after)
            elif file.changed:
                write_file(Path(file.file), file.after, mode=None)
    did = "would change" if check or diff else "formatted"
    say("fmt", f"{count_of(len(formatted), 'file')}, {len(changed)} {did}")
    if problems:
        raise FleetFileError(problems)
    return 1 if check and changed else 0


@app.command(epilog=epilog(
    "fleetctl render -f fleets/prod.yaml",
    "fleetctl render -f fleets/prod.yaml --no-origin --show-env",
    "fleetctl render -f fleets/prod.yaml --format json",
    exit_codes="0 printed, 1 a broken fleet, 64 usage"))
def render(
    files: flags.Files,
    output_format: Annotated[Literal["yaml", "json"], typer.Option("--format", help=flags.FORMAT_HELP)] = "yaml",
    no_origin: Annotated[bool, typer.Option(
        "--no-origin", help="Leave out the comments in YAML that name the source of each line.")] = False,
    show_env: Annotated[bool, typer.Option(
        "--show-env", help="Print the values of engine environments, and secrets in arguments.")] = False,
) -> int:
    """Print a fleet as one document, with everything it extends.

    Reads only files and contacts no cluster. Values of engine environments are masked, and a masked file cannot be
    loaded; with --show-env the output is a fleet file with the same meaning.
    """
    from fleetctl.render.merged_fleet import render_fleet_json, render_fleet_yaml  # a writer of YAML

    loaded = inspect_fleet(files, stdin=read_stdin)
    if loaded.fleet is None:
        raise FleetFileError(loaded.errors)
    document = join(loaded.documents)
    if output_format == "json":
        write_result(render_fleet_json(document, loaded.fleet.files, show_env=show_env))
    else:
        write_document(render_fleet_yaml(document, origins=not no_origin, show_env=show_env))
    return 0


@app.command(epilog=epilog(
    "fleetctl diff -f fleets/                    # the working tree against HEAD",
    "fleetctl diff origin/main -f fleets/        # ... against another branch",
    "fleetctl diff origin/main...HEAD -f fleets/ # what this branch changed",
    "fleetctl diff v1.4 v1.5 -f fleets/prod.yaml --report markdown=diff.md",
    "fleetctl diff old.yaml new.yaml             # two files, no git",
    exit_codes="0 compared, 1 a fleet file or revision is invalid, 64 usage; with --detailed-exitcode 2 if there "
               "is a difference"))
def diff(
    base: Annotated[str | None, typer.Argument(
        metavar="BASE", show_default=False,
        help="The old side: a git revision, a range A..B or A...B, a file or a folder. [default: HEAD]")] = None,
    head: Annotated[str | None, typer.Argument(
        metavar="HEAD", show_default=False, help="The same, for the new side. [default: the working tree]")] = None,
    files: flags.OptionalFlaggedFiles = None,
    output_format: ReportFormatOption = "table",
    report: ReportOption = None,
    detailed_exitcode: Annotated[bool, typer.Option(
        "--detailed-exitcode", help="Exit with 0 if nothing differs in meaning, 2 if something does.")] = False,
) -> int:
    """Show what changed in meaning, and how it affects running replicas.

    Compares the fleet files given with -f in two git revisions, or two files. Key order, comments and equivalent
    spellings do not count. Contacts no cluster. Each difference is additive, without effect on running replicas, drift
    (running replicas keep the old spec) or held (nothing is removed).
    """
    from fleetctl.render.report.of_diff import diff_report
    from fleetctl.review.compare import compare
    from fleetctl.review.inputs import (
        files_of_sides,  # slow: comparing two fleets
        read_sides,
    )

    reports = parse_reports(report, reading=(base, head, *(files or ())))
    with reports.of_error("diff", "diff of", files or [path for path in (head, base) if path]):
        old, new = read_sides(*files_of_sides(base, head, files or (), os.environ), read_stdin)
        difference = compare(old, new)
        show(formats_of(difference, diff_report), output_format, reports)
    return difference.exit_code if detailed_exitcode else 0
