"""`status --follow`, until Ctrl-C: updates the status in place on a terminal, prints a line per change in a pipe.

While the cluster cannot be read completely, the last status stays, and the reason is shown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from rich.console import Group
from rich.live import Live

from fleetctl.cli.console import end_with_reader, moves, result_console, say, show_report, write_result
from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError
from fleetctl.render.report.model import Report
from fleetctl.render.report.terminal import report_lines
from fleetctl.render.visible import visible

UNREPORTED = ("age", "gpus")
"""Columns whose changes are not reported."""

Look = tuple[Inventory, str]
"""The last complete inventory, and why there is no newer one; "" = it is current."""


def follow(
    first: Inventory, read: Callable[[], Inventory], report_of: Callable[[Inventory], Report], interval_s: float
) -> None:
    """Show changes until KeyboardInterrupt. `read` reads the cluster again, after each interval."""
    end_with_reader()
    looks = _looks(first, read, interval_s)
    if moves(sys.stdout.isatty()):
        _in_place(looks, report_of, interval_s)
    else:
        _line_by_line(looks, report_of)


def _looks(seen: Inventory, read: Callable[[], Inventory], interval_s: float) -> Iterator[Look]:
    yield seen, ""
    while True:
        time.sleep(interval_s)
        try:
            now = read()
        except InventoryError as error:
            yield seen, error.message
            continue
        if now.complete:
            seen = now
        yield seen, "" if now.complete else f"not everything could be read: {'; '.join(now.warnings)}"


def _in_place(looks: Iterator[Look], report_of: Callable[[Inventory], Report], interval_s: float) -> None:
    console = result_console()
    with Live(console=console, auto_refresh=False) as live:
        for seen, trouble in looks:
            report = report_of(seen)
            how = f"as of {seen.observed_at}: {trouble}" if trouble else f"every {interval_s:g} s"
            # what does not fit on the screen is cut off at the bottom
            shown = replace(report, heading=(report.conclusion, f"{seen.observed_at}, {how}"), conclusion="")
            live.update(Group(*report_lines(shown, console.width)), refresh=True)


def _line_by_line(looks: Iterator[Look], report_of: Callable[[Inventory], Report]) -> None:
    known: Mapping[str, str] = {}
    trouble_before = ""
    for number, (seen, trouble) in enumerate(looks):
        if trouble and not trouble_before:
            say("warning", f"the cluster cannot be read: {trouble}")
        elif trouble_before and not trouble:
            say("note", "the cluster can be read again")
        report, trouble_before = report_of(seen), trouble
        rows = _by_replica(report)
        if number == 0:
            show_report(report)
            sys.stdout.flush()
        for name in (*rows, *(known.keys() - rows.keys())) if number else ():
            row = rows.get(name, "gone")
            if row != (before := known.get(name, "")) and not before.startswith(f"{row}  "):  # only its note has gone
                write_result(f"{seen.observed_at} {name} {row}\n")
        known = rows


def _by_replica(report: Report) -> Mapping[str, str]:
    """Return a line per replica, by name, without the UNREPORTED columns."""
    rows = [(table.columns, row) for table in report.tables if table.key == "replica" for row in table.rows]
    return {str(row[0]): visible("  ".join(str(cell) for column, cell in zip(columns[1:], row[1:], strict=True)
                                           if cell and column.key not in UNREPORTED)) for columns, row in rows}
