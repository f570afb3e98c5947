"""The end of an engine's log: its last lines, or those since a time, also where a new file was begun meanwhile.

The guard beside an engine stamps each line with its time and number (agent/supervisor.py), which say what is new. The
log of an earlier agent has no stamps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import HELD_BYTES, EngineLog, LogRead, line_count, read_log

MOST_LINES = 1_000_000
MORE = 8
"""Where the lines that were read do not reach far enough back, so many times more are."""
COMPARED_BYTES = 1_000

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)#(\d+) ")


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its stamp and its end.

    `time` never falls within a log; without a stamp it is that of the line before, "" = not known. `number` counts from
    1 all lines that the log ever had; None = no stamp.
    """

    time: str
    number: int | None
    text: bytes


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


def lines_of(data: bytes, *, whole: bool) -> tuple[list[Line], bool]:
    """Return the lines, and whether their numbers are exact; `whole` = the log begins here.

    Lines that came at once have one stamp. Where a log is cut among them, the next stamp says how many there were.
    """
    lines: list[Line] = []
    time, number, stamp, second = "", 0, b"", None
    for text in data.removesuffix(b"\n").split(b"\n") if data else ():
        found = _STAMP.match(text)
        if found is None:
            lines.append(Line(time, None, text))
            continue
        if found[0] != stamp:
            if stamp and second is None:
                second = len(lines)
            stamp, number = found[0], int(found[2])
        time, number = max(time, found[1].decode()), number + 1
        lines.append(Line(time, number, text[found.end():]))
    if whole or not stamp:
        return lines, True
    if second is None:
        return lines, False
    first = [place for place in range(second) if lines[place].number is not None]
    base = (lines[second].number or 0) - len(first)
    for count, place in enumerate(first):
        lines[place] = replace(lines[place], number=max(base + count, 1))
    return lines, True


def first_number(lines: Iterable[Line]) -> int | None:
    """Return the lowest number that is known, of the first line with a stamp."""
    return next((line.number for line in lines if line.number is not None), None)


def after(seen: Sequence[Line], lines: Sequence[Line]) -> tuple[list[Line], int | None]:
    """Return the lines that follow those `seen` last, and how many are missing between them; None = not known."""
    if not seen:
        return list(lines), 0
    last = seen[-1]
    if last.number is None or not lines or lines[-1].number is None:
        known = _overlap([line.text for line in seen], [line.text for line in lines])
        return list(lines[known:]), 0 if known or not lines else None
    for place in range(len(lines) - 1, -1, -1):
        if lines[place].number == last.number and lines[place].text == last.text:
            return list(lines[place + 1:]), 0
    new = [line for line in lines if line.number is None or line.number > last.number or line.time > last.time]
    return new, max((first_number(new) or 0) - last.number - 1, 0)


def _overlap(seen: Sequence[bytes], texts: Sequence[bytes]) -> int:
    """Return how many of `texts` are known: they end as `seen` does. Lines that repeat may be taken for known."""
    for known in range(len(texts), 0, -1):
        part = texts[max(0, known - len(seen)):known]
        if part == seen[-len(part):]:
            return known
    return 0
