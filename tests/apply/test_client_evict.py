"""Evict from the client's side: one job that names one replica."""

from __future__ import annotations

import pytest
from cluster_stand_in import ClusterStandIn, event

from fleetctl.apply.evict import run_evict
from fleetctl.apply.record import Starter
from fleetctl.errors import ApplyError, LockHeld
from fleetctl.inventory.client import DashboardClient
from fleetctl.version import __version__


def answer(cluster: ClusterStandIn, code: int, message: str) -> None:
    last = event(1, "runSummary", message, outcomes=[], exitCode=code)
    cluster.on_submit = lambda _: [("SUCCEEDED" if code == 0 else "FAILED", event(0, "version") + last)]


def evict(client: DashboardClient) -> str:
    return run_evict(client, "lab", "ns", ("org/m:1", 3), "j", Starter("ann@laptop"), 30)


def test_the_agent_is_asked_to_end_the_one_replica(cluster: ClusterStandIn, client: DashboardClient) -> None:
    answer(cluster, 0, "ModelActor:org/m:1:3 is gone")
    assert evict(client) == "ModelActor:org/m:1:3 is gone"
    asked = cluster.request_of("j")
    assert {key: asked[key] for key in ("fleet", "namespace", "model", "replicaId", "lockTimeout")} == {
        "fleet": "lab", "namespace": "ns", "model": "org/m:1", "replicaId": 3, "lockTimeout": 30}
    assert asked["holder"] == {"job": "j", "who": "ann@laptop"}
    assert cluster.jobs["j"].body["entrypoint"].endswith("start.sh evict j-request ns")
    assert cluster.jobs["j"].body["metadata"] == {
        "tool": "fleetctl", "verb": "evict", "fleet": "lab", "namespace": "ns", "who": "ann@laptop",
        "replica": "org/m:1/3", "toolVersion": __version__}


def test_while_an_apply_runs_nothing_is_evicted(cluster: ClusterStandIn, client: DashboardClient) -> None:
    answer(cluster, 5, "the lock of fleet lab is held by job k")
    with pytest.raises(LockHeld, match="held by job k") as caught:
        evict(client)
    assert "--lock-timeout" in (caught.value.hint or "")


def test_what_the_agent_could_not_end_is_an_error(cluster: ClusterStandIn, client: DashboardClient) -> None:
    answer(cluster, 1, "there is no ModelActor:org/m:1:3")
    with pytest.raises(ApplyError, match="there is no"):
        evict(client)


def test_an_agent_that_died_is_an_error(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.on_submit = lambda _: [("FAILED", event(0, "version"))]
    with pytest.raises(ApplyError, match="without a summary"):
        evict(client)
