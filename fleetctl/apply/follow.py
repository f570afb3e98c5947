"""Follow a run of the agent: its log, line by line, as events, until its summary or its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from pydantic import ValidationError

from fleetctl.apply import jobs
from fleetctl.documents.events import Event, RunSummary
from fleetctl.errors import ApplyError, FleetctlError, InventoryError, WaitTimeout
from fleetctl.inventory.client import DashboardClient

QUICK_S, SLOW_S = 0.4, 2.0
UNREACHABLE_S = 60.0
"""How long the dashboard may be away before following gives up; the apply itself does not depend on it."""


def parse_line(line: str) -> Event | None:
    """Return the event a log line holds; None for what others write into the job's log."""
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
        if record.get("type") == "runSummary":
            return RunSummary.model_validate(record)
        return Event.model_validate(record)
    except (ValueError, RecursionError, ValidationError):
        return None


def _lost_sight(error: FleetctlError) -> ApplyError:
    return ApplyError(f"lost sight of the apply: {error.message}",
                      hint="it goes on in the cluster; `fleetctl apply --attach` follows it again")


class Follower:
    """Reads one job's events. `clock` and `sleep` come from outside so that tests need no waiting."""

    def __init__(
        self, client: DashboardClient, submission_id: str, *, wait_timeout_s: float | None = None,
        clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._id = submission_id
        self._clock = clock
        self._sleep = sleep
        self._deadline = None if wait_timeout_s is None else clock() + wait_timeout_s
        self._seen_chars = 0
        self._pause_s = QUICK_S

    def events(self) -> Iterator[Event]:
        """Yield events as they come; ends after `runSummary`. Raises ApplyError when the agent died without one."""
        unreachable_since: float | None = None
        while True:
            try:
                ended = jobs.look(self._client, self._id)
                fresh = list(self._fresh())
            except InventoryError as error:
                unreachable_since = self._clock() if unreachable_since is None else unreachable_since
                if self._clock() - unreachable_since > UNREACHABLE_S:
                    raise _lost_sight(error) from None
                self._wait(SLOW_S)
                continue
            unreachable_since = None
            yield from fresh
            if fresh and isinstance(fresh[-1], RunSummary):
                return
            if ended.ended:
                raise ApplyError(
                    f"the agent ended without a summary ({ended.status}: {ended.message or 'no reason given'})",
                    hint="what it created goes on; apply again, and it continues from what runs",
                )
            self._pause_s = QUICK_S if fresh else min(SLOW_S, self._pause_s * 1.3)
            self._wait(self._pause_s)

    def _fresh(self) -> Iterator[Event]:
        """Yield the events of complete lines not seen before; raises InventoryError when the log cannot be had."""
        text = jobs.log_of(self._client, self._id)
        if text is None:
            raise InventoryError(f"the log of job {self._id} cannot be served")
        whole = text.rfind("\n") + 1
        for line in text[self._seen_chars:whole].split("\n"):  # splitlines() knows line ends that JSON does not
            event = parse_line(line)
            if event is not None:
                yield event
        self._seen_chars = max(whole, self._seen_chars)

    def _wait(self, seconds: float) -> None:
        left = None if self._deadline is None else self._deadline - self._clock()
        if left is not None and left <= 0:
            raise WaitTimeout(
                "stopped waiting; the apply goes on in the cluster",
                hint=f"`fleetctl apply --attach {self._id}` follows it, `fleetctl status` shows the replicas",
            )
        self._sleep(seconds if left is None else min(seconds, left))
