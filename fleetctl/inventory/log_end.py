"""The end of an engine's log: its last lines, or the lines since a time, across the rotation of the file.

The guard beside an engine stamps each line with its time and number (agent/supervisor.py), which show which lines are
new. Logs of earlier agents have no stamps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import HELD_BYTES, EngineLog, LogRead, line_count, read_log

MOST_LINES = 1_000_000
GROWTH = 8
"""The factor by which more lines are read when they do not reach far enough back."""
COMPARED_BYTES = 1_000

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)#(\d{1,18}) ")


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its stamp and its line end.

    `time` never decreases within a log; without a stamp it is the time of the line before, "" = unknown. `number` is
    the position among all lines ever written to the log, from 1; None = no stamp.
    """

    time: str
    number: int | None
    text: bytes


Enough = Callable[[Sequence[Line]], bool]
Entry = tuple[EngineLog, Line]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The lines at the end of a log; `requested` = the number of lines requested; `unfinished` = the last is partial.

    `earlier` = the number of lines before them; None = some, number unknown. `exists` False = no node has the file.
    """

    log: EngineLog
    lines: tuple[Line, ...] = ()
    requested: int = 0
    unfinished: bool = False
    earlier: int | None = 0
    exists: bool = True
    failed: tuple[str, ...] = ()


def read_end(
    client: DashboardClient, log: EngineLog, lines: int, enough: Enough, *, most: int = MOST_LINES,
    last_bytes: int = HELD_BYTES
) -> LogEnd:
    """Read `lines` lines from the end, then more until `enough` is true, up to `most` lines or the whole log."""
    requested = min(lines, most)
    while True:
        read = read_log(client, log, requested, last_bytes)
        if read.data is None:
            return LogEnd(log, requested=requested, exists=False, failed=read.failed)
        found, exact = lines_of(read.data, whole=read.whole)
        is_cut = not read.whole and line_count(read.data) < requested  # cut at `last_bytes`: no more can be read
        if read.whole or is_cut or requested >= most or (exact and enough(found)):
            break
        requested = min(requested * GROWTH, most)
    whole = read.whole
    if whole and not enough(found) and first_number(found) != 1:
        found, whole = _with_file_before(client, read, requested, last_bytes)
    number = first_number(found)
    earlier = 0 if whole and number in (None, 1) else number - 1 if number else None
    return LogEnd(log, tuple(found), requested, read.data[-1:] not in (b"", b"\n"), earlier)


def _with_file_before(
    client: DashboardClient, read: LogRead, requested: int, last_bytes: int
) -> tuple[list[Line], bool]:
    """Return the lines of both files; the log may have been rotated between the two reads."""
    before = read_log(client, replace(read.log, file_name=f"{read.log.file_name}.1"), requested, last_bytes)
    data = read.data or b""
    if before.data is None:
        return lines_of(data, whole=True)[0], True
    joined = before.data if data[:COMPARED_BYTES] in before.data else before.data + data
    return lines_of(joined, whole=before.whole)[0], before.whole


def merged(ends: Sequence[LogEnd], tail: int, begin: str = "") -> tuple[list[Entry], int | None]:
    """Return the last `tail` lines of all logs, ordered by time, and the number of lines before them; None = unknown.

    `begin` = the time of the first line to show; a log without times is shown in full.
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


def lines_of(data: bytes, *, whole: bool) -> tuple[list[Line], bool]:
    """Return the lines, and whether their numbers are exact; `whole` = `data` begins at the start of the log.

    Lines that arrived together share one stamp. If the log is cut among them, the next stamp tells how many there were.
    """
    lines: list[Line] = []
    time, number, stamp, second_stamp = "", 0, b"", None
    for text in data.removesuffix(b"\n").split(b"\n") if data else ():
        found = _STAMP.match(text)
        if found is None:
            lines.append(Line(time, None, text))
            continue
        if found[0] != stamp:
            if stamp and second_stamp is None:
                second_stamp = len(lines)
            stamp, number = found[0], int(found[2])
        time, number = max(time, found[1].decode()), number + 1
        lines.append(Line(time, number, text[found.end():]))
    if whole or not stamp:
        return lines, True
    if second_stamp is None:
        return lines, False
    stamped = [index for index in range(second_stamp) if lines[index].number is not None]
    base = (lines[second_stamp].number or 0) - len(stamped)
    for count, index in enumerate(stamped):
        lines[index] = replace(lines[index], number=max(base + count, 1))
    return lines, True


def first_number(lines: Iterable[Line]) -> int | None:
    """Return the number of the first line with a stamp."""
    return next((line.number for line in lines if line.number is not None), None)


def after(seen: Sequence[Line], lines: Sequence[Line]) -> tuple[list[Line], int | None]:
    """Return the lines after those last `seen`, and the number of lines missing in between; None = unknown."""
    if not seen:
        return list(lines), 0
    last = seen[-1]
    if last.number is None or not lines or lines[-1].number is None:
        known = _overlap([line.text for line in seen], [line.text for line in lines])
        return list(lines[known:]), 0 if known or not lines else None
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].number == last.number and lines[index].text == last.text:
            return list(lines[index + 1:]), 0
    new = [line for line in lines if line.number is None or line.number > last.number or line.time > last.time]
    return new, max((first_number(new) or 0) - last.number - 1, 0)


def _overlap(seen: Sequence[bytes], texts: Sequence[bytes]) -> int:
    """Return how many of `texts` overlap with the end of `seen`. New lines that repeat old ones may count as known."""
    for known in range(len(texts), 0, -1):
        part = texts[max(0, known - len(seen)):known]
        if part == seen[-len(part):]:
            return known
    return 0
