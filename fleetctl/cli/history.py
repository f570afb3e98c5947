"""`fleetctl history`: what was applied here, by whom, from which commit, and how it ended. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import AddressOption
from fleetctl.cli.reporting import Faces, ReportFormatOption, ReportOption
from fleetctl.render.report.formats import ReportFormat

if TYPE_CHECKING:
    from fleetctl.documents.history import History, HistoryRun

EPILOG = epilog(
    examples=[
        "fleetctl history                              # the last 20, the newest first",
        "fleetctl history --fleet prod --limit 100",
        "fleetctl history show latest",
        "fleetctl history show 8dd5 --format markdown",
    ],
    exit_codes="0 shown, 1 error, 64 usage",
)
SHOW_EPILOG = epilog(
    examples=["fleetctl history show latest", "fleetctl history show fleetctl-apply-8dd5457ba23d",
              "fleetctl history show 8dd5 --report html=run.html"],
    exit_codes="0 shown, 1 error, or there is no such run, 64 usage",
)

FleetFilesOption = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="PATH", show_default=False,
                 help="Fleet file that names the cluster; show only the runs of its fleet. Repeatable."),
]
FleetOption = Annotated[
    str | None,
    typer.Option("--fleet", metavar="NAME", show_default=False, help="Only the runs of this fleet."),
]
LimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The most runs to show.")]


def register(app: typer.Typer) -> None:
    """Add the command group: by itself it lists."""
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True, epilog=EPILOG)(history)
    group.command("show", epilog=SHOW_EPILOG)(show_run)
    app.add_typer(group, name="history")


def history(
    context: typer.Context,
    files: FleetFilesOption = None,
    address: AddressOption = None,
    fleet: FleetOption = None,
    limit: LimitOption = 20,
    output_format: ReportFormatOption = ReportFormat.TABLE,
    report: ReportOption = None,
) -> int:
    """Show what was applied or evicted, and how it ended.

    Each run with who started it, from which commit and by which plan. The cluster itself remembers it, as long as its
    session of Ray lives. `unknown` = the run died without a word on how
    it ended, or its log is gone; `refused` = it ended before it did anything.
    """
    if context.invoked_subcommand is not None:
        _refuse_flags_before(context)
        return 0
    from fleetctl.apply.history import read_history
    from fleetctl.cli.connect import open_dashboard
    from fleetctl.cli.reporting import parse_reports, show

    wanted = parse_reports(report, reading=files or ())
    name, written = _fleet_and_address(files, fleet)
    with open_dashboard(address, written) as client:
        found = read_history(client, name, limit)
    faces = _faces_of_history(found)
    show(faces, output_format, wanted)
    return 0


def show_run(
    wanted_run: Annotated[str, typer.Argument(metavar="RUN", show_default=False, help=(
        "Its id, the plan id, the beginning of one, or `latest`."))],
    files: FleetFilesOption = None,
    address: AddressOption = None,
    fleet: FleetOption = None,
    output_format: ReportFormatOption = ReportFormat.TABLE,
    report: ReportOption = None,
) -> int:
    """Show one run: whose it was, its log, its replicas.

    RUN is an id as `fleetctl history` shows it, a plan id, the beginning of either, or `latest`.
    """
    from fleetctl.apply.history import read_run
    from fleetctl.cli.connect import open_dashboard
    from fleetctl.cli.reporting import parse_reports, show

    wanted = parse_reports(report, reading=files or ())
    name, written = _fleet_and_address(files, fleet)
    with open_dashboard(address, written) as client:
        found = read_run(client, wanted_run, name)
    faces = _faces_of_run(found)
    show(faces, output_format, wanted)
    return 0


def _fleet_and_address(files: list[str] | None, name: str | None) -> tuple[str | None, str | None]:
    """Return whose runs to show and the address the files name; raises UsageError when flag and files disagree."""
    from fleetctl.cli.connect import fleet_of
    from fleetctl.errors import UsageError

    fleet = fleet_of(files)
    if fleet is None:
        return name, None
    if name not in (None, fleet.name):
        raise UsageError(f"--fleet {name}, but the files are those of fleet {fleet.name}")
    return fleet.name, fleet.cluster.address


def _refuse_flags_before(context: typer.Context) -> None:
    """Refuse flags that stand before `show`: they would be read as those of the list, and have no effect."""
    from fleetctl.errors import UsageError

    given = [parameter.opts[0] for parameter in context.command.params
             if (source := context.get_parameter_source(parameter.name or "")) and source.name == "COMMANDLINE"]
    if given:
        raise UsageError(f"{', '.join(given)} stands before `show`",
                         hint="put flags behind it: fleetctl history show RUN [flags]")


def _faces_of_history(found: History) -> Faces:
    from fleetctl.render.answer_json import render_answer_json
    from fleetctl.render.report.of_history import history_report

    return Faces(json=lambda: render_answer_json(found), report=lambda: history_report(found))


def _faces_of_run(found: HistoryRun) -> Faces:
    from fleetctl.render.answer_json import render_answer_json
    from fleetctl.render.report.of_history import run_report

    return Faces(json=lambda: render_answer_json(found), report=lambda: run_report(found))
