"""The checks of an eviction to WARM or COLD, without Ray: no HOT replica is half evicted, or evicted for stale
state."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from fleetctl.agent import levels
from fleetctl.agent.arguments import from_parts
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.explicit import Job
from fleetctl.documents.quantity import format_bytes

OLD, NEW = "a" * 64, "b" * 64


class SimulatedCluster:
    """A cluster in which WARM replicas are up immediately, except those `loading`; those `leaving` refuse to stay."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.records: dict[str, ActorRecord] = {}
        self.made: dict[str, dict[str, Any]] = {}
        self.killed: list[str] = []
        self.loading: set[str] = set()
        self.leaving: set[str] = set()
        self.noted: list[tuple[str, ...]] = []

    def add(self, number: int, size: int = 5) -> dict[str, Any]:
        weights = {"artifact": OLD, "view": None, "bytes": size}
        row = {"fleet": "lab", "namespace": "ns", "specHash": "old", "members": [{"nodeId": "n", "weights": weights}]}
        self.records[f"hot{number}"] = ActorRecord("ALIVE", True, json.dumps(row), "")
        return {"model": "m", "replicaId": number, "actorId": f"hot{number}", "nodes": ["a"], "startupTimeout": 5}

    def remote(self, _: Any) -> Any:
        return SimpleNamespace(options=lambda name, **_: SimpleNamespace(
            remote=lambda *parts: self._create(name, from_parts(parts))))

    def _create(self, name: str, replica: dict[str, Any]) -> Any:
        self.made[name] = replica
        if name in self.loading:
            self.stop.set()  # the user interrupts the eviction while this one loads
        else:
            self.records[name] = ActorRecord("ALIVE", True, json.dumps(replica), "")
        return SimpleNamespace(name=name, _actor_id=SimpleNamespace(hex=lambda: name),
                               stay=SimpleNamespace(remote=lambda: name))

    def get(self, name: str, **_: Any) -> None:
        if name in self.leaving:
            raise ray.exceptions.ActorDiedError

    def kill(self, warm: Any, **_: Any) -> None:
        self.killed.append(warm.name)


@pytest.fixture
def job() -> Job:
    return Job([], SimpleNamespace(emit=lambda *_, **__: None), None, threading.Event(), {}, "WARM")  # type: ignore[arg-type]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, job: Job) -> SimulatedCluster:
    cluster = SimulatedCluster(job.stop)
    monkeypatch.setattr(levels, "ray", SimpleNamespace(
        remote=cluster.remote, get=cluster.get, kill=cluster.kill, exceptions=ray.exceptions))
    monkeypatch.setattr(levels, "cluster", SimpleNamespace(
        actor_record=lambda actor_id: cluster.records.get(actor_id, GONE), taken_names=set, live_actors=list,
        free_by_node=lambda: {"n": {"memory": 1e9}}))
    monkeypatch.setattr(levels, "actor_options", lambda *_: {})
    monkeypatch.setattr(levels, "note", lambda *noted: cluster.noted.append(noted))
    return cluster


def refused(job: Job, *replicas: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {key: (row["outcome"], row["code"]) for key, row in levels.prepare(job, replicas).items()}


def test_an_interrupt_during_a_load_ends_all_warm_replicas_and_no_hot_replica(
    cluster: SimulatedCluster, job: Job
) -> None:
    cluster.loading = {"WarmReplica:m:1"}
    stays = "skipped", "INTERRUPTED"
    assert refused(job, *map(cluster.add, range(3))) == {"hot0": stays, "hot1": stays, "hot2": stays}
    assert sorted(cluster.killed) == sorted(cluster.made) == ["WarmReplica:m:0", "WarmReplica:m:1"]


@pytest.mark.parametrize("level", ["", "COLD"])
def test_after_an_interrupt_no_replica_is_evicted(
        cluster: SimulatedCluster, job: Job, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setattr(levels, "ask_nodes", lambda *_: [])
    job.stop.set()
    assert refused(job._replace(level=level), cluster.add(0)) == {"hot0": ("skipped", "INTERRUPTED")}


def test_a_hot_replica_stays_if_its_warm_replica_is_about_to_leave(cluster: SimulatedCluster, job: Job) -> None:
    cluster.leaving = {"WarmReplica:m:0"}
    assert refused(job, cluster.add(0), cluster.add(1)) == {"hot0": ("failed", "NOT_HELD")}
    assert cluster.killed == ["WarmReplica:m:0"]


@pytest.mark.parametrize(("known", "holds"), [
    ({}, ("old", OLD)), ({"specHash": None, "weights": [None]}, ("old", OLD)),
    ({"specHash": "new", "weights": [{"artifact": NEW, "view": None, "bytes": 7}]}, ("new", NEW)),
])
def test_a_replica_updated_in_place_goes_warm_with_its_new_weights(
        cluster: SimulatedCluster, job: Job, known: dict[str, Any], holds: tuple[str, str]) -> None:
    assert refused(job, {**cluster.add(0), **known}) == {}
    [made] = cluster.made.values()
    assert (made["specHash"], made["members"][0]["weights"]["artifact"]) == holds


def test_a_replica_serves_until_its_weights_are_loaded_and_then_drains(
        cluster: SimulatedCluster, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(_: float) -> bool:
        assert list(cluster.made) == ["WarmReplica:m:0"]
        assert cluster.noted == [("j", "ending", '["m/0"]')]
        job.stop.set()
        return True

    monkeypatch.setattr(job.stop, "wait", wait)
    job = job._replace(name="j", drain_s=1e6)
    unready = {**cluster.add(1), "actorId": "starting"}
    assert refused(job, cluster.add(0), unready) == {
        "hot0": ("skipped", "INTERRUPTED"), "starting": ("failed", "NOT_READY")}


def test_a_replica_that_cannot_go_warm_does_not_drain(cluster: SimulatedCluster, job: Job) -> None:
    refused(job._replace(drain_s=1e6), {**cluster.add(1), "actorId": "starting"})
    assert cluster.noted == []


@pytest.mark.parametrize("size", [0, 5, 1023, 1 << 10, 1600, 9_437_000, 9 << 20, 3 << 30, 5 << 39, (1 << 40) + 1])
def test_amounts_of_memory_have_the_usual_form(
        cluster: SimulatedCluster, job: Job, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(levels, "SETTLE_S", 0)
    budget = job._replace(warm={"n": {"name": "node-a", "bytes": size}})
    message = levels.prepare(budget, [cluster.add(0, size + 1)])["hot0"]["message"]
    assert message.startswith(f"node-a may have {format_bytes(size)} of weights WARM: "), message
