"""The progress of an apply: plain lines for logs, a live table for a terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from render_plans import create, member, plan
from rich.console import Console

from fleetctl.documents.events import Event
from fleetctl.documents.plan import Blocked, TimeToReady
from fleetctl.render.apply_progress import SHOWN_ROWS, LiveProgress, PlainProgress

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def event(kind: str, message: str = "", level: str = "info", **more: Any) -> Event:
    return Event.model_validate(
        {"seq": 1, "time": "2026-03-04T12:34:56.789Z", "type": kind, "level": level, "message": message, **more})


def plain(*events: Event) -> str:
    out = io.StringIO()
    with PlainProgress(Console(file=out, width=40)) as progress:
        for one in events:
            progress.relay(one)
    return out.getvalue()


def test_a_log_gets_one_line_per_event_with_its_time() -> None:
    text = plain(event("lockAcquired", "lock of lab acquired"), event("progress", "1 of 3 done"))
    assert text == "12:34:56 lock of lab acquired\n12:34:56 1 of 3 done\n"


def test_version_and_summary_are_not_printed() -> None:
    assert plain(event("version", "v"), event("runSummary", "s")) == ""


def test_an_event_of_an_unknown_type_shows_its_message() -> None:
    assert "a card was repaired" in plain(event("cardRepaired", "a card was repaired"))


@pytest.mark.parametrize("message", ["two\nlines", "\x1b[2J", "a\rb", "[bold]x[/bold]", "long " * 30])
def test_an_event_is_always_one_line(message: str) -> None:
    text = plain(event("replicaFailed", message))
    assert text.count("\n") == 1
    assert "\x1b" not in text
    assert "\r" not in text


class LiveTable:
    """A live table on a terminal, rendered on request; `now` = the clock of its rows."""

    def __init__(self, *replicas: str) -> None:
        self.now = 0.0
        self.out = io.StringIO()
        self.console = Console(file=self.out, force_terminal=True, width=100, color_system=None,
                               get_time=lambda: self.now)
        actions = [create(*name.rsplit("/", 1), member(f"node-{name[-1]}")) for name in replicas]
        self.progress = LiveProgress(self.console, plan(actions=actions), clock=lambda: self.now)

    def lines(self) -> list[str]:
        before = self.out.tell()
        self.console.print(self.progress._render())
        return [line.rstrip() for line in self.out.getvalue()[before:].splitlines() if line.strip()]


def test_every_planned_replica_is_waiting_until_its_first_event() -> None:
    table = LiveTable("org/m/0", "org/m/1")
    lines = table.lines()
    assert [line.split() for line in lines[:2]] == [
        ["org/m/0", "waiting", "node-0"], ["org/m/1", "waiting", "node-1"]]
    assert lines[-1].endswith("0 of 2 done")


def test_blocked_replicas_are_counted_too() -> None:
    table = LiveTable("org/m/0")
    blocked = [Blocked(model="org/big", replicas=2, code="INSUFFICIENT_GPU", message="needs 8")]
    table.progress = LiveProgress(table.console, plan(blocked=blocked))
    assert table.lines()[-1].endswith("0 of 0 done, 2 blocked")


def test_those_that_follow_a_pilot_are_counted_until_they_are_planned() -> None:
    table = LiveTable("org/m/0")
    later = plan(actions=[], after_pilot=[create("org/m", number, member("node-0")) for number in range(1, 4)])
    table.progress = LiveProgress(table.console, later)
    assert table.lines()[-1].endswith("0 of 0 done, 3 after a pilot")
    table.progress.relay(event("replanned", waiting=["an agent's mistake"]))
    assert table.lines()[-1].endswith("3 after a pilot")
    table.progress.relay(event("replanned", waiting=0))
    assert table.lines()[-1].endswith("0 of 0 done")


def test_a_starting_replica_shows_its_seconds_and_a_ready_one_disappears() -> None:
    table = LiveTable("org/m/0", "org/m/1")
    table.progress.relay(event("replicaCreated", model="org/m", replicaId=0, nodes=["node-0"]))
    table.now = 7.0
    assert table.lines()[0].split() == ["org/m/0", "created", "node-0", "7s"]
    table.progress.relay(event("replicaReady", model="org/m", replicaId=0, nodes=["node-0"]))
    lines = table.lines()
    assert not [line for line in lines if line.startswith("org/m/0")]
    assert lines[-1].endswith("1 of 2 done")


def test_a_start_of_which_a_time_is_known_shows_how_much_of_it_is_left() -> None:
    table = LiveTable()
    expected = TimeToReady(about=240, least=200, most=300, why="3 starts of it took 3m40s to 4m30s")
    actions = [create("org/m", number, member(f"node-{number}")) for number in range(2)]
    actions[0] = actions[0].model_copy(update={"ready_in": expected})
    table.progress = LiveProgress(table.console, plan(actions=actions), clock=lambda: table.now)
    assert [line.split()[1:] for line in table.lines()[:2]] == [["waiting", "node-0"], ["waiting", "node-1"]]
    for number in (0, 1):
        table.progress.relay(event("replicaCreated", model="org/m", replicaId=number, nodes=[f"node-{number}"]))
    shown = []
    for table.now in (60.0, 239.0, 270.0, 301.0):
        known, unknown = table.lines()[:2]
        assert unknown.split() == ["org/m/1", "created", "node-1", f"{table.now:.0f}s"]
        shown.append(" ".join(word for word in known.split()[4:] if word.isascii()))
    assert shown == ["about 3m00s left", "about 1s left", "expected now", "longer than expected"]
    table.progress.relay(event("replicaFailed", model="org/m", replicaId=0, nodes=["node-0"]))
    assert table.lines()[0].split() == ["org/m/0", "failed", "node-0", "301s"]


def test_failed_replicas_stay_in_the_table() -> None:
    table = LiveTable("org/m/0")
    table.progress.relay(event("replicaFailed", model="org/m", replicaId=0, nodes=["node-0"]))
    lines = table.lines()
    assert lines[0].split()[:2] == ["org/m/0", "failed"]
    assert lines[-1].endswith("1 of 1 done")


def test_the_lock_holder_is_shown_while_waiting() -> None:
    table = LiveTable("org/m/0")
    table.progress.relay(event("lockWaiting", "the lock of lab is held by job j9"))
    assert table.lines()[-1].endswith(" 0 of 1 done; the lock of lab is held by job j9")
    table.progress.relay(event("lockAcquired", "lock of lab acquired"))
    assert table.lines()[-1].endswith(" 0 of 1 done")


def test_the_spinner_turns_between_events() -> None:
    table = LiveTable("org/m/0")
    signs = []
    for table.now in (0.0, 0.2, 0.4):
        signs.append(table.lines()[-1][0])
    assert len(set(signs)) == 3


def test_a_long_table_is_cut_and_shows_busy_replicas_first() -> None:
    table = LiveTable(*(f"org/m/{number}" for number in range(SHOWN_ROWS + 10)))
    last = SHOWN_ROWS + 9
    table.progress.relay(event("replicaCreated", model="org/m", replicaId=last, nodes=["n"]))
    lines = table.lines()
    assert len(lines) == SHOWN_ROWS + 1
    assert lines[0].startswith(f"org/m/{last} ")


def test_a_run_without_a_plan_counts_replicas_from_events() -> None:
    table = LiveTable()
    with LiveProgress(table.console, None, clock=lambda: 0.0) as table.progress:
        table.progress.relay(event("replicaReady", model="org/m", replicaId=0, nodes=[]))
        table.progress.relay(event("cardRepaired", "a card was repaired"))
    assert "1 of 1 done" in table.lines()[-1]


def test_the_table_is_erased_at_the_end() -> None:
    table = LiveTable("org/m/0")
    with table.progress:
        table.progress.relay(event("replicaCreated", "\x1b]0;x\x07", model="org/m", replicaId=0, nodes=["node-0"]))
    drawn = table.out.getvalue()
    assert "\x1b]0;" not in drawn
    assert CONTROL.sub("", drawn.rpartition("\x1b[2K")[2]).strip() == "", "the last table is erased"
