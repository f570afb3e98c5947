"""The life of a view at its source, for any order of events, with a simulated clock."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from fleetctl.agent.weights.table import DRAINING, IDLE_S, LEASE_S, MOST_FETCHES, PENDING, READY, Refused, Table

BUDGET = 24
SIZES = {f"v{number}": 8 + number % 2 for number in range(4)}
OWN = None


class Lives(RuleBasedStateMachine):
    """A model of the table: its entries, the leases of fetches, the views that another process of the node uses."""

    fetches = Bundle("fetches")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.used_elsewhere: set[str] = set()
        self.dropped: list[str] = []
        self.table = Table(lambda: self.now, BUDGET, self.drop)
        self.table.hold(OWN, 10**9)
        self.held: dict[str | None, str] = {}
        self.used: dict[str | None, float] = {}
        self.leases: dict[str, tuple[str | None, float]] = {}
        self.names = 0
        self.closed = False

    def drop(self, key: str) -> bool:
        assert key not in [held for held, _ in self.live().values()], "nothing is removed during a fetch"
        assert self.held[key] != PENDING, "nothing is removed while it is made"
        if key in self.used_elsewhere:
            self.used[key] = self.now
            return False
        self.dropped.append(key)
        return True

    def live(self) -> dict[str, tuple[str | None, float]]:
        return {name: lease for name, lease in self.leases.items() if lease[1] > self.now}

    def settle(self) -> None:
        """Update the model after expiry or pressure: remove the dropped views."""
        self.leases = self.live()
        for key in self.dropped:
            assert self.held.pop(key) == READY
        self.dropped.clear()

    @rule(key=st.sampled_from(sorted(SIZES)))
    def reserve(self, key: str) -> None:
        self.table.sweep()
        self.settle()
        before, idle, used = dict(self.held), self.idle(), dict(self.used)
        try:
            answer = self.table.reserve(key, SIZES[key])
        except Refused as refused:
            code = refused.code
        else:
            code = ""
        if code:
            assert code == (DRAINING if self.closed else "noRoom")
            if code == "noRoom":
                stuck = sum(SIZES[other] for other in before if other not in idle or other in self.used_elsewhere)
                assert stuck + SIZES[key] > BUDGET, "there was room"
            self.settle()
            return
        assert answer == before.get(key, "make")
        self.used[key] = self.now
        victims = list(self.dropped)
        in_order = sorted(idle, key=lambda one: (used[one], one))
        assert victims == [one for one in in_order if one not in self.used_elsewhere][:len(victims)], (
            "the view that was unused for longest is dropped first")
        if answer == "make":
            self.held[key] = PENDING
        self.settle()

    def idle(self) -> list[str]:
        busy = [key for key, _ in self.leases.values()]
        return [key for key, state in self.held.items() if state == READY and key not in busy]

    @rule(key=st.sampled_from(sorted(SIZES)))
    def make(self, key: str) -> None:
        """Reserve and commit together, which is the usual case, so that later steps reach more states."""
        self.reserve(key)
        self.commit(key)

    @rule(key=st.sampled_from(sorted(SIZES)))
    def commit(self, key: str) -> None:
        self.table.commit(key)
        if self.held.get(key) == PENDING:
            self.held[key], self.used[key] = READY, self.now

    @rule(key=st.sampled_from(sorted(SIZES)))
    def forget(self, key: str) -> None:
        self.table.forget(key)
        if self.held.get(key) == PENDING:
            del self.held[key]

    @rule(target=fetches, key=st.sampled_from([OWN, *sorted(SIZES)]))
    def begin(self, key: str | None) -> Any:
        self.table.sweep()
        self.settle()
        self.names += 1
        name = f"fetch-{self.names}"
        state = READY if key == OWN else self.held.get(key)
        wanted = ("absent" if state is None else DRAINING if self.closed else state if state != READY
                  else "busy" if len(self.leases) >= MOST_FETCHES else None)
        try:
            self.table.begin(key, name)
        except Refused as refused:
            code = refused.code
        else:
            code = None
        assert code == wanted
        if code:
            return multiple()
        self.leases[name], self.used[key] = (key, self.now + LEASE_S), self.now
        return name

    @rule(target=fetches, key=st.sampled_from(sorted(SIZES)), more=st.integers(0, 4))
    def make_and_begin(self, key: str, more: int) -> Any:
        """Make a view, and start fetches of it and of everything else, up to the limit and beyond."""
        self.make(key)
        begun = [self.begin(one) for one in [key, *[OWN, *sorted(SIZES)][:more]]]
        return multiple(*(name for name in begun if isinstance(name, str)))

    @rule(name=fetches, key=st.sampled_from([OWN, *sorted(SIZES)]))
    def begin_again(self, name: str, key: str | None) -> None:
        live = self.live()
        if name in live and live[name][0] != key:
            with pytest.raises(Refused, match="anotherEntry"):
                self.table.begin(key, name)
        elif name in live:
            self.table.begin(key, name)
            self.leases[name], self.used[key] = (key, self.now + LEASE_S), self.now
        self.settle()

    @rule(name=fetches)
    def send(self, name: str) -> None:
        alive = name in self.live()
        assert self.table.sent(name) == alive, "an expired lease is not revived"
        if alive:
            self.leases[name] = self.leases[name][0], self.now + LEASE_S
        self.settle()

    @rule(name=fetches)
    def end(self, name: str) -> None:
        self.leases.pop(name, None)
        self.table.end(name)
        self.table.end(name)
        self.settle()

    @rule(key=st.sampled_from(sorted(SIZES)))
    def remove(self, key: str) -> None:
        self.table.sweep()
        self.settle()
        if key in self.idle():
            assert self.table.remove(key) == (0 if key in self.used_elsewhere else SIZES[key])
            self.settle()

    @precondition(lambda self: self.names > 15)
    @rule()
    def drain_all(self) -> None:
        self.table.close()
        self.closed = True

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 3, LEASE_S / 2, LEASE_S, IDLE_S / 2, IDLE_S]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.table.sweep()
        self.settle()
        for key in self.idle():
            if key in self.used_elsewhere and self.now - self.used[key] >= IDLE_S:
                self.used[key] = self.now
            assert self.now - self.used[key] < IDLE_S, "an idle view is dropped after its time"

    @rule(key=st.sampled_from(sorted(SIZES)))
    def use_elsewhere(self, key: str) -> None:
        self.used_elsewhere ^= {key}

    @invariant()
    def table_and_model_agree(self) -> None:
        live = self.live()
        if live != self.leases:
            return
        for key in SIZES:
            assert self.table.state(key) == self.held.get(key)
        assert self.table.state(OWN) == READY
        assert len(self.table._fetches) == len(live) <= MOST_FETCHES
        assert sum(SIZES[key] for key in self.held) <= BUDGET


TestLives = Lives.TestCase


class Clocked:
    """A table with a clock that the test sets, and the views that it has dropped."""

    def __init__(self) -> None:
        self.now, self.dropped = 0.0, list[str | None]()
        self.table = Table(lambda: self.now, BUDGET, lambda view: self.dropped.append(view) is None)

    def make(self, *views: str) -> None:
        for view in views:
            self.table.reserve(view, SIZES[view])
            self.table.commit(view)


def test_a_view_is_idle_from_its_last_fetch_on() -> None:
    clocked = Clocked()
    clocked.make("v0")
    clocked.now = IDLE_S - 1
    clocked.table.begin("v0", "fetch")
    clocked.table.end("fetch")
    clocked.now = 2 * IDLE_S - 2
    clocked.table.sweep()
    assert (clocked.table.state("v0"), clocked.dropped) == (READY, [])
    clocked.now = 2 * IDLE_S - 1
    clocked.table.sweep()
    assert (clocked.table.state("v0"), clocked.dropped) == (None, ["v0"])


def test_a_view_too_large_for_the_budget_costs_no_other_view() -> None:
    clocked = Clocked()
    clocked.make("v0", "v1")
    with pytest.raises(Refused, match="noRoom"):
        clocked.table.reserve("v2", BUDGET + 1)
    assert clocked.dropped == []
    assert clocked.table.reserve("v2", BUDGET) == "make"
    assert clocked.dropped == ["v0", "v1"]


def test_any_number_of_first_requests_make_a_view_once() -> None:
    table = Table(lambda: 0.0, BUDGET, lambda key: True)
    key, start = next(iter(SIZES)), threading.Barrier(16)
    answers: list[str] = []

    def ask() -> None:
        start.wait()
        answers.append(table.reserve(key, 4))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["make", *["pending"] * 15]


def test_a_lease_ends_at_its_time_and_not_after_it() -> None:
    clocked = Clocked()
    clocked.make("v0")
    clocked.table.begin("v0", "fetch")
    clocked.now = LEASE_S
    assert not clocked.table.sent("fetch")


def test_a_view_that_another_process_uses_is_not_tried_again_at_once() -> None:
    clocked, tried = Clocked(), list[str | None]()

    def refuse(view: str | None) -> bool:
        tried.append(view)
        return False

    clocked.table = Table(lambda: clocked.now, BUDGET, refuse)
    clocked.make("v0")
    for clocked.now in (IDLE_S, IDLE_S + 1, 2 * IDLE_S):
        clocked.table.sweep()
    assert tried == ["v0", "v0"]
    assert clocked.table.state("v0") == READY
