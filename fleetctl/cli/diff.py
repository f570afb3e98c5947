"""`fleetctl diff`: what changed in meaning between two revisions or files, and how it affects running replicas."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.process import read_stdin
from fleetctl.cli.reporting import ReportFormatOption, ReportOption, formats_of, parse_reports, show
from fleetctl.render.report.of_diff import diff_report
from fleetctl.review.arguments import places_of
from fleetctl.review.compare import compare
from fleetctl.review.inputs import read_sides

app = command_app(
    "fleetctl diff -f fleets/                    # the working tree against HEAD",
    "fleetctl diff origin/main -f fleets/        # ... against another branch",
    "fleetctl diff origin/main...HEAD -f fleets/ # what this branch changed",
    "fleetctl diff v1.4 v1.5 -f fleets/prod.yaml --report markdown=diff.md",
    "fleetctl diff old.yaml new.yaml             # two files, no git",
    exit_codes="0 compared, 1 a fleet file or revision is invalid, 64 usage; with --detailed-exitcode 2 if there "
               "is a difference")


@app.command()
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
    wanted = parse_reports(report, reading=(base, head, *(files or ())))
    old, new = read_sides(*places_of(base, head, files or (), os.environ), read_stdin)
    found = compare(old, new)
    show(formats_of(found, diff_report), output_format, wanted)
    return found.exit_code if detailed_exitcode else 0
