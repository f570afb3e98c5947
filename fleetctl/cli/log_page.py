"""How `fleetctl logs` shows lines: whose each is, what is left out, and what is new while it follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from fleetctl.cli.console import say, write_output_of_others
from fleetctl.documents.quantity import count_of
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import EngineLog
from fleetctl.inventory.log_end import Entry, LogEnd
from fleetctl.inventory.log_follow import Follower, Listing
from fleetctl.render.visible import visible

ABSENT_LISTINGS = 2
"""A replica that is restarted may be missing from one listing."""


class LogPage:
    """Writes lines of the logs of a model, or of one replica, `number`."""

    def __init__(self, model: str, number: int | None, *, timestamps: bool) -> None:
        self.number = number
        self._model = model
        self._timestamps = timestamps
        self._members: dict[int, set[str]] = {}
        self.ended: set[int] = set()
        """Replicas that have ended, beside others that run."""

    def know(self, logs: Iterable[EngineLog]) -> None:
        """Note which members a replica has: where there is one, its lines need no rank."""
        for log in logs:
            self._members.setdefault(log.replica_id, set()).add(log.label)

    def show(self, entries: Sequence[Entry]) -> None:
        """Write lines, each with whose it is where that could be another's."""
        if entries:
            write_output_of_others(b"".join(
                self._prefix(log) + (line.time.encode() + b" " if self._timestamps and line.time else b"")
                + line.text + b"\n" for log, line in entries))

    def show_earlier(self, entries: Sequence[Entry], left_out: int | None) -> None:
        """Write the lines that are there already; `left_out` = how many are before them, None = not known."""
        if left_out != 0:
            count = "earlier lines are" if left_out is None else count_of(left_out, "earlier line") + (
                " is" if left_out == 1 else " are")
            say("note", f"... {count} not shown")
        self.show(entries)

    def name(self, replica_id: int) -> str:
        """Return a replica as `status` names it."""
        return f"{self._model}/{replica_id}"

    def _prefix(self, log: EngineLog) -> bytes:
        ended = " ended" if log.replica_id in self.ended else ""
        parts = [] if self.number is not None else [f"{log.replica_id}{ended}"]
        if len(self._members.get(log.replica_id, ())) > 1:
            parts.append(visible(log.label))
        return f"[{' '.join(parts)}] ".encode() if parts else b""


def follow_logs(
    client: DashboardClient, page: LogPage, ends: Sequence[LogEnd], running: bool, listed: Callable[[], Listing]
) -> None:
    """Show what comes, until one replica is gone or a person ends it; all replicas of a model may come back.

    `ends` were shown; `running` = they are of what runs now.
    """
    def known() -> Listing:
        listing = listed()
        page.know(listing.logs)
        page.ended -= {log.replica_id for log in listing.logs}
        return listing

    follower = Follower(client, known, ends, running, time.monotonic, time.sleep)
    if not running:
        say("note", "nothing of it runs now" + ("; waiting for a replica to start" if page.number is None else ""))
        if page.number is not None:
            return
    while page.number is None or follower.absent < ABSENT_LISTINGS:
        news = follower.step()
        for log, missing in news.missing:
            count = "lines are" if missing is None else count_of(missing, "line") + (" is" if missing == 1 else " are")
            say("warning", f"{page.name(log.replica_id)} {log.label}: ... {count} not shown")
        page.show(news.lines)
        for failure in news.failed:
            say("warning", f"not everything can be read; trying again: {failure}")
        for replica_id in news.ended:
            say("note", f"{page.name(replica_id)} does not run any more")
