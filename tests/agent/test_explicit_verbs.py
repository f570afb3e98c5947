"""Evict and restart without Ray: only named replicas are touched, and every result has its exit code and message."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray_keys import Keys

from fleetctl.agent import evict, reload, restart
from fleetctl.agent import run as run_module
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.events import EventStream
from fleetctl.agent.lock import LockBusy
from fleetctl.agent.messages import ExplicitRequest, Holder
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
        self.replaced: set[str] = set()
        """Names that another actor has taken since."""

    def get_actor(self, name: str) -> Any:
        if name not in self.records:
            raise ValueError
        actor_id = f"another {name}" if name in self.replaced else name
        handle = SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: actor_id), name=name)
        if name not in self.old:
            handle.leave = SimpleNamespace(remote=lambda: self.calls.append(f"leave {name}") or name)
        return handle

    def wait(self, leaving: list[str], **_: Any) -> tuple[list[str], list[str]]:
        """One more of them has left each time."""
        return leaving[:1], leaving[1:]

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
        get_actor=cluster.get_actor, kill=cluster.kill, wait=cluster.wait,
        get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: "01"))
    for module in (evict, restart, run_module):
        monkeypatch.setattr(module, "ray", ray)
    monkeypatch.setattr(run_module, "POLL_S", 0.001)
    monkeypatch.setattr(evict.cluster, "actor_record", lambda actor_id: cluster.records.get(actor_id, GONE))
    monkeypatch.setattr(evict.cluster, "taken_names", lambda: set(cluster.records))
    monkeypatch.setattr(restart, "kept_failure", lambda _: None)
    cluster.keys.install(monkeypatch, reload)
    monkeypatch.setattr(run_module, "take_lock", lambda *_: SimpleNamespace(
        release=lambda: cluster.calls.append("release")))
    return cluster


@pytest.fixture
def run(cluster: SimulatedCluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def running(verb: Callable[..., int], *ids: int, **more: Any) -> dict[str, Any]:
        replicas = [{"model": "org/m", "replicaId": number, "actorId": f"ModelActor:org/m:{number}",
                     "nodes": ["a"], "startupTimeout": 5} for number in ids]
        code = verb(parse(ExplicitRequest, {**REQUEST, "replicas": replicas, **more}), EventStream())
        last: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
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


def test_a_missing_replica_is_not_found_and_the_others_are_evicted(cluster: SimulatedCluster, run: Any) -> None:
    last = run(evict.run_evict, 7, 1)
    assert (last["exitCode"], last["rows"]) == (3, [(7, "failed", "NOT_FOUND"), (1, "gone", None)])
    assert run(restart.run_restart, 7)["rows"] == [(7, "failed", "NOT_FOUND")]


@pytest.mark.parametrize("verb", [evict.run_evict, restart.run_restart])
def test_a_new_replica_under_the_same_name_is_left_alone(cluster: SimulatedCluster, run: Any, verb: Any) -> None:
    cluster.replaced.add("ModelActor:org/m:1")
    assert run(verb, 1)["rows"] == [(1, "failed", "NOT_FOUND")]
    assert cluster.calls[0] == "release"


def test_replicas_are_restarted_one_by_one_and_keep_their_ids(cluster: SimulatedCluster, run: Any) -> None:
    last = run(restart.run_restart, 0, 1)
    assert (last["exitCode"], last["rows"]) == (0, [(0, "ready", None), (1, "ready", None)])
    assert cluster.calls == ["restart ModelActor:org/m:0", "restart ModelActor:org/m:1", "release"]
    assert len(cluster.records) == 4


def test_a_restart_ends_at_the_first_replica_that_does_not_come_back(cluster: SimulatedCluster, run: Any) -> None:
    cluster.broken.add("ModelActor:org/m:1")
    last = run(restart.run_restart, 0, 1, 2)
    assert (last["exitCode"], last["rows"]) == (3, [
        (0, "ready", None), (1, "failed", "REPLICA_DIED"), (2, "skipped", "NOT_BEGUN")])
    assert "restart ModelActor:org/m:2" not in cluster.calls


def test_an_interrupted_restart_skips_the_rest_and_does_not_wait(
        cluster: SimulatedCluster, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(handle: Any, *, no_restart: bool) -> None:
        cluster.kill(handle, no_restart=no_restart)
        cluster.records[handle.name] = cluster.records[handle.name]._replace(state="RESTARTING")
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(restart.ray, "kill", kill)
    last = run(restart.run_restart, 0, 1)
    assert last["interrupted"] is True
    assert last["rows"] == [(0, "starting", "INTERRUPTED"), (1, "skipped", "INTERRUPTED")]
    assert cluster.calls == ["restart ModelActor:org/m:0", "release"]


def test_a_replica_without_a_restart_left_is_not_touched(cluster: SimulatedCluster, run: Any) -> None:
    cluster.records["ModelActor:org/m:0"] = ActorRecord("ALIVE", True, "{}", "", 2, 0)
    last = run(restart.run_restart, 0)
    assert (last["exitCode"], last["rows"]) == (3, [(0, "failed", "RESTARTS_USED")])
    assert cluster.calls == ["release"]


def test_the_command_for_a_replica_without_a_restart_left_is_quoted_for_the_shell(
    cluster: SimulatedCluster, run: Any
) -> None:
    name = "ModelActor:a;b:0"
    cluster.records[name] = ActorRecord("ALIVE", True, "{}", "", 2, 0)
    one = {"model": "a;b", "replicaId": 0, "actorId": name, "nodes": ["a"], "startupTimeout": 5}
    [outcome] = run(restart.run_restart, replicas=[one])["outcomes"]
    assert "`fleetctl evict 'a;b/0'`" in outcome["message"]


@pytest.mark.parametrize("verb", [evict.run_evict, restart.run_restart])
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
            assert seconds == 30
            self.set()
            return True

    monkeypatch.setattr(run_module.threading, "Event", Interrupted)
    last = run(evict.run_evict, 0, drain=30)
    assert (last["exitCode"], last["interrupted"]) == (3, True)
    assert cluster.calls == []


def test_an_eviction_that_has_begun_is_completed_even_if_interrupted(
        cluster: SimulatedCluster, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(leaving: list[str], **_: Any) -> tuple[list[str], list[str]]:
        os.kill(os.getpid(), signal.SIGTERM)
        return cluster.wait(leaving)

    monkeypatch.setattr(evict.ray, "wait", wait)
    last = run(evict.run_evict, 0, 1)
    assert (last["rows"], last["interrupted"]) == ([(0, "gone", None), (1, "gone", None)], True)
    assert cluster.calls[:4] == [f"{what} ModelActor:org/m:{number}" for what in ("leave", "end") for number in (0, 1)]
