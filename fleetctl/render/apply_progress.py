"""The progress of an apply on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from fleetctl.documents.base import span_text
from fleetctl.documents.events import Event
from fleetctl.documents.inventory import LAST_OUTPUT
from fleetctl.documents.plan import Plan, TimeToReady
from fleetctl.render.visible import visible

SHOWN_ROWS = 20
BAR_WIDTH = 20
STYLES = {"waiting": "dim", "created": "cyan", "ready": "green", "starting": "cyan"}


class PlainProgress:
    """One line per event, for logs: no cursor movement, no terminal needed."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def relay(self, event: Event) -> None:
        """Print one event. Skips the summary, which has its own table, and events for programs."""
        if event.type in ("runSummary", "version") or event.level == "debug":
            return
        style = {"error": "red", "warning": "yellow"}.get(event.level, "")
        message = event.message.partition(LAST_OUTPUT)[0]
        self._console.print(Text(f"{event.time[11:19]} {visible(message)}", style), soft_wrap=True)

    def say(self, label: str, message: str) -> None:
        """Print one labeled line, above the live table if there is one."""
        self._console.print(Text.assemble((f"{label}: ", "bold"), visible(message)), soft_wrap=True)


class LiveProgress(PlainProgress):
    """A live table: the replicas that are starting, for how long and how much longer, and how many are done."""

    def __init__(self, console: Console, plan: Plan | None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console)
        self._clock = clock
        self._started_at: dict[str, float] = {}
        self._states: dict[str, tuple[str, str]] = {}
        for action in plan.starts if plan else ():
            nodes = ", ".join(dict.fromkeys(member.node for member in action.members))
            self._states[action.id] = ("waiting", nodes)
        self._ready_in = {action.id: action.ready_in for action in plan.starts if action.ready_in} if plan else {}
        self._blocked = sum(one.replicas for one in plan.blocked) if plan else 0
        self._later = len(plan.after_pilot) if plan else 0
        self._note = ""
        self._spinner = Spinner("dots")
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def relay(self, event: Event) -> None:
        """Update the table with one event."""
        extra: dict[str, Any] = event.model_extra or {}
        if event.type.startswith("replica") and "model" in extra:
            key = f"{extra['model']}/{extra.get('replicaId')}"
            state = event.type.removeprefix("replica").lower()
            self._started_at.setdefault(key, self._clock())
            self._states[key] = (state, ", ".join(map(str, extra.get("nodes") or ())))
        elif event.type == "lockAcquired":
            self._note = ""
        elif event.type in ("lockWaiting", "weightsFetched"):
            self._note = f"; {event.message}"
        if event.type == "replanned" and isinstance(count := extra.get("waiting"), int):
            self._later = count
        if event.type in ("roomAwaited", "replanWanted", "replanned", "notReplanned", "nodesRequested",
                          "nodesNotRequested", "autoscalerSilent"):
            self.say("note", event.message)

    def _render(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
        busy = [key for key, (state, _) in self._states.items() if state not in ("ready", "waiting")]
        waiting = [key for key, (state, _) in self._states.items() if state == "waiting"]
        for key in (busy + waiting)[:SHOWN_ROWS]:
            state, nodes = self._states[key]
            passed = self._clock() - self._started_at[key] if key in self._started_at else None
            elapsed = "" if passed is None else f"{passed:.0f}s"
            expected = self._ready_in.get(key) if state == "created" else None
            left = () if passed is None or expected is None else _left(passed, expected)
            table.add_row(
                Text(visible(key)), Text(state, STYLES.get(state, "red")), Text(visible(nodes)), elapsed, *left)
        done = sum(1 for state, _ in self._states.values() if state not in ("waiting", "created"))
        blocked = f", {self._blocked} blocked" if self._blocked else ""
        later = f", {self._later} after a pilot" if self._later else ""
        line = f" {done} of {len(self._states)} done{later}{blocked}{visible(self._note)}"
        self._spinner.update(text=Text(line))
        return Group(table, self._spinner)


def _left(passed: float, expected: TimeToReady) -> tuple[RenderableType, str]:
    """Return a bar, and in words how much longer a start will take that has begun `passed` seconds ago."""
    bar = ProgressBar(total=expected.about, completed=min(passed, expected.about), width=BAR_WIDTH)
    left = round(expected.about - passed)
    if left > 0:
        return bar, f"about {span_text(left)} left"
    return bar, "longer than expected" if passed > (expected.most or expected.about) else "expected now"
