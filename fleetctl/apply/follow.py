"""Follow an agent run: turn its log lines into events until its summary or its end. Stop it on request."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, InitVar, dataclass

from fleetctl.apply import jobs
from fleetctl.apply.outcome import INTERRUPTED
from fleetctl.documents.events import Event, RunSummary
from fleetctl.errors import ApplyError, InventoryError, WaitTimeout
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import fetch_job, log_of
from fleetctl.inventory.json_values import parse_text

FIRST_S, QUICK_S, SLOW_S = 0.2, 0.3, 1.0
"""Polling pauses: until the first event, after an event, and the longest."""
UNREACHABLE_S = 60.0
"""How long the dashboard may be unreachable before the client stops following; the run itself does not need it."""
STOP_PATIENCE_S = 10.0
CONTINUE_HINT = "run the same command again to continue"


@dataclass(frozen=True, slots=True)
class Wording:
    """A run's name in messages, and the hints after lost contact (`{job}` = its submission id) or its agent's death."""

    noun: str
    afterwards: str
    died: str


APPLY = Wording(
    "apply",
    afterwards="`fleetctl apply --attach {job}` follows it, `fleetctl status` shows the replicas",
    died="what it created continues; run the same command again, and it continues from what runs",
)


def parse_line(line: str) -> Event | None:
    """Parse a log line; None if it is not an event of the agent."""
    if not line.startswith("{"):
        return None
    try:
        record = parse_text(line)
        if record.get("type") == "runSummary":
            return RunSummary.model_validate(record)
        return Event.model_validate(record)
    except ValueError:
        return None


@dataclass
class RunFollower:
    """Reads one job's events, each once. `clock` and `sleep` come from outside so that tests need no waiting."""

    client: DashboardClient
    submission_id: str
    wording: Wording
    _: KW_ONLY
    wait_timeout_s: InitVar[float | None] = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self, wait_timeout_s: float | None) -> None:
        self._seen_chars, self._pause_s, self._begun = 0, FIRST_S, False
        self._unread: deque[Event] = deque()
        self.wait_at_most(wait_timeout_s)

    def wait_at_most(self, wait_timeout_s: float | None) -> None:
        """Raise WaitTimeout after this many seconds from now; None = never."""
        self._deadline = None if wait_timeout_s is None else self.clock() + wait_timeout_s

    def events(self) -> Iterator[Event]:
        """Yield events as they arrive, up to `runSummary`. Raises ApplyError if the agent died without one.

        After an interrupt, a second call continues where the first ended.
        """
        unreachable_since: float | None = None
        while True:
            try:
                job = fetch_job(self.client, self.submission_id)
                self._read_new_lines()
            except InventoryError as error:
                unreachable_since = self.clock() if unreachable_since is None else unreachable_since
                if self.clock() - unreachable_since > UNREACHABLE_S:
                    raise ApplyError(f"lost contact with the {self.wording.noun}: {error.message}",
                                     hint=f"it continues in the cluster; {self._afterwards()}") from None
                self._wait(SLOW_S)
                continue
            unreachable_since = None
            self._begun = self._begun or bool(self._unread)
            if self._begun:
                self._pause_s = QUICK_S if self._unread else min(SLOW_S, self._pause_s * 1.3)
            while self._unread:
                event = self._unread.popleft()
                yield event
                if isinstance(event, RunSummary):
                    return
            if job.ended:
                raise ApplyError(f"the agent ended without a summary ({job.end_text})", hint=self.wording.died)
            self._wait(self._pause_s)

    def summary(self, relay: Callable[[Event], None]) -> RunSummary:
        """Relay each event once, up to and including the summary, and return it; raises as `events` does."""
        for event in self.events():
            relay(event)
            if isinstance(event, RunSummary):
                return event
        raise ApplyError("the agent's events ended without a summary")

    def stop(self, relay: Callable[[Event], None], then: str) -> RunSummary:
        """Stop the run and return its summary. `then` = what to do next if the run gave no report.

        Raises ApplyError if it could not be stopped, WaitTimeout if it does not end.
        """
        jobs.stop(self.client, self.submission_id)
        self.wait_at_most(STOP_PATIENCE_S)
        try:
            return self.summary(relay)
        except ApplyError:  # stopped before it began, or killed before it could report
            return RunSummary(seq=0, time="", message=f"the {self.wording.noun} was stopped and gave no report; {then}",
                              exit_code=INTERRUPTED, interrupted=True)

    def _read_new_lines(self) -> None:
        """Queue the events of new complete lines; raises InventoryError if the log cannot be read."""
        text = log_of(self.client, self.submission_id)
        if text is None:
            raise InventoryError(f"the cluster cannot serve the log of job {self.submission_id}")
        end = text.rfind("\n") + 1
        lines = text[self._seen_chars:end].split("\n")  # splitlines() also splits at characters that JSON allows
        self._unread.extend(event for event in map(parse_line, lines) if event is not None)
        self._seen_chars = max(end, self._seen_chars)

    def _wait(self, seconds: float) -> None:
        left = None if self._deadline is None else self._deadline - self.clock()
        if left is not None and left <= 0:
            raise WaitTimeout(f"stopped waiting; the {self.wording.noun} continues in the cluster",
                              hint=self._afterwards())
        self.sleep(seconds if left is None else min(seconds, left))

    def _afterwards(self) -> str:
        return self.wording.afterwards.replace("{job}", self.submission_id)  # it may name a file with braces
