"""The end of an engine's log: its last lines, or those since a time, also where a new file was begun meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import HELD_BYTES, EngineLog, LogRead, line_count, read_log
from fleetctl.inventory.log_lines import Line, first_number, lines_of

MOST_LINES = 1_000_000
MORE = 8
"""Where the lines that were read do not reach far enough back, so many times more are."""
COMPARED_BYTES = 1_000

Enough = Callable[[Sequence[Line]], bool]
Entry = tuple[EngineLog, Line]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The lines at the end of a log; `asked` = how many were requested; `unfinished` = the last has no end yet.

    `earlier` = how many lines are before them; None = some, but not how many. `exists` False = no node has a file.
    """

    log: EngineLog
    lines: tuple[Line, ...] = ()
    asked: int = 0
    unfinished: bool = False
    earlier: int | None = 0
    exists: bool = True
    failed: tuple[str, ...] = ()


def read_end(
    client: DashboardClient, log: EngineLog, lines: int, enough: Enough, *, most: int = MOST_LINES,
    last_bytes: int = HELD_BYTES
) -> LogEnd:
    """Read `lines` lines from the end, and more until it is `enough`: `most` lines, or the whole log."""
    asked = min(lines, most)
    while True:
        read = read_log(client, log, asked, last_bytes)
        if read.data is None:
            return LogEnd(log, asked=asked, exists=False, failed=read.failed)
        found, exact = lines_of(read.data, whole=read.whole)
        is_cut = not read.whole and line_count(read.data) < asked  # at `last_bytes`: there is no more to be had
        if read.whole or is_cut or asked >= most or (exact and enough(found)):
            break
        asked = min(asked * MORE, most)
    whole = read.whole
    if whole and not enough(found) and first_number(found) != 1:
        found, whole = _with_file_before(client, read, asked, last_bytes)
    number = first_number(found)
    earlier = 0 if whole and number in (None, 1) else number - 1 if number else None
    return LogEnd(log, tuple(found), asked, read.data[-1:] not in (b"", b"\n"), earlier)


def _with_file_before(
    client: DashboardClient, read: LogRead, asked: int, last_bytes: int
) -> tuple[list[Line], bool]:
    """Return the lines of both files; a new log may have been begun between the two reads."""
    before = read_log(client, replace(read.log, file_name=f"{read.log.file_name}.1"), asked, last_bytes)
    data = read.data or b""
    if before.data is None:
        return lines_of(data, whole=True)[0], True
    joined = before.data if data[:COMPARED_BYTES] in before.data else before.data + data
    return lines_of(joined, whole=before.whole)[0], before.whole


def merged(ends: Sequence[LogEnd], tail: int, begin: str = "") -> tuple[list[Entry], int | None]:
    """Return the last `tail` lines of all logs, by their times, and how many are before them; None = not known.

    `begin` = the time of the first line; a log without times is shown whole.
    """
    entries: list[Entry] = []
    earlier: int | None = 0
    for end in ends:
        timed = bool(end.lines and end.lines[-1].time)
        kept = [(end.log, line) for line in end.lines if not timed or line.time >= begin]
        reached = begin and len(kept) < len(end.lines)
        entries += kept
        if not reached:
            earlier = None if earlier is None or end.earlier is None else earlier + end.earlier
    entries.sort(key=lambda entry: entry[1].time)
    shown = entries[max(len(entries) - tail, 0):]
    return shown, None if earlier is None else earlier + len(entries) - len(shown)
