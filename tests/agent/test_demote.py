"""The checks of an eviction to WARM or COLD, without Ray: no HOT replica is half evicted, or evicted for stale
state."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from fleetctl.agent import warm
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.messages import Mark, Place, ServedWeights, WarmCopy
from fleetctl.agent.reload import UNKNOWN_SPEC
from fleetctl.agent.run_messages import ExplicitRequest, Holder, Outcome, Target, WarmNode
from fleetctl.agent.wire import document_of, from_parts
from fleetctl.documents.quantity import format_bytes

OLD, NEW = "a" * 64, "b" * 64
REQUEST = ExplicitRequest("lab", (), "j", Holder(), level="WARM")


class SimulatedCluster:
    """A cluster in which WARM replicas are up immediately, except those `loading`. Asked to stay, those
    `leaving` refuse, and those `silent` do not answer.

    `run` is the run of the eviction; its time passes whenever the demotion waits.
    """

    def __init__(self) -> None:
        self.run = SimpleNamespace(stop=threading.Event(), clock=lambda: self.now,
                                   events=SimpleNamespace(emit=lambda kind, *_, **__: self.events.append(kind)))
        self.now = 0.0
        self.events: list[str] = []
        self.records: dict[str, ActorRecord] = {}
        self.made: dict[str, WarmCopy] = {}
        self.killed: list[str] = []
        self.loading: set[str] = set()
        self.leaving: set[str] = set()
        self.silent: set[str] = set()
        self.asked_to_stay: list[tuple[float, str]] = []
        self.noted: list[tuple[str, list[str]]] = []

    def add(self, number: int, size: int = 5) -> Target:
        weights = ServedWeights(OLD, None, bytes=size)
        mark = Mark(fleet="lab", namespace="ns", spec_hash="old", members=[Place(node_id="n", weights=weights)])
        self.records[f"hot{number}"] = ActorRecord("ALIVE", True, json.dumps(document_of(mark)), "")
        return Target("m", number, f"hot{number}", ["a"], 5.0)

    def remote(self, _: Any) -> Any:
        return SimpleNamespace(options=lambda name, **_: SimpleNamespace(
            remote=lambda *parts: self._create(name, from_parts(WarmCopy, parts))))

    def _create(self, name: str, copy: WarmCopy) -> Any:
        self.made[name] = copy
        if name in self.loading:
            self.run.stop.set()  # the user interrupts the eviction while this one loads
        else:
            self.records[name] = ActorRecord("ALIVE", True, json.dumps(document_of(copy)), "")
        return SimpleNamespace(name=name, _actor_id=SimpleNamespace(hex=lambda: name),
                               stay=SimpleNamespace(remote=lambda: self.asked_to_stay.append((self.now, name)) or name))

    def wait(self, names: list[str], timeout: float) -> tuple[list[str], list[str]]:
        assert timeout == 0
        return ([], names) if self.silent & set(names) else (names, [])

    def get(self, name: str, timeout: float) -> None:
        assert timeout == 0
        if name in self.leaving:
            raise ray.exceptions.ActorDiedError
        if name in self.silent:
            raise ray.exceptions.GetTimeoutError

    def kill(self, warm: Any, **_: Any) -> None:
        self.killed.append(warm.name)

    def demote(self, request: ExplicitRequest, *targets: Target) -> dict[str, Outcome]:
        """Prepare an eviction to its end, and return the outcomes of the replicas that stay."""
        demotion = warm.Demotion(request, self.run)  # type: ignore[arg-type]
        for _ in demotion.prepare(targets):
            self.now += 1.0
        return demotion.refused

    def refused(self, request: ExplicitRequest, *targets: Target) -> dict[str, tuple[str, str | None]]:
        return {key: (row.outcome, row.code) for key, row in self.demote(request, *targets).items()}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    cluster = SimulatedCluster()
    monkeypatch.setattr(warm, "ray", SimpleNamespace(
        remote=cluster.remote, get=cluster.get, wait=cluster.wait, kill=cluster.kill, exceptions=ray.exceptions))
    monkeypatch.setattr(warm, "cluster", SimpleNamespace(
        actor_record=lambda actor_id: cluster.records.get(actor_id, GONE), taken_names=set, live_actors=list,
        free_by_node=lambda: {"n": {"memory": 1e9}}))
    monkeypatch.setattr(warm, "actor_options", lambda *_: {})
    monkeypatch.setattr(warm, "mark_ending", lambda *ending: cluster.noted.append(ending))
    return cluster


def test_an_interrupt_during_a_load_ends_all_warm_replicas_and_no_hot_replica(cluster: SimulatedCluster) -> None:
    cluster.loading = {"WarmReplica:m:1"}
    stays = "skipped", "INTERRUPTED"
    assert cluster.refused(REQUEST, *map(cluster.add, range(3))) == {"hot0": stays, "hot1": stays, "hot2": stays}
    assert sorted(cluster.killed) == sorted(cluster.made) == ["WarmReplica:m:0", "WarmReplica:m:1"]


@pytest.mark.parametrize("level", ["", "COLD"])
def test_after_an_interrupt_no_replica_is_evicted(
        cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    there = SimpleNamespace(node_id="n", trouble="", content=[])
    monkeypatch.setattr(warm, "Asked", lambda *_: SimpleNamespace(answer=lambda: there))
    cluster.run.stop.set()
    assert cluster.refused(REQUEST._replace(level=level), cluster.add(0)) == {"hot0": ("skipped", "INTERRUPTED")}


@pytest.mark.parametrize(("trouble", "content"), [("no worker answered there", None), ("", ["/cache/x"])])
def test_a_replica_goes_cold_only_if_all_its_weights_are_on_the_disks_of_its_nodes(
        cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, trouble: str, content: Any) -> None:
    answers = [None, SimpleNamespace(node_id="n" * 20, trouble=trouble, content=content)]
    monkeypatch.setattr(warm, "Asked", lambda *_: SimpleNamespace(answer=lambda: answers.pop(0)))
    stays = cluster.demote(REQUEST._replace(level="COLD"), cluster.add(0))["hot0"]
    assert (stays.outcome, stays.code) == ("failed", "NOT_ON_DISK")
    assert stays.message == f"its weights are not complete on nnnnnnnn: {trouble or '/cache/x'}: it stays as it is"


@pytest.mark.parametrize(("trouble", "waited_s"), [("leaving", 0), ("silent", warm.SETTLE_S)])
def test_a_hot_replica_stays_if_its_warm_replica_is_about_to_leave(
        cluster: SimulatedCluster, trouble: str, waited_s: float) -> None:
    setattr(cluster, trouble, {"WarmReplica:m:0"})
    assert cluster.refused(REQUEST, cluster.add(0), cluster.add(1)) == {"hot0": ("failed", "NOT_HELD")}
    assert (cluster.killed, cluster.now) == (["WarmReplica:m:0"], waited_s)


@pytest.mark.parametrize(("spec_hash", "weights", "holds"), [
    (None, (), ("old", OLD)), (None, (None,), ("old", OLD)),
    ("new", (ServedWeights(NEW, None, bytes=7),), ("new", NEW)),
])
def test_a_replica_updated_in_place_goes_warm_with_its_new_weights(
        cluster: SimulatedCluster, spec_hash: str | None, weights: tuple[ServedWeights | None, ...],
        holds: tuple[str, str]) -> None:
    assert cluster.refused(REQUEST, cluster.add(0)._replace(spec_hash=spec_hash, weights=weights)) == {}
    [made] = cluster.made.values()
    assert made.members[0].weights is not None
    assert (made.spec_hash, made.members[0].weights.artifact) == holds


def test_weights_that_a_reload_may_have_replaced_are_not_known(cluster: SimulatedCluster) -> None:
    target = cluster.add(0)._replace(spec_hash=UNKNOWN_SPEC, weights=(ServedWeights(NEW, None, bytes=7),))
    assert cluster.refused(REQUEST, target) == {"hot0": ("failed", "NOT_READY")}
    assert cluster.made == {}


def test_a_replica_serves_until_its_weights_are_loaded_and_then_drains(cluster: SimulatedCluster) -> None:
    request = REQUEST._replace(drain=150.0)
    assert list(cluster.refused(request, cluster.add(0), Target("m", 1, "starting", ["a"], 5.0)).items()) == [
        ("starting", ("failed", "NOT_READY"))]
    assert (cluster.events, cluster.noted) == (["replicaWarming", "draining"], [("j", ["m/0"])])
    assert cluster.now == 150
    assert cluster.asked_to_stay == [(now, "WarmReplica:m:0") for now in (60, 120, 150)]


def test_an_interrupt_during_a_drain_ends_the_warm_replica_and_not_the_hot_one(cluster: SimulatedCluster) -> None:
    demotion = warm.Demotion(REQUEST._replace(drain=1e6), cluster.run)  # type: ignore[arg-type]
    for _ in demotion.prepare([cluster.add(0)]):
        assert list(cluster.made) == ["WarmReplica:m:0"]
        assert cluster.noted == [("j", ["m/0"])]
        cluster.run.stop.set()
    assert demotion.refused["hot0"].code == "INTERRUPTED"
    assert cluster.killed == ["WarmReplica:m:0"]


def test_a_replica_that_cannot_go_warm_does_not_drain(cluster: SimulatedCluster) -> None:
    cluster.refused(REQUEST._replace(drain=1e6), Target("m", 1, "starting", ["a"], 5.0))
    assert (cluster.noted, cluster.now) == ([], 0)


@pytest.mark.parametrize("size", [0, 5, 1023, 1 << 10, 1600, 9_437_000, 9 << 20, 3 << 30, 5 << 39, (1 << 40) + 1])
def test_amounts_of_memory_have_the_usual_form(cluster: SimulatedCluster, size: int) -> None:
    budget = REQUEST._replace(warm={"n": WarmNode("node-a", size)})
    message = cluster.demote(budget, cluster.add(0, size + 1))["hot0"].message
    assert message.startswith(f"node-a may have {format_bytes(size)} of weights WARM: "), message
