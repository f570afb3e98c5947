"""Update in place, by the run: one replica of a model at a time, each with a note."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.agent import reload
from fleetctl.agent.cluster import ActorRecord
from fleetctl.agent.lock import LockBusy
from fleetctl.agent.messages import Action, HttpCall, Lifecycle, Member, PlannedReload, PlannedWeights, WeightSource
from fleetctl.agent.reload import Reloads
from fleetctl.agent.run import step_all
from fleetctl.agent.run_messages import ApplyRequest, Holder, Outcome, Plan, PlanFleet

WEIGHTS = PlannedWeights("b", ())


class Actors:
    """The actors that an agent queries: `states` = their answers, one per query. Records queries and notes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **states: list[dict[str, Any]]) -> None:
        self.states, self.now, self.lock_holder = states, 50.0, ""
        self.locks: list[tuple[object, ...]] = []
        self.polled: list[float] = []
        self.silent = self.is_old = False
        self.ids: dict[str, str] = {}
        """Actor ids by number, of those that are not the planned ones."""
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.noted: list[dict[str, Any]] = []
        self.taken = self.released = 0
        monkeypatch.setattr(reload, "ray", SimpleNamespace(
            get_actor=self.actor, wait=self.wait, get=self.get,
            exceptions=SimpleNamespace(RayActorError=ZeroDivisionError, OutOfMemoryError=MemoryError)))
        self.notes_fail_after = 99
        self.record = ActorRecord("RESTARTING", placed=True, report="", death="", restarts=1)
        self.records: dict[str, dict[str, Any]] = {}
        monkeypatch.setattr(reload, "utc_now", lambda: "now")
        self.paused: dict[str, str] = {}
        monkeypatch.setattr(reload, "why_paused", lambda fleet, namespace, model: self.paused.get(
            f"{namespace}/{fleet}/{model}", ""))
        monkeypatch.setattr(reload, "add", self.add)
        monkeypatch.setattr(reload, "remove", self.remove)
        monkeypatch.setattr(reload.cluster, "actor_record", lambda _: self.record)
        monkeypatch.setattr(reload.cluster, "is_at", lambda node_id, ip: (node_id, ip) == ("n", "10.0.0.1"))

    def wait(self, refs: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        assert timeout == 0, "a run never waits in a call"
        self.polled.append(self.now)
        return ([], refs) if self.silent else (refs, [])

    def get(self, state: dict[str, Any]) -> dict[str, Any]:
        assert not self.silent
        if state is GONE:
            raise ZeroDivisionError
        if state is OUT_OF_MEMORY:
            raise MemoryError
        return state

    def add(self, kind: str, subject: str, payload: dict[str, Any], fleet: str) -> bool:
        assert (kind, subject, fleet) == ("reload", f"{payload['actorId']}/j", "lab")
        if len(self.noted) >= self.notes_fail_after:
            return False
        self.records[subject] = payload
        self.noted.append(list(self.records.values()))
        return True

    def remove(self, kind: str, subject: str, fleet: str) -> bool:
        del self.records[subject]
        self.noted.append(list(self.records.values()))
        return True

    def take_lock(self, name: str, *more: object) -> Any:
        assert name == "lab/reload"
        self.locks.append(more)
        if self.lock_holder:
            raise LockBusy(name, Holder(self.lock_holder))
        self.taken += 1
        return SimpleNamespace(release=lambda: setattr(self, "released", self.released + 1))

    def actor(self, name: str) -> Any:
        number = name.rpartition(":")[2]
        if f"m{number}" not in self.states:
            raise ValueError(name)
        left = self.states[f"m{number}"]
        in_steps = SimpleNamespace(remote=lambda request: self.asked.append((f"{number} in steps", request)))
        return SimpleNamespace(
            **({} if self.is_old else {"reload_in_steps": in_steps}),
            _actor_id=SimpleNamespace(hex=lambda: self.ids.get(number, f"actor{number}")),
            reload=SimpleNamespace(remote=lambda request: self.asked.append((number, request))),
            reloading=SimpleNamespace(remote=lambda: left.pop(0) if len(left) > 1 else left[0]))

    def begin(
        self, *numbers: int, wait: bool = True, other: int | None = None,
        weights: PlannedWeights | None = WEIGHTS, requests: tuple[HttpCall, ...] = (HttpCall("POST", "/load"),)
    ) -> Reloads:
        """Begin reloads of these replicas of model m, and of an `other` one."""
        named = [*(("m", number) for number in numbers), *([("other", other)] if other is not None else [])]
        member = Member("g", 0, "Standalone", 0, "n", "a", weights=weights)
        rows = [Action(f"{model}/{number}", "reload", model, "new", Lifecycle(60.0), [member], number,
                       reload=PlannedReload(f"actor{number}", "old", requests)) for model, number in named]
        request = ApplyRequest(Plan("p", PlanFleet("lab", "ns"), actions=rows), {}, {}, "j", Holder("j"), wait=wait)
        run: Any = SimpleNamespace(
            take=self.take_lock, clock=lambda: self.now, events=SimpleNamespace(emit=self.emit))
        return Reloads(request, run)

    def emit(self, kind: str, message: str, **fields: Any) -> None:
        self.events.append((kind, message, fields))

    def run(self, found: Reloads, steps: int = 9) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for _ in range(steps):
            ended = {task.key: task.outcome for task in step_all(found.tasks)}
            results.update({key: (outcome.outcome, outcome.code) for key, outcome in ended.items() if outcome})
            self.now += 1
        return results


def unfinished(found: Reloads) -> list[str]:
    """The reloads without an outcome."""
    return [task.key for task in found.tasks if task.outcome is None]


def may_end(found: Reloads) -> bool:
    """Whether a run that does not wait may end."""
    return all(task.outcome or task.may_be_left for task in found.tasks)


def at_end(found: Reloads, interrupted: bool) -> dict[str, Any]:
    """What the unfinished reloads say at the end of the run."""
    ends = {task.key: task.at_end(interrupted) for task in found.tasks if task.outcome is None}
    return {key: (end.outcome, end.code) for key, end in ends.items()}


GONE: dict[str, Any] = {"state": "no answer"}
OUT_OF_MEMORY: dict[str, Any] = {"state": "ended by Ray"}
RUNNING = {"state": "reloading", "specHash": "new"}
DONE = {"state": "done", "specHash": "new", "at": "2026-03-04T12:00:00Z", "restarts": 1, "places": [
    {"nodeId": "n", "ip": "10.0.0.1", "port": 8000, "weights": {
        "artifact": "b", "view": None, "whole": True, "port": 7, "bytes": 1, "fetched": {
            "source": "origin", "from": "/m", "bytes": 1, "seconds": 1.0, "reused": 0, "left": []}}}]}
FAILED = {"state": "failed", "specHash": "new", "code": "RELOAD_FAILED", "reason": "HTTP 500"}


def test_replicas_of_a_model_reload_one_at_a_time_each_with_a_note_and_as_a_source_for_the_next(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    actors = Actors(monkeypatch, m0=[RUNNING, RUNNING, DONE], m1=[RUNNING, DONE])
    found = actors.begin(0, 1)
    assert actors.run(found, 2) == {}
    assert [number for number, _ in actors.asked] == ["0"]
    assert actors.run(found) == {"m/0": ("ready", "RELOADED"), "m/1": ("ready", "RELOADED")}
    assert [number for number, _ in actors.asked] == ["0", "1"]
    assert actors.asked[1][1]["members"][0]["weights"]["sources"] == [
        {"replica": "m/0", "address": "10.0.0.1:7", "view": None, "whole": True}]
    assert [(one["actorId"], one["restarts"], one["weights"][0]["port"]) for one in actors.noted[-1]] == [
        ("actor0", 1, 7), ("actor1", 1, 7)]
    assert "fetched" not in actors.noted[-1][0]["weights"][0]
    assert (unfinished(found), actors.released) == ([], 1)


def test_a_model_paused_meanwhile_reloads_no_further_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[RUNNING, RUNNING, DONE], m1=[DONE], m2=[RUNNING, RUNNING, DONE])
    found = actors.begin(0, 1, other=2)
    actors.run(found, 2)
    actors.paused["ns/lab/m"] = "paused by ana"
    assert actors.run(found) == {
        "m/0": ("ready", "RELOADED"), "m/1": ("blocked", "PAUSED"), "other/2": ("ready", "RELOADED")}
    assert [number for number, _ in actors.asked] == ["0", "2"]


def test_models_reload_at_the_same_time_under_one_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[RUNNING, DONE], m1=[DONE], m2=[RUNNING, FAILED])
    assert actors.run(found := actors.begin(0, 1, other=2), 1) == {}
    assert [number for number, _ in actors.asked] == ["0", "2"]
    assert actors.run(found) == {
        "m/0": ("ready", "RELOADED"), "m/1": ("ready", "RELOADED"), "other/2": ("failed", "RELOAD_FAILED")}
    assert (actors.taken, actors.released) == (1, 1)


def test_an_actor_that_serves_nothing_or_names_another_address_than_its_nodes_is_no_source(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    place: dict[str, Any] = DONE["places"][0]
    unserved = {**place, "weights": {**place["weights"], "port": None}}
    for wrong in ({**place, "ip": "192.0.2.66"}, unserved, {**place, "weights": None}):
        actors = Actors(monkeypatch, m0=[{**DONE, "places": [wrong]}], m1=[DONE])
        assert actors.run(actors.begin(0, 1)) == {"m/0": ("ready", "RELOADED"), "m/1": ("ready", "RELOADED")}
        assert actors.asked[1][1]["members"][0]["weights"]["sources"] == []


def test_a_failure_is_noted_and_the_other_replicas_of_its_model_do_not_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[FAILED], m1=[DONE], m2=[DONE])
    assert actors.run(found := actors.begin(0, 1, 2)) == {
        "m/0": ("failed", "RELOAD_FAILED"), "m/1": ("skipped", "NOT_BEGUN"), "m/2": ("skipped", "NOT_BEGUN")}
    assert [number for number, _ in actors.asked] == ["0"]
    assert [task.outcome.message.partition(" before")[0] for task in found.tasks[1:] if task.outcome] == [
        "the reload of m/0"] * 2
    [[asked], [noted]] = actors.noted
    assert (asked["asked"], asked["restarts"], asked.get("code")) == (True, 1, None)
    assert (noted["code"], noted["message"], noted["nodeIds"]) == ("RELOAD_FAILED", "HTTP 500", ["n"])


@pytest.mark.parametrize(("runs", "asked"), [("old", False), (None, True)])
def test_after_a_failure_the_spec_is_not_known_if_its_engines_were_asked(
    monkeypatch: pytest.MonkeyPatch, runs: str | None, asked: bool
) -> None:
    actors = Actors(monkeypatch, m0=[{**FAILED, "runs": runs}])
    found = actors.begin(0)
    actors.run(found)
    assert actors.noted[-1][0]["asked"] is asked
    assert found.tasks[0].outcome is not None
    assert found.tasks[0].outcome.message.endswith("is not known" if asked else "keeps running its former spec")


def test_an_actor_that_was_restarted_during_the_reload_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[RUNNING, {}, RUNNING])
    assert actors.run(actors.begin(0)) == {"m/0": ("failed", "RELOAD_ENDED")}
    assert len(actors.asked) == 1
    assert (actors.noted[-1][0]["code"], actors.noted[-1][0]["asked"]) == ("RELOAD_ENDED", False)


@pytest.mark.parametrize("error", [GONE, OUT_OF_MEMORY])
@pytest.mark.parametrize(("state", "restarts", "outcome"), [
    ("DEAD", 1, {"m/0": ("skipped", "NOT_FOUND")}),
    ("RESTARTING", 1, {"m/0": ("failed", "RELOAD_ENDED")}),
    ("ALIVE", 2, {"m/0": ("failed", "RELOAD_ENDED")}),
    ("ALIVE", 1, {"m/0": ("ready", "RELOADED")}),  # one query without an answer
])
def test_an_actor_that_does_not_respond_has_ended_or_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, state: str, restarts: int, outcome: dict[str, Any], error: dict[str, Any]
) -> None:
    actors = Actors(monkeypatch, m0=[error, DONE])
    found = actors.begin(0)
    assert actors.run(found, 1) == {}
    assert unfinished(found) == ["m/0"]
    actors.record = actors.record._replace(state=state, restarts=restarts)
    assert actors.run(found) == outcome
    if state == "DEAD":
        assert actors.noted[-1] == []


def test_without_a_note_no_reload_starts_and_without_the_last_note_none_is_ready(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    actors = Actors(monkeypatch, m0=[RUNNING, DONE])
    actors.notes_fail_after = 0
    assert actors.run(actors.begin(0)) == {"m/0": ("failed", "RELOAD_FAILED")}
    assert actors.asked == []
    actors.notes_fail_after = 1
    assert actors.run(actors.begin(0)) == {"m/0": ("starting", "STILL_STARTING")}


def test_a_replica_that_has_reloaded_since_the_plan_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[{"state": "refused", "specHash": "new"}])
    assert actors.run(actors.begin(0)) == {"m/0": ("skipped", "SPEC_MOVED")}
    assert actors.noted[-1] == []


def test_a_reload_waits_for_a_running_reload_to_another_spec(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"state": "reloading", "specHash": "older"}
    actors = Actors(monkeypatch, m0=[other, other, {**FAILED, "specHash": "older"}, RUNNING, DONE])
    assert actors.run(actors.begin(0)) == {"m/0": ("ready", "RELOADED")}
    assert len(actors.asked) == 2


def test_a_replica_that_is_gone_locked_or_unreachable_is_not_reloaded(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    actors = Actors(monkeypatch, m1=[RUNNING], m2=[RUNNING])
    assert actors.run(actors.begin(0)) == {"m/0": ("skipped", "NOT_FOUND")}
    found = actors.begin(1, 2)
    assert actors.run(found, 2) == {}
    assert list(at_end(found, interrupted=True).values()) == [("starting", "INTERRUPTED"), ("skipped", "INTERRUPTED")]
    actors.lock_holder = "other-job"
    assert actors.run(actors.begin(1)) == {"m/1": ("skipped", "LOCK_HELD")}


@pytest.mark.parametrize(("states", "left"), [
    ([RUNNING], {"m/0": ("starting", None), "m/1": ("skipped", "WAITS_TURN")}),
    ([DONE], {"m/1": ("skipped", "WAITS_TURN")}),
])
def test_without_waiting_one_replica_of_a_model_reloads_and_the_next_plan_continues(
    monkeypatch: pytest.MonkeyPatch, states: list[dict[str, Any]], left: dict[str, Any]
) -> None:
    actors = Actors(monkeypatch, m0=states, m1=[DONE])
    found = actors.begin(0, 1, wait=False)
    actors.run(found, 1)
    assert not may_end(found)  # the actor has not responded, so it is unknown whether its engine got the request
    actors.run(found, 2)
    assert may_end(found)
    assert [number for number, _ in actors.asked] == ["0"]
    assert at_end(found, interrupted=False) == left


def outcome_of(found: Reloads) -> Outcome:
    outcome = found.tasks[0].outcome
    assert outcome is not None
    return outcome


def test_an_outcome_has_the_seconds_since_its_reload_began_and_the_address_of_the_replica(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    actors = Actors(monkeypatch, m0=[RUNNING, RUNNING, DONE])
    actors.run(found := actors.begin(0))
    assert (outcome_of(found).seconds, outcome_of(found).address) == (3.0, "10.0.0.1:8000")
    assert actors.events == [("replicaReloading", "m/0: reloading its weights on a; it keeps serving",
                              {"model": "m", "replicaId": 0})]


def test_another_run_that_reloads_is_asked_for_the_lock_once_and_without_waiting(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    actors = Actors(monkeypatch, m0=[DONE], m1=[DONE])
    actors.lock_holder = "other-job"
    assert actors.run(found := actors.begin(0, 1)) == {"m/0": ("skipped", "LOCK_HELD"), "m/1": ("skipped", "LOCK_HELD")}
    assert (actors.locks, actors.events, outcome_of(found).seconds) == ([(Holder("j"), 0.0)], [], 0.0)


def test_a_record_names_its_fleet_and_the_times_of_the_request_and_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[{**DONE, "restarts": 3}])
    actors.run(actors.begin(0))
    [[asked], [done]] = actors.noted
    assert (asked["at"], asked["restarts"], asked["fleet"], asked["namespace"]) == ("now", 1, "lab", "ns")
    assert (done["at"], done["restarts"], done["fleet"], done["namespace"]) == (DONE["at"], 3, "lab", "ns")


def test_the_latest_reloaded_replicas_are_sources_before_those_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, **{f"m{number}": [DONE] for number in range(5)})
    planned = WeightSource("m/9", "10.0.0.9:7", None, True)
    actors.run(actors.begin(*range(5), weights=PlannedWeights("b", (), [planned])), 20)
    sources = [[one["replica"] for one in asked["members"][0]["weights"]["sources"]] for _, asked in actors.asked]
    assert sources == [["m/9"], ["m/0", "m/9"], ["m/0", "m/1", "m/9"], ["m/0", "m/1", "m/2", "m/9"],
                       ["m/1", "m/2", "m/3", "m/9"]]


def test_a_member_without_weights_is_asked_without_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[DONE])
    assert actors.run(actors.begin(0, weights=None)) == {"m/0": ("ready", "RELOADED")}


def test_an_error_of_the_agent_is_the_outcome_of_one_reload_and_its_spec_is_not_known(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise ConnectionError("no route\nto the host")

    actors = Actors(monkeypatch)
    monkeypatch.setattr(reload.ray, "get_actor", broken)
    actors.run(found := actors.begin(0), 1)
    assert (outcome_of(found).code, outcome_of(found).message.splitlines()[0]) == (
        "AGENT_ERROR", "ConnectionError: no route")
    [[noted]] = actors.noted
    assert (noted["code"], noted["message"], noted["asked"], noted["restarts"]) == (
        "AGENT_ERROR", "ConnectionError: no route", True, 0)


def test_after_a_failure_a_run_that_does_not_wait_says_why_the_next_one_does_not_begin(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    actors = Actors(monkeypatch, m0=[FAILED], m1=[DONE])
    assert actors.run(actors.begin(0, 1, wait=False)) == {
        "m/0": ("failed", "RELOAD_FAILED"), "m/1": ("skipped", "NOT_BEGUN")}


def test_another_actor_with_the_name_of_the_replica_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[DONE])
    actors.ids["0"] = "another"
    assert actors.run(actors.begin(0)) == {"m/0": ("skipped", "NOT_FOUND")}
    assert (actors.asked, actors.noted) == ([], [])


def test_a_reload_is_looked_at_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[RUNNING])
    found = actors.begin(0)
    for actors.now in (50.0, 50.25, 50.5, 50.75, 51.0):
        step_all(found.tasks)
    assert actors.polled == [50.5, 51.0]


@pytest.mark.parametrize("silent", [False, True])
def test_a_reload_that_takes_longer_than_a_start_continues_by_itself(
    monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    actors = Actors(monkeypatch, m0=[RUNNING])
    actors.silent = silent
    assert actors.run(found := actors.begin(0), 300) == {"m/0": ("starting", "STILL_STARTING")}
    assert outcome_of(found).seconds == 60 + reload.MARGIN_S + 1
    assert len(actors.asked) == 1


def test_an_actor_that_never_answers_is_asked_for_its_state_for_as_long_as_a_start(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    actors = Actors(monkeypatch, m0=[GONE])
    actors.record = actors.record._replace(state="ALIVE")
    assert actors.run(found := actors.begin(0), 300) == {"m/0": ("failed", "RELOAD_ENDED")}
    assert (outcome_of(found).seconds, len(actors.asked)) == (60 + reload.MARGIN_S + 1, 1)


def test_a_long_reason_is_recorded_in_part_and_reported_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[{**FAILED, "reason": "x" * 1_000, "runs": "old"}])
    actors.run(found := actors.begin(0))
    assert actors.noted[-1][0]["message"] == "x" * reload.MAX_MESSAGE
    assert outcome_of(found).message.splitlines()[0] == "x" * 1_000


SEVERAL = (HttpCall("POST", "/pause"), HttpCall("POST", "/load"), HttpCall("POST", "/resume"))


def test_several_requests_are_sent_to_an_actor_that_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors(monkeypatch, m0=[DONE])
    assert actors.run(actors.begin(0, requests=SEVERAL)) == {"m/0": ("ready", "RELOADED")}
    [(number, request)] = actors.asked
    assert (number, [one["path"] for one in request["requests"]]) == ("0 in steps", ["/pause", "/load", "/resume"])


def test_an_actor_of_an_earlier_release_is_asked_for_one_request_and_never_for_the_first_of_several(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    actors = Actors(monkeypatch, m0=[DONE])
    actors.is_old = True
    assert actors.run(found := actors.begin(0, requests=SEVERAL)) == {"m/0": ("skipped", "NOT_BEGUN")}
    assert (actors.asked, actors.noted) == ([], [])
    assert "use fleetctl replace" in outcome_of(found).message
    assert actors.run(actors.begin(0)) == {"m/0": ("ready", "RELOADED")}
    assert [number for number, _ in actors.asked] == ["0"]
