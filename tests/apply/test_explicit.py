"""The explicit verbs on the client's side: one job with named replicas, and a summary."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, event

from fleetctl.apply.explicit import ExplicitOrder, Verb, run_explicit
from fleetctl.apply.jobs import agent_package
from fleetctl.apply.prepare import Starter
from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.inventory import Replica, ReplicaMember
from fleetctl.documents.weights import ServedWeights
from fleetctl.errors import ApplyError, LockHeld
from fleetctl.inventory.client import DashboardClient
from fleetctl.version import __version__

NAMES = {"a": "node-a", "b": "node-b", "c": "node-c"}


def replica(number: int, *nodes: str) -> Replica:
    return Replica(model="org/m:1", replica_id=number, actor_id=f"a{number}",
                   members=[ReplicaMember(node_id=node) for node in nodes])


def order_of(verb: Verb, **more: Any) -> ExplicitOrder:
    replicas = (replica(3, "a", "a", "gone"), replica(4, "b", "c"))
    return ExplicitOrder(**{"verb": verb, "fleet": "lab", "namespace": "ns", "replicas": replicas, "names": NAMES,
                            "timeouts": {"org/m:1": 60}, **more})


def answer(cluster: ClusterStandIn, code: int, message: str, *outcomes: dict) -> None:
    last = event(1, "runSummary", message, outcomes=list(outcomes), exitCode=code)
    cluster.on_submit = lambda _: [("SUCCEEDED" if code == 0 else "FAILED",
                                    event(0, "version") + event(0, "draining", "waiting") + last)]


def evict(client: DashboardClient, seen: list[Event] | None = None) -> RunSummary:
    order = order_of("evict", drain_s=20, lock_timeout_s=30)
    return run_explicit(client, order, "j", Starter("ann@laptop"), (seen if seen is not None else []).append)


def test_the_agent_gets_the_replicas_to_end_by_name(cluster: ClusterStandIn, client: DashboardClient) -> None:
    answer(cluster, 3, "1 of 2 done", {"model": "org/m:1", "replicaId": 3, "outcome": "gone"},
           {"model": "org/m:1", "replicaId": 4, "outcome": "failed", "code": "NOT_FOUND"})
    seen: list[Event] = []
    summary = evict(client, seen)
    assert [(row.replica_id, row.outcome, row.code) for row in summary.outcomes] == [
        (3, "gone", None), (4, "failed", "NOT_FOUND")]
    assert [one.type for one in seen] == ["version", "draining"]
    assert cluster.request_of("j") == {
        "fleet": "lab", "drain": 20, "keep": {}, "lockTimeout": 30, "job": "j",
        "holder": {"job": "j", "who": "ann@laptop"}, "toolVersion": __version__, "replicas": [
            {"model": "org/m:1", "replicaId": 3, "actorId": "a3", "nodes": ["node-a"], "startupTimeout": 60},
            {"model": "org/m:1", "replicaId": 4, "actorId": "a4", "nodes": ["node-b", "node-c"], "startupTimeout": 60}]}
    assert cluster.jobs["j"].body["entrypoint"].endswith("start.sh evict j-request ns")
    metadata = cluster.jobs["j"].body["metadata"]
    assert metadata.pop("within") == "3770", "the longest time that its engines may take"
    assert json.loads(metadata.pop("replicas")) == ["org/m:1/3", "org/m:1/4"]
    assert metadata == {"tool": "fleetctl", "verb": "evict", "fleet": "lab", "namespace": "ns", "who": "ann@laptop",
                        "toolVersion": __version__, "agent": agent_package().sha256}


def test_nothing_is_evicted_while_an_apply_creates(cluster: ClusterStandIn, client: DashboardClient) -> None:
    answer(cluster, 5, "the lock of fleet lab is held by job k")
    with pytest.raises(LockHeld, match="held by job k") as caught:
        evict(client)
    assert "--lock-timeout" in (caught.value.hint or "")


def test_an_agent_that_could_not_start_is_an_error(cluster: ClusterStandIn, client: DashboardClient) -> None:
    answer(cluster, 1, "no request came within 60 s")
    with pytest.raises(ApplyError, match="no request came"):
        evict(client)


@pytest.mark.parametrize(("step_of", "advice"), [
    (None, "`fleetctl status` shows the replicas; then evict the rest"),
    ("replace-1", "run the same command again to continue"),
], ids=["evict", "replace"])
def test_an_agent_that_died_is_an_error_and_the_hint_fits_the_command(
        cluster: ClusterStandIn, client: DashboardClient, step_of: str | None, advice: str) -> None:
    """After `replace` or `drain` the remaining replicas still serve: the user must not evict them."""
    cluster.on_submit = lambda _: [("FAILED", event(0, "version"))]
    with pytest.raises(ApplyError, match="without a summary") as caught:
        run_explicit(client, order_of("evict"), "j", Starter("ann", step_of=step_of), lambda _: None)
    assert caught.value.hint == advice


@pytest.mark.parametrize(("verb", "ending"), [("evict", False), ("evict", True), ("restart", True)])
def test_an_interrupt_stops_an_eviction_only_before_anything_ends_and_a_restart_at_any_time(
        cluster: ClusterStandIn, client: DashboardClient, verb: Verb, ending: bool) -> None:
    lines = event(0, "version") + event(1, "replicaEnding" if ending else "draining", "now")
    cluster.on_submit = lambda _: [("RUNNING", lines)]
    cluster.on_stop = lambda job: job.steps.append(("STOPPED", lines + event(
        2, "runSummary", "interrupted before anything was begun", outcomes=[], exitCode=3, interrupted=True)))

    def relay(received: Event) -> None:
        if received.type != "version":
            raise KeyboardInterrupt

    continues = verb == "evict" and ending
    order = order_of(verb, drain_s=600)
    if continues:
        with pytest.raises(KeyboardInterrupt):
            run_explicit(client, order, "j", Starter("ann"), relay)
    else:
        assert run_explicit(client, order, "j", Starter("ann"), relay).interrupted
    assert cluster.jobs["j"].stopped is not continues


def test_a_run_stopped_before_its_agent_is_up_is_interrupted_and_not_an_error(
        cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.on_submit = lambda _: [("RUNNING", event(0, "version"))]
    cluster.on_stop = lambda job: job.steps.append(("STOPPED", job.log))

    def relay(_: Event) -> None:
        raise KeyboardInterrupt

    summary = run_explicit(client, order_of("evict"), "j", Starter("ann"), relay)
    assert (summary.interrupted, summary.exit_code, summary.outcomes) == (True, 130, [])
    assert "the eviction was stopped and gave no report" in summary.message


def test_an_eviction_to_a_level_sends_each_replicas_current_spec_and_weights(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    """Ray's table has only the spec with which the replica was started."""
    answer(cluster, 0, "done")
    served = ServedWeights(artifact="a" * 64, port=7000, bytes=5)
    one = Replica(model="m", replica_id=0, spec_hash="new", members=[ReplicaMember(weights=served), ReplicaMember()])
    run_explicit(client, order_of("evict", replicas=[one], level="COLD"), "j", Starter("ann"), lambda _: None)
    [sent] = cluster.request_of("j")["replicas"]
    assert (sent["specHash"], sent["weights"]) == ("new", [{"artifact": "a" * 64, "view": None, "bytes": 5}, None])
