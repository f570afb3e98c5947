"""Following engine logs: the last lines of each are read repeatedly, less often for idle engines.

Ray can also stream a file, but each stream takes one of the 100 requests that its state API answers at a time, which
`status` and every apply need; it stays with the old file after a rotation; and after an interruption it cannot resume
where it was. The stamps of the lines show which are new, and how many are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fleetctl.errors import InventoryError
from fleetctl.inventory.ask_all import ask_all
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import HELD_BYTES, EngineLog
from fleetctl.inventory.log_end import Line, LogEnd, after, first_number, read_end

BUSY_S, IDLE_S, IDLE_PER_LOG_S = 1.0, 2.0, 0.08
"""Pauses between two reads of one log: for an engine that writes, and the longest for one that does not."""
TOGETHER_S = 0.5
"""Logs that are due within this time are read together."""
LIST_S = 10.0
RECENT, MOST_LINES, JOINED_LINES = 20, 50_000, 1_000
STARTING = b"fleetctl: starting "
"""Our line at each start of an engine."""

Listed = Callable[[], "Listing"]


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
            begins = [place for place, line in enumerate(lines) if line.text.startswith(STARTING)]
            new = lines[begins[-1] if begins else 0:]
        elif self.seen:
            new, missing = after(self.seen, lines)
        else:
            new, missing = lines, max((first_number(lines) or 1) - 1, 0)
        self.is_new = self.is_new and not end.exists
        self.seen = [*self.seen, *new][-RECENT:]
        self.requested = min(max(RECENT, 2 * len(new)), MOST_LINES) if new else end.requested
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
        return read_end(self._client, followed.log, requested, followed.reaches, most=MOST_LINES, last_bytes=share)

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
            known = self._followed.setdefault(key, _Followed(log))
            known.leaving = known.gone = False
        unplaced = {log.file_name for log in listing.logs if not log.node_ids}
        for key, followed in self._followed.items():
            if listing.complete and not followed.gone and key not in placed and followed.log.file_name not in unplaced:
                followed.leaving, followed.due = True, 0.0
        ids = {log.replica_id for log in listing.logs}
        if listing.complete:
            news.ended = sorted(running - ids)
            self.absent = 0 if ids else self.absent + 1
