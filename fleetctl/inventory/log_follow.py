"""Following engine logs: the last lines of each are read repeatedly, less often for idle engines.

Ray can also stream a file, but each stream takes one of the 100 requests that its state API answers at a time, which
`status` and every apply need; it stays with the old file after a rotation; and after an interruption it cannot resume
where it was. The stamps of the lines show which are new, and how many are missing.

The guard beside an engine stamps each line with its time and number (agent/supervisor.py), also across the rotation of
the file. Logs of earlier agents have no stamps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient, ask_all
from fleetctl.inventory.engine_log import HELD_BYTES, EngineLog, LogRead, line_count, read_log

MOST_LINES = 1_000_000
GROWTH = 8
"""The factor by which more lines are read when they do not reach far enough back."""
COMPARED_BYTES = 1_000

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)#(\d{1,18}) ")
BUSY_S, IDLE_S, IDLE_PER_LOG_S = 1.0, 2.0, 0.08
"""Pauses between two reads of one log: for an engine that writes, and the longest for one that does not."""
TOGETHER_S = 0.5
"""Logs that are due within this time are read together."""
LIST_S = 10.0
RECENT, KEPT_LINES, JOINED_LINES = 20, 50_000, 1_000
STARTING = b"fleetctl: starting "
"""Our line at each start of an engine."""
Listed = Callable[[], "Listing"]


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
    client: DashboardClient, log: EngineLog, lines: int, enough: Enough, *, max_lines: int = MOST_LINES,
    last_bytes: int = HELD_BYTES
) -> LogEnd:
    """Read `lines` lines from the end, then more until `enough` is true, up to `most` lines or the whole log."""
    requested = min(lines, max_lines)
    while True:
        read = read_log(client, log, requested, last_bytes)
        if read.data is None:
            return LogEnd(log, requested=requested, exists=False, failed=read.failed)
        read_lines, exact = lines_of(read.data, whole=read.whole)
        is_cut = not read.whole and line_count(read.data) < requested  # cut at `last_bytes`: no more can be read
        if read.whole or is_cut or requested >= max_lines or (exact and enough(read_lines)):
            break
        requested = min(requested * GROWTH, max_lines)
    whole = read.whole
    if whole and not enough(read_lines) and first_number(read_lines) != 1:
        read_lines, whole = _with_file_before(client, read, requested, last_bytes)
    number = first_number(read_lines)
    earlier = 0 if whole and number in (None, 1) else number - 1 if number else None
    return LogEnd(log, tuple(read_lines), requested, read.data[-1:] not in (b"", b"\n"), earlier)


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
        stamped_at = _STAMP.match(text)
        if stamped_at is None:
            lines.append(Line(time, None, text))
            continue
        if stamped_at[0] != stamp:
            if stamp and second_stamp is None:
                second_stamp = len(lines)
            stamp, number = stamped_at[0], int(stamped_at[2])
        time, number = max(time, stamped_at[1].decode()), number + 1
        lines.append(Line(time, number, text[stamped_at.end():]))
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
        overlap = _overlap([line.text for line in seen], [line.text for line in lines])
        return list(lines[overlap:]), 0 if overlap or not lines else None
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].number == last.number and lines[index].text == last.text:
            return list(lines[index + 1:]), 0
    new = [line for line in lines if line.number is None or line.number > last.number or line.time > last.time]
    return new, max((first_number(new) or 0) - last.number - 1, 0)


def _overlap(seen: Sequence[bytes], texts: Sequence[bytes]) -> int:
    """Return how many of `texts` overlap with the end of `seen`. New lines that repeat old ones may count as known."""
    for count in range(len(texts), 0, -1):
        part = texts[max(0, count - len(seen)):count]
        if part == seen[-len(part):]:
            return count
    return 0


@dataclass(frozen=True, slots=True)
class Listing:
    """The logs of the running replicas; `complete` = there are no others."""

    logs: Sequence[EngineLog]
    complete: bool


@dataclass(slots=True)
class News:
    """The result of one step: lines ordered by time; the number of missing lines by log, None = unknown."""

    lines: list[tuple[EngineLog, Line]] = field(default_factory=list)
    missing: list[tuple[EngineLog, int | None]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Followed:
    """One log: the lines seen last, and when to read it again."""

    log: EngineLog
    seen: list[Line] = field(default_factory=list)
    is_new: bool = True
    requested: int = RECENT
    pause_s: float = BUSY_S
    due: float = 0.0
    failure: str = ""
    leaving: bool = False
    gone: bool = False

    def reaches(self, lines: Sequence[Line]) -> bool:
        """Return whether `lines` follow the seen lines without a gap."""
        if self.is_new:
            return any(line.text.startswith(STARTING) for line in lines)
        return after(self.seen, lines)[1] == 0 if self.seen else first_number(lines) in (None, 1)

    def take(self, end: LogEnd) -> tuple[list[Line], int | None]:
        """Return the new lines, and the number of lines missing before them; an unfinished last line waits."""
        lines = list(end.lines[:-1] if end.unfinished and not self.leaving else end.lines)
        missing: int | None = 0
        if self.is_new:
            begins = [index for index, line in enumerate(lines) if line.text.startswith(STARTING)]
            new = lines[begins[-1] if begins else 0:]
        elif self.seen:
            new, missing = after(self.seen, lines)
        else:
            new, missing = lines, max((first_number(lines) or 1) - 1, 0)
        self.is_new = self.is_new and not end.exists
        self.seen = [*self.seen, *new][-RECENT:]
        self.requested = min(max(RECENT, 2 * len(new)), KEPT_LINES) if new else end.requested
        return new, missing


class Follower:
    """Follows logs; `shown` = the ends of logs already shown, of replicas that are `running` or gone.

    `listed` returns the logs of the running replicas. `absent` = the number of listings in a row without any replica.
    """

    def __init__(self, client: DashboardClient, listed: Listed, shown: Iterable[LogEnd], running: bool,
                 clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._client = client
        self._listed = listed
        self._clock = clock
        self._sleep = sleep
        self._list_due = clock() + LIST_S
        self._followed: dict[tuple[str, tuple[str, ...]], _Followed] = {}
        self._complaint = ""
        self.absent = 0
        for end in shown:
            self._followed[end.log.key] = _Followed(end.log, list(end.lines[-RECENT:]), is_new=not end.exists,
                                                    due=clock() + BUSY_S, gone=not running)

    def step(self) -> News:
        """Wait until a log or the listing is due, and return the news."""
        due_at = min([self._list_due, *(followed.due for followed in self._active())])
        if (pause_s := due_at - self._clock()) > 0:
            self._sleep(pause_s)
        news = News()
        if self._list_due <= self._clock():
            self._list(news)
        due = [followed for followed in self._active() if followed.due <= self._clock() + TOGETHER_S]
        for followed, end in zip(due, ask_all(self._read, due), strict=True):
            self._take(followed, end, news)
        news.lines.sort(key=lambda entry: entry[1].time)
        return news

    def _active(self) -> list[_Followed]:
        return [followed for followed in self._followed.values() if not followed.gone]

    def _read(self, followed: _Followed) -> LogEnd:
        requested = JOINED_LINES if followed.is_new else followed.requested
        share = HELD_BYTES // max(len(self._followed), 1)
        return read_end(self._client, followed.log, requested, followed.reaches, max_lines=KEPT_LINES, last_bytes=share)

    def _take(self, followed: _Followed, end: LogEnd, news: News) -> None:
        new, missing = followed.take(end)
        news.lines += [(followed.log, line) for line in new]
        if missing != 0:
            news.missing.append((followed.log, missing))
        failure = end.failed[0] if end.failed else ""
        if failure and failure != followed.failure and failure not in news.failed:
            news.failed.append(failure)
        followed.failure = failure
        longest_s = max(IDLE_S, IDLE_PER_LOG_S * len(self._active()))
        followed.pause_s = BUSY_S if new else min(followed.pause_s * 2, longest_s)
        followed.due = self._clock() + followed.pause_s
        followed.gone = followed.leaving

    def _list(self, news: News) -> None:
        """Add the logs of new replicas, and schedule the last read of the logs of replicas that are gone."""
        self._list_due = self._clock() + LIST_S
        try:
            listing = self._listed()
        except InventoryError as error:
            if error.message != self._complaint:
                news.failed.append(error.message)
            self._complaint = error.message
            return
        self._complaint = ""
        running = {followed.log.replica_id for followed in self._active()}
        placed = {log.key: log for log in listing.logs if log.node_ids}
        for key, log in placed.items():
            followed = self._followed.setdefault(key, _Followed(log))
            followed.leaving = followed.gone = False
        unplaced = {log.file_name for log in listing.logs if not log.node_ids}
        for key, followed in self._followed.items():
            if listing.complete and not followed.gone and key not in placed and followed.log.file_name not in unplaced:
                followed.leaving, followed.due = True, 0.0
        ids = {log.replica_id for log in listing.logs}
        if listing.complete:
            news.ended = sorted(running - ids)
            self.absent = 0 if ids else self.absent + 1
