"""`fleetctl history`: what was applied, by whom, from which commit, and how it ended. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from fleetctl.apply.history import read_history, read_run
from fleetctl.cli import flags
from fleetctl.cli.commands import Group, command_app, epilog
from fleetctl.cli.process import this_invocation
from fleetctl.cli.reporting import RUN_FORMATS, RunFormatOption, RunReportOption, formats_of, parse_reports, show
from fleetctl.errors import UsageError
from fleetctl.inventory.client import DashboardClient
from fleetctl.render.report.of_runs import history_report, run_report
from fleetctl.workflow.cluster import cluster_of, fleet_of
from fleetctl.workflow.dashboard import open_dashboard

app = command_app(
    "fleetctl history                     # the last 20, newest first",
    "fleetctl history --fleet prod --limit 100",
    "fleetctl history show latest",
    "fleetctl history show 8dd5 --format markdown",
    exit_codes="0 shown, 1 error, 64 usage")
SHOW_EPILOG = epilog(
    "fleetctl history show latest",
    "fleetctl history show fleetctl-apply-8dd5457ba23d",
    "fleetctl history show 8dd5 --report html=run.html",
    exit_codes="0 shown, 1 error, or no such run, 64 usage")

FleetFilesOption = Annotated[list[str] | None, flags.option(
    "--file", "-f", metavar="PATH",
    help="Fleet file that names the cluster; shows only the runs of its fleet. Repeatable.")]
FleetOption = Annotated[str | None, flags.option("--fleet", metavar="NAME", help="Show only the runs of this fleet.")]


@app.callback(cls=Group, invoke_without_command=True)
def history(
    context: typer.Context,
    files: FleetFilesOption = None,
    address: flags.Address = None,
    fleet: FleetOption = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most this many runs.")] = 20,
    output_format: RunFormatOption = "table",
    report: RunReportOption = None,
) -> int:
    """Show what was applied, restarted or evicted, and how it ended.

    Shows each run with its starter, commit and plan. The cluster itself keeps the history, for as long as its Ray
    session lives. `unknown` = the run died without a summary, or its log is gone; `refused` = it ended before it did
    anything.
    """
    if context.invoked_subcommand is not None:
        # flags before `show` belong to the list of runs, and would have no effect
        given = [parameter.opts[0] for parameter in context.command.params
                 if (source := context.get_parameter_source(parameter.name or "")) and source.name == "COMMANDLINE"]
        if given:
            raise UsageError(f"{', '.join(given)} before `show` has no effect",
                             hint="put flags after it: fleetctl history show RUN [flags]")
        return 0
    reports = parse_reports(report, formats=RUN_FORMATS, reading=files or ())
    with _opened(files, address, fleet, "reading the runs") as (client, name):
        runs = read_history(client, name, limit)
    show(formats_of(runs, history_report), output_format, reports)
    return 0


@app.command("show", epilog=SHOW_EPILOG)
def show_run(
    wanted_run: Annotated[str, typer.Argument(metavar="RUN", show_default=False, help=(
        "Run id, plan id, the beginning of either, or `latest`."))],
    files: FleetFilesOption = None,
    address: flags.Address = None,
    fleet: FleetOption = None,
    output_format: RunFormatOption = "table",
    report: RunReportOption = None,
) -> int:
    """Show one run: its starter, its log, its replicas."""
    reports = parse_reports(report, formats=RUN_FORMATS, reading=files or ())
    with _opened(files, address, fleet, "reading the run") as (client, name):
        run = read_run(client, wanted_run, name)
    show(formats_of(run, run_report), output_format, reports)
    return 0


@contextmanager
def _opened(
    files: list[str] | None, address: str | None, name: str | None, doing: str
) -> Iterator[tuple[DashboardClient, str | None]]:
    """Yield a client of the cluster and the fleet to show; raises UsageError if --fleet and the files disagree."""
    invocation = this_invocation()
    fleet = fleet_of(invocation, files)
    if fleet and name not in (None, fleet.name):
        raise UsageError(f"--fleet {name}, but the files describe fleet {fleet.name}")
    with open_dashboard(invocation, address, cluster_of(fleet).address) as client, invocation.working(doing):
        yield client, fleet.name if fleet else name
