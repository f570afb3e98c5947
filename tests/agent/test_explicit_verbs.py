"""Evict and restart without Ray: only named replicas are touched, and every result has its exit code and message."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from ray_keys import Keys

from fleetctl.agent import ending, evict, lock, records, reload
from fleetctl.agent import run as run_module
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.lock import LockBusy
from fleetctl.agent.report import Refused
from fleetctl.agent.run_messages import EventStream, ExplicitRequest, Holder, Outcome, Target
from fleetctl.agent.wire import parse

REQUEST = {"toolVersion": "1", "job": "j", "holder": {}, "fleet": "lab", "lockTimeout": 0}


class SimulatedCluster:
    """A cluster of actors. A killed actor is gone, or comes back with one more restart; `broken` actors stay dead."""

    def __init__(self) -> None:
        self.records = {f"ModelActor:org/m:{number}": ActorRecord("ALIVE", True, "{}", "", 0, 2) for number in range(4)}
        self.calls: list[str] = []
        self.keys = Keys()
        self.broken: set[str] = set()
        self.old: set[str] = set()
        self.busy: set[str] = set()
        """Names whose engines take their time to end."""
        self.grace = dict.fromkeys(self.records, 30.0)
        """The grace periods of the actors that tell them."""
        self.replaced: set[str] = set()
        """Names that another actor has taken since."""

    def get_actor(self, name: str) -> Any:
        if name not in self.records:
            raise ValueError
        actor_id = f"another {name}" if name in self.replaced else name
        handle = SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: actor_id), name=name)
        if name not in self.old:
            handle.leave = SimpleNamespace(
                remote=lambda *again: self.calls.append(f"leave {name}{' again' * sum(again)}") or f"left {name}")
        if name in self.grace:
            handle.grace_s = SimpleNamespace(remote=lambda: f"grace {name}")
        return handle

    def get(self, ref: str) -> float:
        return self.grace[ref.removeprefix("grace ")]

    def wait(self, refs: list[str], timeout: float) -> tuple[list[str], list[str]]:
        """All have left when they are asked, except those in `busy`."""
        assert timeout == 0, "a run never waits in a call"
        done = [ref for ref in refs if ref.removeprefix("left ") not in self.busy]
        return done, [ref for ref in refs if ref not in done]

    def kill(self, handle: Any, *, no_restart: bool) -> None:
        self.calls.append(f"{'end' if no_restart else 'restart'} {handle.name}")
        before = self.records.pop(handle.name)
        if handle.name in self.broken:
            self.records[handle.name] = before._replace(state="DEAD", death="it is broken")
        elif not no_restart:
            self.records[handle.name] = before._replace(
                restarts=before.restarts + 1, restarts_left=before.restarts_left - 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    cluster = SimulatedCluster()
    ray = SimpleNamespace(
        get_actor=cluster.get_actor, kill=cluster.kill, wait=cluster.wait, get=cluster.get,
        exceptions=SimpleNamespace(RayError=RuntimeError),
        get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: "01"))
    for module in (evict, run_module):
        monkeypatch.setattr(module, "ray", ray)
    monkeypatch.setattr(run_module, "POLL_S", 0.001)
    monkeypatch.setattr(evict.cluster, "actor_record", lambda actor_id: cluster.records.get(actor_id, GONE))
    monkeypatch.setattr(evict.cluster, "taken_names", lambda: set(cluster.records))
    monkeypatch.setattr(evict, "kept_failure", lambda _: None)
    cluster.keys.install(monkeypatch, lock, records, reload)
    monkeypatch.setattr(run_module, "take_lock", lambda *_: SimpleNamespace(
        release=lambda: cluster.calls.append("release")))
    return cluster


@pytest.fixture
def run(cluster: SimulatedCluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def running(verb: Callable[..., int], *ids: int, **more: Any) -> dict[str, Any]:
        replicas = [{"model": "org/m", "replicaId": number, "actorId": f"ModelActor:org/m:{number}",
                     "nodes": ["a"], "startupTimeout": 5} for number in ids]
        code = verb(parse(ExplicitRequest, {**REQUEST, "replicas": replicas, **more}), EventStream())
        events = list(map(json.loads, capsys.readouterr().out.splitlines()))
        last: dict[str, Any] = {**events[-1], "events": events[:-1]}
        assert (last["type"], last["exitCode"]) == ("runSummary", code)
        last["rows"] = [(row["replicaId"], row["outcome"], row.get("code")) for row in last["outcomes"]]
        return last

    return running


def test_evict_ends_the_named_replicas_engines_first(cluster: SimulatedCluster, run: Any) -> None:
    cluster.old.add("ModelActor:org/m:2")
    assert run(evict.run_evict, 0, 2)["rows"] == [(0, "gone", None), (2, "gone", None)]
    assert cluster.calls == ["leave ModelActor:org/m:0", "end ModelActor:org/m:0", "end ModelActor:org/m:2",
                             "release", "release"]
    assert set(cluster.records) == {"ModelActor:org/m:1", "ModelActor:org/m:3"}


@pytest.mark.parametrize("kept", ["reloaded", "failure"])
def test_the_kept_keys_of_an_actor_go_with_it_however_it_ended(cluster: SimulatedCluster, run: Any, kept: str) -> None:
    keys = {number: f"{kept}:ModelActor:org/m:{number}".encode() for number in (0, 1, 9)}  # 9 has ended by itself
    for key in keys.values():
        cluster.keys.put(key, b"{}", namespace=reload.KV_NAMESPACE)
    run(evict.run_evict, 0)
    assert cluster.keys.list(b"", namespace=reload.KV_NAMESPACE) == [keys[1]]


def test_a_starting_replica_is_ended_without_a_request_to_leave(cluster: SimulatedCluster, run: Any) -> None:
    cluster.records["ModelActor:org/m:0"] = ActorRecord("PENDING_CREATION", True, "", "")
    assert run(evict.run_evict, 0)["exitCode"] == 0
    assert cluster.calls[0] == "end ModelActor:org/m:0"


@pytest.mark.parametrize(("keep", "ends"), [({"org/m": 1}, [0, 1]), ({"org/m": 2}, [0]), ({"org/m": 3}, []),
                                            ({"other": 3}, [0, 1])])
def test_enough_replicas_stay_ready_even_if_others_ended_since_the_client_read_the_cluster(
        cluster: SimulatedCluster, run: Any, keep: dict[str, int], ends: list[int]) -> None:
    """Three are ready. One is being restarted and serves nothing, so it may be ended in any case."""
    cluster.records["ModelActor:org/m:3"] = ActorRecord("RESTARTING", True, "{}", "", 1, 1)
    last = run(evict.run_evict, 3, 0, 1, keep=keep)
    assert [number for number, outcome, _ in last["rows"] if outcome == "gone"] == [3, *ends]
    assert {code for _, outcome, code in last["rows"] if outcome == "skipped"} <= {"TOO_FEW_READY"}
    assert last["exitCode"] == (0 if len(ends) == 2 else 3)
    assert not any(f"m:{number}" in call for number in {0, 1} - set(ends) for call in cluster.calls)


def test_enough_replicas_of_each_variant_stay_ready(cluster: SimulatedCluster, run: Any) -> None:
    def kept(least: int, *numbers: int) -> dict[str, Any]:
        actors = [f"ModelActor:org/m:{number}" for number in numbers]
        return {"keep": {"org/m": 1}, "keepOfEach": [
            {"model": "org/m", "variant": "a100", "least": least, "actors": actors},
            {"model": "other", "variant": "a100", "least": 9, "actors": actors}]}

    last = run(evict.run_evict, 0, 1, **kept(1, 0, 1))
    assert last["rows"] == [(0, "gone", None), (1, "skipped", "TOO_FEW_READY")]
    assert last["outcomes"][1]["message"] == (
        "without it 0 of variant a100 of org/m would be ready, and 1 must stay ready: it keeps running")
    assert run(evict.run_evict, 1, **kept(1, 1, 2))["rows"] == [(1, "gone", None)], "another one of it is ready"
    assert run(evict.run_evict, 2, **kept(1, 1, 2))["rows"] == [(2, "skipped", "TOO_FEW_READY")], "that one has ended"


def test_the_outcome_of_a_verb_names_the_variant(cluster: SimulatedCluster, run: Any) -> None:
    target = {"model": "org/m", "replicaId": 1, "actorId": "ModelActor:org/m:1", "nodes": ["a"], "startupTimeout": 5,
              "variant": "a100"}
    [row] = run(evict.run_evict, replicas=[target])["outcomes"]
    assert (row["replicaId"], row["outcome"], row["variant"]) == (1, "gone", "a100")


def test_a_missing_replica_is_not_found_and_the_others_are_evicted(cluster: SimulatedCluster, run: Any) -> None:
    last = run(evict.run_evict, 7, 1)
    assert (last["exitCode"], last["rows"]) == (3, [(7, "failed", "NOT_FOUND"), (1, "gone", None)])
    assert run(evict.run_restart, 7)["rows"] == [(7, "failed", "NOT_FOUND")]


@pytest.mark.parametrize("verb", [evict.run_evict, evict.run_restart])
def test_a_new_replica_under_the_same_name_is_left_alone(cluster: SimulatedCluster, run: Any, verb: Any) -> None:
    cluster.replaced.add("ModelActor:org/m:1")
    assert run(verb, 1)["rows"] == [(1, "failed", "NOT_FOUND")]
    assert cluster.calls[0] == "release"


def test_replicas_are_restarted_one_by_one_and_keep_their_ids(cluster: SimulatedCluster, run: Any) -> None:
    last = run(evict.run_restart, 0, 1)
    assert (last["exitCode"], last["rows"]) == (0, [(0, "ready", None), (1, "ready", None)])
    assert cluster.calls == [f"{what}ModelActor:org/m:{number}{how}" for number in (0, 1) for what, how in (
        ("leave ", " again"), ("restart ", ""))] + ["release"]
    assert len(cluster.records) == 4


def test_a_restart_ends_at_the_first_replica_that_does_not_come_back(cluster: SimulatedCluster, run: Any) -> None:
    cluster.broken.add("ModelActor:org/m:1")
    last = run(evict.run_restart, 0, 1, 2)
    assert (last["exitCode"], last["rows"]) == (3, [
        (0, "ready", None), (1, "failed", "REPLICA_DIED"), (2, "skipped", "NOT_BEGUN")])
    assert "restart ModelActor:org/m:2" not in cluster.calls


def test_an_interrupted_restart_skips_the_rest_and_does_not_wait(
        cluster: SimulatedCluster, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(handle: Any, *, no_restart: bool) -> None:
        cluster.kill(handle, no_restart=no_restart)
        cluster.records[handle.name] = cluster.records[handle.name]._replace(state="RESTARTING")
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(evict.ray, "kill", kill)
    last = run(evict.run_restart, 0, 1)
    assert last["interrupted"] is True
    assert last["rows"] == [(0, "starting", "INTERRUPTED"), (1, "skipped", "INTERRUPTED")]
    assert cluster.calls == ["leave ModelActor:org/m:0 again", "restart ModelActor:org/m:0", "release"]


def test_a_replica_without_a_restart_left_is_not_touched(cluster: SimulatedCluster, run: Any) -> None:
    cluster.records["ModelActor:org/m:0"] = ActorRecord("ALIVE", True, "{}", "", 2, 0)
    last = run(evict.run_restart, 0)
    assert (last["exitCode"], last["rows"]) == (3, [(0, "failed", "RESTARTS_USED")])
    assert cluster.calls == ["release"]


def test_the_command_for_a_replica_without_a_restart_left_is_quoted_for_the_shell(
    cluster: SimulatedCluster, run: Any
) -> None:
    name = "ModelActor:a;b:0"
    cluster.records[name] = ActorRecord("ALIVE", True, "{}", "", 2, 0)
    one = {"model": "a;b", "replicaId": 0, "actorId": name, "nodes": ["a"], "startupTimeout": 5}
    [outcome] = run(evict.run_restart, replicas=[one])["outcomes"]
    assert "`fleetctl evict 'a;b/0'`" in outcome["message"]


@pytest.mark.parametrize("verb", [evict.run_evict, evict.run_restart])
def test_a_busy_lock_is_exit_code_5_and_no_replica_is_touched(
        cluster: SimulatedCluster, run: Any, monkeypatch: pytest.MonkeyPatch, verb: Any) -> None:
    def busy(name: str, *_: Any) -> None:
        raise LockBusy(name, Holder("j9"))

    monkeypatch.setattr(run_module, "take_lock", busy)
    last = run(verb, 0)
    assert last["exitCode"] == 5
    assert "is held by job j9" in last["message"]
    assert cluster.calls == []


def test_an_interrupt_while_requests_drain_ends_nothing(
        cluster: SimulatedCluster, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(threading.Event):
        def wait(self, seconds: float | None = None) -> bool:
            self.set()
            return True

    monkeypatch.setattr(run_module.threading, "Event", Interrupted)
    last = run(evict.run_evict, 0, drain=30)
    assert (last["exitCode"], last["interrupted"]) == (3, True)
    assert cluster.calls == []


def test_an_eviction_that_has_begun_is_completed_even_if_interrupted(
        cluster: SimulatedCluster, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(leaving: list[str], **more: Any) -> tuple[list[str], list[str]]:
        os.kill(os.getpid(), signal.SIGTERM)
        return cluster.wait(leaving, **more)

    monkeypatch.setattr(evict.ray, "wait", wait)
    last = run(evict.run_evict, 0, 1)
    assert (last["rows"], last["interrupted"]) == ([(0, "gone", None), (1, "gone", None)], True)
    assert cluster.calls[:4] == [f"{what} ModelActor:org/m:{number}" for what in ("leave", "end") for number in (0, 1)]


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def of_type(last: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in last["events"] if event["type"] == kind]


class Demotion:
    """Stands in for what an eviction to a level prepares: refuses what it was told to, in two steps."""

    told: ClassVar[dict[str, Outcome]] = {}
    prepared: ClassVar[list[int | None]] = []

    def __init__(self, request: ExplicitRequest, run: Any) -> None:
        self.refused: dict[str, Outcome] = {}

    def prepare(self, targets: list[Target]) -> Iterator[None]:
        Demotion.prepared = [target.replica_id for target in targets]
        yield
        self.refused.update(Demotion.told)

    def gone(self, target: Target) -> Outcome:
        return run_module.outcome_of(target, "gone", message="by the demotion")


@pytest.fixture
def demotion(monkeypatch: pytest.MonkeyPatch) -> type[Demotion]:
    monkeypatch.setattr(evict, "Demotion", Demotion)
    monkeypatch.setattr(Demotion, "told", {})
    return Demotion


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """How long a run has waited for its end, each time; nothing waits."""
    waits, clock = list[float | None](), Clock()

    class Passing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            clock.now += timeout or 0
            return self.is_set()

    for module in (run_module, evict):
        monkeypatch.setattr(module, "threading", SimpleNamespace(Event=Passing, Thread=threading.Thread))
    monkeypatch.setattr(run_module, "time", clock)
    return waits


@pytest.mark.parametrize(("more", "waited"), [
    ({"drain": 30}, 30.0), ({"drain": 30, "level": "COLD"}, 30.0), ({"drain": 30, "level": "WARM"}, 0.0), ({}, 0.0)])
def test_requests_drain_first_unless_the_weights_must_be_in_memory_before(
    cluster: SimulatedCluster, run: Any, demotion: type[Demotion], waits: list[float | None], more: dict[str, Any],
    waited: float
) -> None:
    last = run(evict.run_evict, 0, **more)
    assert (last["rows"], sum(filter(None, waits)) // 10 * 10) == ([(0, "gone", None)], waited)
    assert [event["message"].partition(";")[0] for event in of_type(last, "draining")] == (
        ["waiting up to 30 s for requests to end"] if waited else [])


def test_a_warm_replica_is_evicted_by_its_own_name(cluster: SimulatedCluster, run: Any) -> None:
    cluster.records["WarmReplica:org/m:1"] = ActorRecord("ALIVE", True, "{}", "", 0, 0)
    target = {"model": "org/m", "replicaId": 1, "actorId": "WarmReplica:org/m:1", "nodes": ["a"], "startupTimeout": 5,
              "level": "WARM"}
    assert run(evict.run_evict, replicas=[target])["rows"] == [(1, "gone", None)]
    assert "ModelActor:org/m:1" in cluster.records


def test_what_cannot_reach_its_level_is_not_ended_and_what_is_gone_is_not_prepared(
    cluster: SimulatedCluster, run: Any, demotion: type[Demotion]
) -> None:
    refused = Outcome("org/m", "failed", 1, ["a"], "no room in memory", "NO_ROOM")
    gone = Outcome("org/m", "failed", 7, ["a"], "never seen", "NO_ROOM")
    demotion.told.update({"ModelActor:org/m:1": refused, "ModelActor:org/m:7": gone})
    last = run(evict.run_evict, 0, 1, 7, 2)
    assert demotion.prepared == [0, 1, 2]
    assert last["rows"] == [(0, "gone", None), (1, "failed", "NO_ROOM"), (7, "failed", "NOT_FOUND"), (2, "gone", None)]
    assert [row["message"] for row in last["outcomes"]] == [
        "by the demotion", "no room in memory", "org/m/7 is already gone", "by the demotion"]
    assert set(cluster.records) == {"ModelActor:org/m:1", "ModelActor:org/m:3"}
    assert [(event["message"], event["model"], event["replicaId"]) for event in of_type(last, "replicaEnding")] == [
        ("org/m/0 is being ended", "org/m", 0), ("org/m/2 is being ended", "org/m", 2)]


@pytest.fixture
def clock(waits: list[float | None]) -> Clock:
    """The clock of a run, which passes by its waits alone."""
    clock: Clock = run_module.time
    return clock


@pytest.mark.parametrize(("grace", "waits_s"), [(30.0, 50.0), (120.0, 140.0), (None, 20.0)])
def test_an_engine_has_its_grace_period_and_its_actor_lives_on_for_so_long(
    cluster: SimulatedCluster, run: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch, grace: float | None,
    waits_s: float
) -> None:
    """An actor of the last release does not tell its period, which is two seconds. The others need not wait."""
    busy, ended = "ModelActor:org/m:0", dict[str, float]()
    cluster.busy.add(busy)
    cluster.grace = {name: grace for name in cluster.grace if grace}

    def kill(handle: Any, *, no_restart: bool) -> None:
        ended[handle.name] = clock.now - 100
        cluster.kill(handle, no_restart=no_restart)

    monkeypatch.setattr(evict.ray, "kill", kill)
    assert run(evict.run_evict, 0, 1)["rows"] == [(0, "gone", None), (1, "gone", None)]
    assert ended["ModelActor:org/m:1"] == 0
    assert waits_s <= ended[busy] < waits_s + 1
    cluster.records[busy] = ActorRecord("ALIVE", True, "{}", "", 0, 2)
    clock.now = 100.0
    run(evict.run_restart, 0)
    assert waits_s <= ended[busy] < waits_s + 1
    assert cluster.calls[-3:-1] == [f"leave {busy}{' again' if grace else ''}", f"restart {busy}"]


def test_a_replica_that_does_not_answer_is_not_given_its_period(
    cluster: SimulatedCluster, run: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evict.ray, "wait", lambda refs, **_: ([], refs))
    assert run(evict.run_evict, 0)["rows"] == [(0, "gone", None)]
    assert evict.LEAVE_S <= clock.now - 100 < evict.LEAVE_S + 1


def test_a_replica_that_ray_has_restarted_while_it_was_leaving_is_not_restarted_again(
    cluster: SimulatedCluster, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "ModelActor:org/m:0"

    def wait(refs: list[str], timeout: float) -> tuple[list[str], list[str]]:
        cluster.records[name] = ActorRecord("ALIVE", True, "{}", "", 1, 1)
        return cluster.wait(refs, timeout)

    monkeypatch.setattr(evict.ray, "wait", wait)
    assert run(evict.run_restart, 0)["rows"] == [(0, "ready", None)]
    assert cluster.calls == [f"leave {name} again", "release"]


@pytest.mark.parametrize(("looks", "over_s"), [
    ([[0.0], [0.0]], 17), ([[0.0], [2.0], [0.0], [0.0]], 21), ([[None]] * 100, 60), ([[3.0]] * 100, 60),
    ([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]], 19)], ids=["idle", "one came", "does not tell", "busy", "one of two busy"])
def test_draining_is_over_once_no_engine_has_had_a_request_twice_in_a_row(
    cluster: SimulatedCluster, run: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch,
    looks: list[list[float | None]], over_s: int
) -> None:
    answers = iter([answer for look in looks for answer in look])
    at = list[float]()
    monkeypatch.setattr(ending, "serving_engines", lambda _: [("10.0.0.1", port) for port, _ in enumerate(looks[0])])
    monkeypatch.setattr(ending, "requests_at", lambda *_: next(answers))

    class Pool:
        def __init__(self, _: int) -> None: ...

        def submit(self, ask: Callable[..., object], *given: object) -> Future[object]:
            done = Future[object]()
            done.set_result(ask(*given))
            return done

    monkeypatch.setattr(ending, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(evict.ray, "kill", lambda *_, **__: at.append(clock.now - 100) or cluster.records.clear())
    last = run(evict.run_evict, 0, drain=60)
    assert [over_s <= moment < over_s + 3 for moment in at] == [True], at
    assert [event["message"] for event in of_type(last, "draining")][1:] == ["no request is left"] * (over_s < 60)


@pytest.mark.parametrize("answers", [True, False])
def test_a_process_that_did_not_answer_is_said_so_however_it_ended(
    cluster: SimulatedCluster, run: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """One whose engine takes longer than its period has answered. An old actor has nothing to say at once."""
    def wait(refs: list[str], timeout: float) -> tuple[list[str], list[str]]:
        clock.now += 5
        return cluster.wait(refs, timeout) if answers and "grace" in refs[0] else ([], refs)

    monkeypatch.setattr(evict.ray, "wait", wait)
    cluster.old.add("ModelActor:org/m:2")
    del cluster.grace["ModelActor:org/m:2"]
    messages = [row.get("message") for row in run(evict.run_evict, 0, 2)["outcomes"]]
    assert messages == ["" if answers else "its process did not answer and was killed", ""]


@pytest.mark.parametrize("verb", [evict.run_evict, evict.run_restart])
def test_a_process_of_which_something_still_runs_is_neither_gone_nor_ready(
    cluster: SimulatedCluster, run: Any, monkeypatch: pytest.MonkeyPatch, verb: Any
) -> None:
    def stuck(record: ActorRecord, node: str, _: Any) -> Iterator[None]:
        yield
        raise Refused("STILL_RUNNING", f"it hangs on {node}")

    monkeypatch.setattr(evict, "await_end", stuck)
    last = run(verb, 0)
    assert (last["exitCode"], last["rows"]) == (3, [(0, "failed", "STILL_RUNNING")])
    assert last["outcomes"][0]["message"] == "it hangs on a"


def test_an_actor_that_does_not_end_is_reported(
    cluster: SimulatedCluster, run: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = list[float]()

    def stays(actor_id: str) -> ActorRecord:
        if cluster.calls and cluster.calls[-1] == "release":
            clock.now += 10
            reads.append(clock.now)
        return ActorRecord("ALIVE", True, "{}", "")

    monkeypatch.setattr(evict.ray, "kill", lambda *_, **__: None)
    monkeypatch.setattr(evict.cluster, "actor_record", stays)
    last = run(evict.run_evict, 0)
    assert (last["exitCode"], last["rows"]) == (3, [(0, "failed", "STILL_THERE")])
    assert last["outcomes"][0]["message"] == "org/m/0 was ended, but its actor still exists"
    assert reads[-2] - 100 < evict.GONE_S <= reads[-1] - 100


@pytest.mark.parametrize("other", [
    ActorRecord("ALIVE", True, "", ""), ActorRecord("RESTARTING", True, "{}", "", 1, 1)],
    ids=["never constructed", "restarting"])
def test_only_replicas_that_serve_count_as_ready_and_are_asked_to_leave(
    cluster: SimulatedCluster, run: Any, other: ActorRecord
) -> None:
    cluster.records["ModelActor:org/m:3"] = other
    refused = run(evict.run_evict, 0, keep={"org/m": 3})
    assert refused["rows"] == [(0, "skipped", "TOO_FEW_READY")]
    assert refused["outcomes"][0]["message"] == (
        "without it 2 of org/m would be ready, and 3 must stay ready: it keeps running")
    cluster.calls.clear()
    assert run(evict.run_evict, 3, keep={"org/m": 3})["rows"] == [(3, "gone", None)]
    assert cluster.calls[0] == "end ModelActor:org/m:3"


def test_a_replica_that_no_longer_answers_its_readiness_does_not_count_as_ready(
    cluster: SimulatedCluster, run: Any
) -> None:
    name, mark = "ModelActor:org/m:3", '{"fleet":"lab","readyAt":"2026-03-04T12:00:00Z"}'
    cluster.records[name] = cluster.records[name]._replace(report=mark)
    told = {"model": "org/m", "replicaId": 3, "readyAt": "2026-03-04T12:00:00Z", "since": "2026-03-04T12:03:11Z",
            "reason": "GET /health on port 8000: HTTP 503"}
    records.add(records.NOT_READY, name, told, "lab")
    assert run(evict.run_evict, 0, keep={"org/m": 3})["rows"] == [(0, "skipped", "TOO_FEW_READY")]
    records.add(records.NOT_READY, name, {**told, "readyAt": "2026-03-04T11:00:00Z"}, "lab")  # of its former life
    assert run(evict.run_evict, 0, keep={"org/m": 3})["rows"] == [(0, "gone", None)]
    records.add(records.NOT_READY, name, told, "lab")
    assert run(evict.run_evict, 3, keep={"org/m": 2})["rows"] == [(3, "gone", None)], "ending it takes nothing away"
    assert records.records_of(records.NOT_READY, "lab") == {}


def test_a_replica_that_ends_while_the_ready_ones_are_counted_is_not_ready(
    cluster: SimulatedCluster, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set(cluster.records)
    del cluster.records["ModelActor:org/m:0"]
    monkeypatch.setattr(evict.cluster, "taken_names", lambda: names)
    assert run(evict.run_evict, 1, keep={"org/m": 3})["rows"] == [(1, "skipped", "TOO_FEW_READY")]
    assert run(evict.run_evict, 1, keep={"org/m": 2})["rows"] == [(1, "gone", None)]
