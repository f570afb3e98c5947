"""The life of a view at its source, for any order of events, with a simulated clock."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from fleetctl.agent.weights.table import (
    DRAINING,
    IDLE_S,
    LEASE_S,
    MOST_FETCHES,
    PENDING,
    READY,
    RequestRefused,
    ViewTable,
)

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
        self.table = ViewTable(lambda: self.now, BUDGET, self.drop)
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
        except RequestRefused as refused:
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
        except RequestRefused as refused:
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
            with pytest.raises(RequestRefused, match="anotherEntry"):
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
        self.table = ViewTable(lambda: self.now, BUDGET, lambda view: self.dropped.append(view) is None)

    def make(self, *views: str) -> None:
        for view in views:
            self.table.reserve(view, SIZES[view])
            self.table.commit(view)

    def refusal(self, view: str | None, fetch: str) -> str:
        """Return the code with which a fetch is refused; empty if it may begin."""
        try:
            self.table.begin(view, fetch)
        except RequestRefused as refused:
            return refused.code
        return ""

    def states(self) -> dict[str, str | None]:
        return {view: self.table.state(view) for view in SIZES if self.table.state(view)}


def test_one_caller_makes_a_view_and_the_others_learn_its_state() -> None:
    clocked = Clocked()
    answers = [clocked.table.reserve("v0", 8) for _ in range(2)]
    assert (answers, clocked.refusal("v0", "fetch")) == (["make", PENDING], PENDING)
    clocked.table.commit("v0")
    assert (clocked.table.reserve("v0", 8), clocked.refusal("v0", "fetch")) == (READY, "")


def test_a_view_that_could_not_be_made_is_forgotten_and_a_ready_one_is_not() -> None:
    clocked = Clocked()
    clocked.make("v0")
    clocked.table.reserve("v1", 9)
    for view in ("v0", "v1", "unknown"):
        clocked.table.forget(view)
        clocked.table.commit(view)
    assert (clocked.states(), clocked.refusal("v1", "fetch"), clocked.dropped) == ({"v0": READY}, "absent", [])


def test_asking_for_a_view_keeps_it_and_making_it_ready_twice_does_not() -> None:
    clocked = Clocked()
    clocked.make("v0", "v1")
    clocked.now = IDLE_S - 1
    clocked.table.commit("v0")
    clocked.table.reserve("v1", SIZES["v1"])
    clocked.now = IDLE_S
    assert clocked.table.reserve("v0", SIZES["v0"]) == "make", "it was idle for too long"
    assert (clocked.dropped, clocked.states()) == (["v0"], {"v0": PENDING, "v1": READY})
    clocked.now = 2 * IDLE_S - 1
    assert (clocked.refusal("v1", "fetch"), clocked.states()) == ("absent", {"v0": PENDING})


def test_a_view_is_idle_only_from_when_it_was_made() -> None:
    clocked = Clocked()
    clocked.table.reserve("v0", 8)
    clocked.now = IDLE_S
    clocked.table.sweep()
    clocked.table.commit("v0")
    clocked.now = 2 * IDLE_S - 1
    assert clocked.refusal("v0", "fetch") == ""


def test_only_four_fetches_run_at_once_and_an_ended_or_expired_one_makes_room() -> None:
    clocked = Clocked()
    clocked.table.hold(OWN, 10**9)
    clocked.make("v0")
    assert [clocked.refusal(view, f"fetch-{number}") for number, view in enumerate((OWN, "v0", OWN, "v0", OWN))] == [
        "", "", "", "", "busy"]
    assert [clocked.refusal("v0", "fetch-1"), clocked.refusal(OWN, "fetch-1")] == ["", "anotherEntry"]
    for ended in ("fetch-1", "fetch-1", "unknown"):
        clocked.table.end(ended)
    assert [clocked.refusal(OWN, "fetch-4"), clocked.refusal(OWN, "fetch-5"), clocked.table.most] == ["", "busy", 4]
    clocked.now = LEASE_S
    assert [clocked.refusal(OWN, f"late-{number}") for number in range(5)] == ["", "", "", "", "busy"]


def test_the_peak_number_of_fetches_is_kept() -> None:
    clocked = Clocked()
    clocked.make("v0")
    assert clocked.table.most == 0
    for fetch in ("a", "b"):
        clocked.table.begin("v0", fetch)
    for fetch in ("a", "b"):
        clocked.table.end(fetch)
    clocked.table.begin("v0", "c")
    assert clocked.table.most == 2


def test_each_byte_sent_renews_the_lease_and_no_other_fetch_may_go_on() -> None:
    clocked = Clocked()
    clocked.make("v0")
    clocked.table.begin("v0", "fetch")
    answers = []
    for clocked.now in (LEASE_S - 1, 2 * LEASE_S - 2, 3 * LEASE_S - 2):
        answers.append(clocked.table.sent("fetch"))
    assert (answers, clocked.table.sent("unknown"), clocked.states()) == ([True, True, False], False, {"v0": READY})


def test_a_fetch_that_is_continued_has_a_new_lease() -> None:
    clocked = Clocked()
    clocked.make("v0")
    for clocked.now in (0.0, LEASE_S - 1):
        clocked.table.begin("v0", "fetch")
    clocked.now = 2 * LEASE_S - 2
    assert clocked.table.sent("fetch")


def test_a_view_is_not_removed_while_it_is_fetched_however_long() -> None:
    clocked = Clocked()
    clocked.make("v0")
    clocked.table.begin("v0", "fetch")
    for number in range(1, 60):
        clocked.now = number * (LEASE_S - 1)
        assert clocked.table.sent("fetch")
    clocked.table.remove_if_idle("v0")
    with pytest.raises(RequestRefused, match="noRoom"):
        clocked.table.reserve("v1", BUDGET)
    assert (clocked.states(), clocked.dropped) == ({"v0": READY}, [])


def test_a_closed_table_starts_nothing_and_lets_running_fetches_end() -> None:
    clocked = Clocked()
    clocked.make("v0")
    clocked.table.begin("v0", "fetch")
    clocked.table.close()
    with pytest.raises(RequestRefused, match=DRAINING):
        clocked.table.reserve("v1", 8)
    assert [clocked.refusal("v0", "new"), clocked.refusal("v0", "fetch"), clocked.table.sent("fetch")] == [
        DRAINING, "", True]


def test_only_an_idle_view_made_for_others_is_removed_on_request() -> None:
    clocked = Clocked()
    clocked.table.hold(OWN, 8)
    clocked.make("v0", "v1")
    clocked.table.reserve("v2", BUDGET - SIZES["v0"] - SIZES["v1"])
    clocked.table.begin("v1", "fetch")
    for view in (OWN, "v0", "v1", "v2", "unknown"):
        clocked.table.remove_if_idle(view)
    assert (clocked.dropped, clocked.states(), clocked.table.state(OWN)) == (
        ["v0"], {"v1": READY, "v2": PENDING}, READY)


def test_views_are_dropped_in_order_of_their_last_use_until_the_new_one_fits() -> None:
    clocked = Clocked()
    clocked.table.hold(OWN, 10**9)
    clocked.make("v0", "v2")
    clocked.now = 5.0
    clocked.table.begin("v0", "fetch")
    clocked.table.end("fetch")
    assert clocked.table.reserve("v3", BUDGET - SIZES["v0"]) == "make"
    assert clocked.dropped == ["v2"]
    with pytest.raises(RequestRefused, match="noRoom"):
        clocked.table.reserve("v2", SIZES["v0"] + 1)
    assert clocked.dropped == ["v2"]
    assert clocked.table.reserve("v2", SIZES["v0"]) == "make"
    assert clocked.dropped == ["v2", "v0"]


def test_of_views_used_at_the_same_time_the_first_by_name_is_dropped() -> None:
    clocked = Clocked()
    clocked.make("v2", "v0")
    clocked.table.reserve("v1", SIZES["v1"])
    assert clocked.dropped == ["v0"]


def test_a_view_in_use_elsewhere_makes_no_room_and_another_is_dropped_instead() -> None:
    clocked, dropped = Clocked(), list[str | None]()
    clocked.table = ViewTable(lambda: clocked.now, BUDGET, lambda view: view != "v0" and not dropped.append(view))
    clocked.make("v0", "v2")
    assert clocked.table.reserve("v1", 9) == "make"
    assert dropped == ["v2"]
    assert (clocked.table.remove("v0"), clocked.table.state("v0")) == (0, READY)
    with pytest.raises(RequestRefused, match="noRoom"):
        clocked.table.reserve("v3", BUDGET + 1 - SIZES["v0"] - SIZES["v1"])
    clocked.table.commit("v1")
    assert (clocked.table.remove("v1"), clocked.states()) == (9, {"v0": READY})


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
    with pytest.raises(RequestRefused, match="noRoom"):
        clocked.table.reserve("v2", BUDGET + 1)
    assert clocked.dropped == []
    assert clocked.table.reserve("v2", BUDGET) == "make"
    assert clocked.dropped == ["v0", "v1"]


def test_any_number_of_first_requests_make_a_view_once() -> None:
    table = ViewTable(lambda: 0.0, BUDGET, lambda key: True)
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

    clocked.table = ViewTable(lambda: clocked.now, BUDGET, refuse)
    clocked.make("v0")
    for clocked.now in (IDLE_S, IDLE_S + 1, 2 * IDLE_S):
        clocked.table.sweep()
    assert tried == ["v0", "v0"]
    assert clocked.table.state("v0") == READY
