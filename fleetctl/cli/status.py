"""`fleetctl status`: a row per running replica, once or with every change. Read-only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import end_with_reader, moves, result_console, say, show_report, write_result
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError, UsageError
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.planner.options import chosen_by
from fleetctl.render.report.model import Report
from fleetctl.render.visible import visible
from fleetctl.workflow.cluster import cluster_of, fleet_of, inventory_source, with_cold_selectors
from fleetctl.workflow.status import Shown, compared, look

if TYPE_CHECKING:  # a document needs no client
    from fleetctl.inventory.dashboard import Live

app = command_app(
    "fleetctl status",
    "fleetctl status -f fleets/prod.yaml",
    "fleetctl status openai-community/gpt2",
    "fleetctl status -f fleets/prod.yaml -l team=nlp",
    "fleetctl status -f fleets/prod.yaml --follow",
    exit_codes="0 shown, 1 error, no replica of MODEL, or something could not be read, 64 usage, 130 Ctrl-C")
UNBROKEN = 4_000
"""Width with --format wide in a pipe: more columns than any row needs."""

Look = tuple[Inventory, str]
"""The last complete inventory, and why there is no newer one; "" = it is current."""


@app.command()
def status(
    *,
    model: Annotated[str | None, typer.Argument(
        metavar="MODEL", show_default=False, help="Show only this model; or a fleet file, as with -f.",
        autocompletion=complete_model_keys)] = None,
    files: flags.OwnFiles = None,
    selector: flags.Selector = None,
    where: flags.Source,
    output_format: Annotated[Literal["table", "wide", "json"], typer.Option(
        "--format", help="Output format; wide adds each member with its cards.")] = "table",
    follow: Annotated[bool, typer.Option(
        "--follow", help="Update the table in place until Ctrl-C; in a pipe, print a line per change.")] = False,
    interval: Annotated[float, flags.option(
        "--interval", metavar="DURATION", parser=flags.expiry_duration,
        help="How often --follow reads the cluster. [default: 2s]")] = 2,
) -> int:
    """Show every replica with its state, nodes and address.

    With -f it begins with a row per model (replicas wanted, ready, starting, missing), and shows only replicas with the
    mark of the fleet. A replica adopted with --adopt-from keeps the mark of its old fleet until it is replaced.
    `lost` = its node is dead; it is neither counted nor removed. `outdated` (with -f) = it was started with another
    spec than the file has now; the differences are listed below the table.
    """
    if model is not None and flags.names_fleet(model):
        files, model = [model, *(files or ())], None
    if follow and (where.inventory or output_format == "json"):
        raise UsageError("--follow shows a table of a live cluster", hint="leave out --inventory and --format json")
    refuse_two_readers(files or (), where.inventory)
    flags.refuse_selector_without(files, selector)
    invocation = this_invocation()
    fleet = fleet_of(invocation, files)
    keys = frozenset(chosen_by(selector, fleet.labels)) if selector and fleet else None
    chosen = Shown(fleet, model, keys, output_format == "wide", files or ())
    with inventory_source(invocation, where, cluster_of(fleet)) as opened:
        source = with_cold_selectors(opened, fleet) if fleet else opened
        seen, chosen = look(invocation, source, chosen, verified=output_format != "table")
        if follow and not isinstance(source, Snapshot):
            _follow(source, seen, chosen, interval)
        if output_format == "json":
            write_result(indented_json(seen.model_copy(update={"replicas": chosen.of(seen)})))
        else:
            show_report(chosen.report(seen, compared(source, chosen, seen)),
                        result_console(UNBROKEN) if chosen.wide else None)
        if cluster_of(fleet).grow and not isinstance(source, Snapshot):
            from fleetctl.inventory.autoscaler import autoscaler_news  # rarely needed: few clusters grow

            say("note", *autoscaler_news(source.client))
    say("warning", *seen.warnings)
    if not seen.complete:
        say("error", "the inventory is incomplete: there may be more than is shown")
    return 0 if seen.complete else 1


def _follow(source: Live, first: Inventory, chosen: Shown, interval_s: float) -> None:
    """Show changes until KeyboardInterrupt: in place on a terminal, a line per change in a pipe.

    While the cluster cannot be read completely, the last status stays, and the reason is shown.
    """
    def report_of(seen: Inventory) -> Report:
        return chosen.report(seen, chosen.outdated(seen), differences=False)

    end_with_reader()
    looks = _looks(source, first, interval_s)
    if moves(sys.stdout.isatty()):
        _in_place(looks, report_of, interval_s)
    else:
        _line_by_line(looks, report_of)


def _looks(source: Live, seen: Inventory, interval_s: float) -> Iterator[Look]:
    yield seen, ""
    while True:
        time.sleep(interval_s)
        try:
            now = source.read(ages=True)
        except InventoryError as error:
            yield seen, error.message
            continue
        if now.complete:
            seen = now
        yield seen, "" if now.complete else f"not everything could be read: {'; '.join(now.warnings)}"


def _in_place(looks: Iterator[Look], report_of: Callable[[Inventory], Report], interval_s: float) -> None:
    from rich.console import Group
    from rich.live import Live as Display

    from fleetctl.render.report.terminal import report_lines

    console = result_console()
    with Display(console=console, auto_refresh=False) as live:
        for seen, trouble in looks:
            report = report_of(seen)
            how = f"as of {seen.observed_at}: {trouble}" if trouble else f"every {interval_s:g} s"
            # what does not fit on the screen is cut off at the bottom
            shown = replace(report, heading=(report.conclusion, f"{seen.observed_at}, {how}"), conclusion="")
            live.update(Group(*report_lines(shown, console.width)), refresh=True)


def _line_by_line(looks: Iterator[Look], report_of: Callable[[Inventory], Report]) -> None:
    shown: Mapping[str, str] = {}
    trouble_before = ""
    for number, (seen, trouble) in enumerate(looks):
        if trouble and not trouble_before:
            say("warning", f"the cluster cannot be read: {trouble}")
        elif trouble_before and not trouble:
            say("note", "the cluster can be read again")
        report, trouble_before = report_of(seen), trouble
        rows = {str(row[0]): visible("  ".join(
                    str(cell) for column, cell in zip(table.columns[1:], row[1:], strict=True)
                    if cell and column.news))
                for table in report.tables if table.key == "replica" for row in table.rows}
        if number == 0:
            show_report(report)
            sys.stdout.flush()
        for name in (*rows, *(shown.keys() - rows.keys())) if number else ():
            row = rows.get(name, "gone")
            if row != (before := shown.get(name, "")) and not before.startswith(f"{row}  "):  # only its note has gone
                write_result(f"{seen.observed_at} {name} {row}\n")
        shown = rows
