"""The decisions of a watcher: a pure function, driven through random histories of a source, a cluster and applies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.watch.step import (
    RESYNC_S,
    SLOWEST_S,
    SOONEST_S,
    ApplyEnded,
    Command,
    Event,
    Looked,
    MakePlan,
    Notify,
    PlanMade,
    Rest,
    StartApply,
    WatchState,
    step,
)

INTERVAL_S = 30.0
FAULTS = {"a": "", "b": "", "bad": "it is broken", "worse": "it is not signed"}
LOOKS = st.tuples(st.sampled_from([None, *FAULTS]), st.sampled_from([None, "one", "two"]))
PLANS = st.builds(PlanMade, st.just(0.0), st.integers(0, 3), st.sampled_from(["", "no room"]),
                  st.sampled_from(["", "maxNewGpus"]), st.none() | st.floats(1, 900), st.sampled_from(["", "one h100"]))
ENDS = st.builds(ApplyEnded, st.just(0.0), st.sampled_from(["fine", "partial", "locked", "error"]), st.just("ended"))


def looked(at: float, revision: str | None = "a", cluster: str | None = "one") -> Looked:
    return Looked(at, revision, "" if revision else "no route", FAULTS.get(revision or "", ""), None, cluster,
                  "" if cluster else "no answer")


@dataclass
class Loop:
    """Executes the decisions as the watch does, on a clock that only rests advance."""

    state: WatchState
    at: float = 0.0
    log: list[tuple[float, Event, list[Command]]] = field(default_factory=list)

    def feed(self, happened: Event) -> list[Command]:
        self.state, todo = step(self.state, happened)
        self.log.append((self.at, happened, todo))
        if isinstance(todo[-1], Rest):
            self.at += todo[-1].seconds
        return todo


@settings(max_examples=cases(2400), deadline=None)
@given(st.lists(LOOKS, max_size=30), st.data(), st.booleans())
def test_invariants_hold_through_any_history(
    looks: list[tuple[str | None, str | None]], data: st.DataObject, report_only: bool
) -> None:
    loop = Loop(WatchState(INTERVAL_S, report_only))
    sound: set[str] = set()
    for revision, cluster in looks:
        if revision and not FAULTS[revision]:
            sound.add(revision)
        first = todo = loop.feed(looked(loop.at, revision, cluster))
        assert not isinstance(todo[-1], MakePlan) or (cluster is not None and todo[-1].revision in sound)
        if isinstance(todo[-1], MakePlan):
            made = data.draw(PLANS)
            acts = (made.create > 0 or made.nodes != loop.state.requested) and not made.refused and not report_only
            todo = loop.feed(replace(made, at=loop.at))
            assert isinstance(todo[-1], StartApply if acts else Rest)
        if isinstance(todo[-1], StartApply):
            end = data.draw(ENDS)
            loop.at += data.draw(st.sampled_from([0.0, 20.0, 500.0]))
            todo = loop.feed(ApplyEnded(loop.at, end.outcome, end.message))
        assert isinstance(todo[-1], Rest)
        assert SOONEST_S <= todo[-1].seconds <= SLOWEST_S
        due = loop.at >= loop.state.replan_at
        assert todo is not first or due or todo[-1].seconds > INTERVAL_S - 0.01, "no busy loop"
        assert loop.state.good in {*sound, None}
        assert loop.state.behind_at is None or loop.state.behind_at <= loop.at
        assert loop.state.behind_at is not None or loop.state.good
    for _, _, todo in loop.log:
        assert all(isinstance(do, Notify) for do in todo[:-1])
    _assert_nothing_is_notified_twice(loop)


def _assert_nothing_is_notified_twice(loop: Loop) -> None:
    last: dict[str, str] = {}
    for _, _, todo in loop.log:
        for do in todo:
            if isinstance(do, Notify) and do.about not in ("applied", "good"):
                assert last.get(do.about, "") != do.text, f"notified twice: {do}"
                last[do.about] = do.text


def run_round(
    loop: Loop, revision: str | None = "a", cluster: str | None = "one", create: int = 0, **plan: str
) -> None:
    """One look and, if the watcher decides so, a plan and a successful apply."""
    todo = loop.feed(looked(loop.at, revision, cluster))
    if isinstance(todo[-1], MakePlan):
        todo = loop.feed(PlanMade(loop.at, create, **plan))
    if isinstance(todo[-1], StartApply):
        loop.feed(ApplyEnded(loop.at, "fine", "ended"))


def plan_times(loop: Loop) -> list[float]:
    return [at for at, _, todo in loop.log if isinstance(todo[-1], MakePlan)]


def test_an_unchanged_state_is_planned_again_only_after_the_resync_time() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    while loop.at < 3600:
        run_round(loop)
    assert plan_times(loop) == [round_ * RESYNC_S for round_ in range(6)]


def test_a_change_of_revision_or_cluster_is_planned_at_the_next_look() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    for revision, cluster in [("a", "one"), ("a", "two"), ("b", "two"), ("b", "two")]:
        run_round(loop, revision, cluster)
    assert plan_times(loop) == [0, 30, 60]


def test_the_last_good_revision_stays_in_force() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    run_round(loop, "a")
    todo = loop.feed(looked(loop.at, "bad", "two"))
    assert todo == [Notify("revision", "bad: it is broken"), MakePlan("a")]
    assert (loop.state.seen, loop.state.good) == ("bad", "a")


def test_repeated_failures_are_retried_with_growing_pauses() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    while loop.at < 3600:
        if isinstance(loop.feed(looked(loop.at))[-1], MakePlan):
            loop.feed(PlanMade(loop.at, 1))
            loop.feed(ApplyEnded(loop.at, "partial", "0 of 1"))
    tries = plan_times(loop)
    rests = [later - earlier for earlier, later in pairwise(tries)]
    assert rests == sorted(rests)
    assert (rests[0], rests[-1]) == (60, 300)


def test_an_unreachable_cluster_is_read_with_growing_pauses_until_it_is_back() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    rests = [loop.feed(looked(loop.at, "a", None))[-1] for _ in range(6)]
    assert rests == [Rest(seconds) for seconds in (60, 120, 240, 300, 300, 300)]
    assert loop.feed(looked(loop.at))[-1] == MakePlan("a")
    assert loop.state.cluster_failures == 0


def test_a_held_lock_is_tried_again_at_the_next_look_and_reported_once() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    notifications = []
    for _ in range(3):
        assert isinstance(loop.feed(looked(loop.at))[-1], MakePlan)
        loop.feed(PlanMade(loop.at, 1))
        notifications += loop.feed(ApplyEnded(loop.at, "locked", "held"))[:-1]
    assert notifications == [Notify("locked", "held")]
    assert plan_times(loop) == [0, 30, 60]


def test_a_held_lock_is_tried_again_at_the_next_look_also_after_an_earlier_plan() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    run_round(loop)
    assert loop.state.replan_at == RESYNC_S
    assert isinstance(loop.feed(looked(loop.at, cluster="two"))[-1], MakePlan)
    loop.feed(PlanMade(loop.at, 1))
    loop.feed(ApplyEnded(loop.at, "locked", "held"))
    assert loop.feed(looked(loop.at, cluster="two"))[-1] == MakePlan("a")


def test_failures_of_an_earlier_revision_do_not_delay_a_new_one() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    for revision, cluster in [("a", "one"), ("a", "two"), ("a", "three"), ("b", "three")]:
        loop.feed(looked(loop.at, revision, cluster))
        loop.feed(PlanMade(loop.at, 1))
        ended_at = loop.at
        loop.feed(ApplyEnded(ended_at, "partial", "0 of 1"))
    assert (loop.state.failures, loop.state.replan_at) == (1, ended_at + 2 * INTERVAL_S)


def test_a_revision_counts_as_applied_only_once_nothing_of_it_is_missing() -> None:
    loop, applied = Loop(WatchState(INTERVAL_S, report_only=True)), []
    for cluster, missing in (("one", 2), ("two", 0)):
        loop.feed(looked(loop.at, cluster=cluster))
        loop.feed(PlanMade(loop.at, missing))
        applied.append(loop.state.applied)
    assert applied == [None, "a"]


def test_a_plan_refused_by_policy_is_reported_once_per_revision() -> None:
    loop, notifications = Loop(WatchState(INTERVAL_S)), []
    for revision, cluster in [("a", "one"), ("a", "two"), ("b", "two")]:
        loop.feed(looked(loop.at, revision, cluster))
        notifications += [do for do in loop.feed(PlanMade(loop.at, 9, refused="too much")) if isinstance(do, Notify)]
    assert notifications == [Notify("policy", "a: too much"), Notify("policy", "b: too much")]


def test_a_plan_may_set_the_time_of_the_next_one() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    loop.feed(looked(0))
    loop.feed(PlanMade(0, 0, "it cools", replan_s=45))
    while loop.at < 100:
        run_round(loop)
    assert plan_times(loop) == [0, 45]


def test_the_interval_between_looks_includes_plan_and_apply() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    loop.feed(looked(0))
    loop.feed(PlanMade(2, 1))
    assert loop.feed(ApplyEnded(12, "fine", "1 of 1"))[-1] == Rest(INTERVAL_S - 12)
    loop.feed(looked(30, "b"))
    loop.feed(PlanMade(32, 1))
    assert loop.feed(ApplyEnded(90, "fine", "1 of 1"))[-1] == Rest(SOONEST_S)
    assert loop.feed(looked(91, "b", "two"))[-1] == MakePlan("b")
    assert loop.feed(PlanMade(93, 0))[-1] == Rest(INTERVAL_S - 2)


def test_an_unreachable_source_keeps_the_fault_of_the_unused_revision() -> None:
    loop, notifications = Loop(WatchState(INTERVAL_S)), []
    for revision in ("a", "bad", None, "bad", "a"):
        todo = loop.feed(looked(loop.at, revision))
        notifications += [do for do in todo if isinstance(do, Notify) and do.about == "revision"]
    assert notifications == [Notify("revision", "bad: it is broken"), Notify("revision", "")]


def test_an_error_condition_ends_when_a_plan_finds_nothing_to_create() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    loop.feed(looked(0))
    loop.feed(ApplyEnded(0, "error", "the cluster went away"))
    assert loop.state.conditions == {"error": "the cluster went away"}
    loop.feed(PlanMade(60, 0))
    assert not loop.state.conditions


def test_a_plan_refused_by_policy_is_not_in_sync() -> None:
    loop = Loop(WatchState(INTERVAL_S, report_only=True))
    loop.feed(looked(0))
    loop.feed(PlanMade(0, 3))
    assert loop.feed(PlanMade(30, 3, refused="too much"))[:-1] == [Notify("policy", "a: too much")]


def test_behind_at_is_kept_until_nothing_is_missing() -> None:
    loop, since = Loop(WatchState(INTERVAL_S)), list[float | None]()

    def feed_at(at: float, happened: Event) -> None:
        loop.feed(replace(happened, at=at))
        since.append(loop.state.behind_at)

    feed_at(1, looked(1, None))
    feed_at(2, looked(2))
    feed_at(3, PlanMade(3, 2))
    feed_at(4, ApplyEnded(4, "partial", "1 of 2"))
    assert since == [1, 1, 1, 1], "since the first look"
    feed_at(5, ApplyEnded(5, "fine", "2 of 2"))
    feed_at(6, looked(6, "b"))
    feed_at(7, PlanMade(7, 0))
    assert since[4:] == [None, 6, None], "since a new revision, until nothing is missing"
    for number, end in enumerate(("locked", "error")):
        feed_at(8, looked(8, "b", f"{end}"))
        feed_at(9 + number, PlanMade(9, 1))
        feed_at(20, ApplyEnded(20, end, "held"))  # type: ignore[arg-type]
    assert since[7:] == [None, 9, 9, 9, 9, 9], "a dead replica counts as missing while it cannot be replaced"
    feed_at(30, PlanMade(30, 0))
    feed_at(31, PlanMade(31, 0, refused="too much"))
    assert since[13:] == [None, 31]


def test_nodes_are_requested_once_and_again_when_the_needed_nodes_change() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    for nodes, outcome in (("two", "error"), ("two", "fine"), ("two", None), ("one", "fine"), ("", "fine"), ("", None)):
        loop.feed(looked(loop.at))
        loop.state = replace(loop.state, planned_for=None)
        [*_, last] = loop.feed(PlanMade(loop.at, nodes=nodes))
        assert isinstance(last, StartApply if outcome else Rest)
        if outcome:
            loop.feed(ApplyEnded(loop.at, outcome, "ended"))
    watching_only = Loop(WatchState(INTERVAL_S, report_only=True))
    watching_only.feed(looked(0))
    assert isinstance(watching_only.feed(PlanMade(0, nodes="two"))[-1], Rest)


def test_a_new_good_revision_is_reported_in_short_and_a_silent_source_changes_nothing() -> None:
    loop, revision = Loop(WatchState(INTERVAL_S)), "0123456789abcdef"
    assert loop.feed(looked(0, revision))[:-1] == [Notify("good", "0123456789")]
    assert loop.feed(looked(30, None, "two"))[:-1] == [Notify("source", "no route")]
    assert (loop.state.seen, loop.state.good) == (revision, revision)
    assert loop.feed(looked(60, revision, "two"))[:-1] == [Notify("source", "")]


def test_a_remembered_revision_is_in_force_while_the_source_is_silent_or_its_revision_is_bad() -> None:
    for revision in (None, "bad"):
        loop = Loop(WatchState(INTERVAL_S))
        assert loop.feed(replace(looked(0, revision), remembered="a"))[-1] == MakePlan("a")
        assert (loop.state.seen, loop.state.good) == (revision, "a")


def test_no_pause_is_shorter_than_the_interval_or_longer_than_both_it_and_the_longest_pause() -> None:
    for interval_s, pause_s in ((INTERVAL_S, SLOWEST_S), (2 * SLOWEST_S, 2 * SLOWEST_S)):
        for failures in (10, 5_000):
            loop = Loop(WatchState(interval_s, cluster_failures=failures))
            assert loop.feed(looked(0, cluster=None))[-1] == Rest(pause_s)


def test_a_watch_that_only_reports_says_how_many_are_wanted_until_none_is() -> None:
    loop, notifications = Loop(WatchState(INTERVAL_S, report_only=True)), []
    loop.feed(looked(0))
    for at, missing in ((0, 0), (30, 3), (60, 3), (90, 0)):
        [*notices, last] = loop.feed(PlanMade(at, missing))
        notifications += notices
        assert isinstance(last, Rest)
    assert notifications == [Notify("wanted", "3"), Notify("wanted", "")]


def test_an_apply_is_reported_and_its_revision_counts_as_applied() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    loop.feed(looked(0))
    loop.feed(PlanMade(0, 2))
    assert loop.feed(ApplyEnded(5, "partial", "1 of 2"))[:-1] == [Notify("applied", "a: 1 of 2")]
    assert (loop.state.applied, loop.state.failures, loop.state.replan_at) == ("a", 1, 5 + 2 * INTERVAL_S)
    assert loop.feed(ApplyEnded(9, "fine", "2 of 2"))[:-1] == [Notify("applied", "a: 2 of 2")]
    assert (loop.state.failures, loop.state.replan_at) == (0, 9 + INTERVAL_S)


def test_a_retry_that_ends_alike_is_no_news_even_if_its_ports_differ() -> None:
    loop, news = Loop(WatchState(INTERVAL_S)), list[str]()
    for at, port, gist in ((0, 1, "m failed"), (100, 2, "m failed"), (200, 3, "m ready"), (300, 4, "m failed")):
        loop.feed(looked(at))
        loop.feed(PlanMade(at, 1))
        news += [do.text for do in loop.feed(ApplyEnded(at, "partial", f"port {port}", gist)) if isinstance(do, Notify)]
    assert news == ["a: port 1", "a: port 3", "a: port 4"]


def test_models_that_keep_their_former_spec_are_news_once_with_the_command_that_replaces_them() -> None:
    loop, news = Loop(WatchState(INTERVAL_S)), list[str]()
    for number, outdated in enumerate((("m",), ("m",), ("m", "n"), ("n",), (), ("m",))):
        loop.feed(looked(at := number * RESYNC_S))
        todo = loop.feed(PlanMade(at, 0, outdated=outdated, rollout="fleetctl rollout -f x"))
        news += [do.text for do in todo if isinstance(do, Notify)]
    assert [text.partition(" keep ")[0] for text in news] == [
        f"a: running replicas of {key}" for key in ("m", "n", "m")]
    assert news[0].endswith(" keep their former spec; `fleetctl rollout -f x` replaces them")


def test_failures_before_a_plan_with_nothing_to_do_do_not_delay_what_comes_later() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    loop.feed(looked(0))
    for at in (10, 20):
        loop.feed(ApplyEnded(at, "error", "no answer"))
    loop.feed(PlanMade(30, 0))
    loop.feed(ApplyEnded(40, "error", "no answer"))
    assert (loop.state.failures, loop.state.replan_at) == (1, 40 + 2 * INTERVAL_S)


def test_no_plan_delays_the_next_one_beyond_the_resync_time() -> None:
    loop = Loop(WatchState(INTERVAL_S))
    loop.feed(looked(0))
    loop.feed(PlanMade(0, 0, "it cools", replan_s=10 * RESYNC_S))
    assert loop.state.replan_at == RESYNC_S


def test_a_watch_with_a_variant_that_keeps_failing_rests_between_looks_and_never_waits_for_ever() -> None:
    """Others replace it in the same apply, which ends fine; with no room for others, the apply ends partial."""
    for end, text in (("fine", "3 ready: 2 as another variant"), ("partial", "2 failed: ENGINE_EXITED")):
        loop = Loop(WatchState(INTERVAL_S))
        for n in range(20):
            todo = loop.feed(looked(loop.at, "a", f"cluster {n}"))
            assert isinstance(todo[-1], MakePlan)
            assert isinstance(loop.feed(PlanMade(loop.at, create=2))[-1], StartApply)
            [rest] = loop.feed(ApplyEnded(loop.at, end, text))[-1:]
            assert isinstance(rest, Rest)
            assert SOONEST_S <= rest.seconds <= SLOWEST_S
