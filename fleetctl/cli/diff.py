"""`fleetctl diff`: what changed in meaning between two revisions or files, and what that does to what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import OptionalFilesOption
from fleetctl.cli.reporting import ReportFormatOption, ReportOption
from fleetctl.render.report.formats import ReportFormat

if TYPE_CHECKING:
    from fleetctl.cli.reporting import Faces
    from fleetctl.documents.difference import FleetDiff

EPILOG = epilog(
    examples=[
        "fleetctl diff -f fleets/                        # the working tree against HEAD",
        "fleetctl diff origin/main -f fleets/            # the working tree against another branch",
        "fleetctl diff origin/main...HEAD -f fleets/     # what this branch changed, as a pull request shows it",
        "fleetctl diff v1.4 v1.5 -f fleets/prod.yaml --report markdown=diff.md",
        "fleetctl diff old.yaml new.yaml                 # two files, no git",
    ],
    exit_codes="0 compared, 1 a fleet file or revision is wrong, 64 usage; with --detailed-exitcode 2 where there\n"
               "  is a difference",
)

BaseArgument = Annotated[
    str | None,
    typer.Argument(metavar="BASE", show_default=False,
                   help="A git revision, a range A..B or A...B, a file or a folder. [default: HEAD]"),
]
HeadArgument = Annotated[
    str | None,
    typer.Argument(metavar="HEAD", show_default=False, help="Likewise. [default: the working tree]"),
]
DetailedExitCodeOption = Annotated[
    bool, typer.Option("--detailed-exitcode", help="Exit 0 for no difference in meaning, 2 for differences.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("diff", epilog=EPILOG)(diff)


def diff(
    base: BaseArgument = None,
    head: HeadArgument = None,
    files: OptionalFilesOption = None,
    output_format: ReportFormatOption = ReportFormat.TABLE,
    report: ReportOption = None,
    detailed_exitcode: DetailedExitCodeOption = False,
) -> int:
    """Show what changed in meaning, and what it does to what runs.

    Compares the fleet files named with -f in two git revisions, or two files. Reordered keys, comments and other
    spellings are no change. Asks no cluster. Each difference is additive, without effect on what runs, drift (running
    replicas keep the old spec) or held (nothing is removed).
    """
    import os

    from fleetctl.cli.connect import read_stdin
    from fleetctl.cli.reporting import parse_reports, show
    from fleetctl.review.arguments import places_of
    from fleetctl.review.compare import compare
    from fleetctl.review.inputs import read_sides

    wanted = parse_reports(report, reading=(base, head, *(files or ())))
    old, new = read_sides(*places_of(base, head, files or (), os.environ), read_stdin)
    found = compare(old, new)
    faces = _faces(found)
    show(faces, output_format, wanted)
    return found.exit_code if detailed_exitcode else 0


def _faces(found: FleetDiff) -> Faces:
    from fleetctl.cli.reporting import Faces
    from fleetctl.render.answer_json import render_answer_json
    from fleetctl.render.report.of_diff import diff_report

    return Faces(json=lambda: render_answer_json(found), report=lambda: diff_report(found))
