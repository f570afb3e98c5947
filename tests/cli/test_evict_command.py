"""`fleetctl evict MODEL/ID`: asks, ends what it names if it is ours, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, event

MODEL = "org/one:1"


@pytest.fixture
def running(cluster: ClusterStandIn) -> ClusterStandIn:
    """Two replicas of ours and one without a mark; the agent ends what it is told to."""
    for replica_id, node in enumerate(cluster.nodes):
        cluster.add_replica(MODEL, replica_id, node["node_id"])
    cluster.add_replica("odd", 0, cluster.nodes[0]["node_id"], fleet=None, gpus=0)
    cluster.on_submit = lambda asked: [("SUCCEEDED", event(
        0, "runSummary", f"ModelActor:{asked['model']}:{asked['replicaId']} is gone", outcomes=[], exitCode=0))]
    return cluster


def test_it_asks_naming_the_replica_its_fleet_and_its_node(cli, running: ClusterStandIn) -> None:
    shown = cli("evict", f"{MODEL}/1", typed="n\n")
    assert shown.code == 1
    assert f"End {MODEL}/1 (fleet lab, ready, on node-b)? [y/N]" in shown.err
    assert "nothing was done" in shown.err
    assert running.writes() == []


def test_with_a_yes_the_agent_is_asked_to_end_that_one(cli, running: ClusterStandIn) -> None:
    shown = cli("evict", f"{MODEL}/1", typed="y\n")
    assert (shown.code, shown.out) == (0, f"ModelActor:{MODEL}:1 is gone\n")
    [job] = running.jobs
    asked = running.request_of(job)
    assert (asked["model"], asked["replicaId"], asked["fleet"], asked["namespace"]) == (MODEL, 1, "lab", "fleet")
    assert job.startswith("fleetctl-evict-")


def test_without_a_terminal_it_needs_yes(cli, running: ClusterStandIn) -> None:
    assert cli("evict", f"{MODEL}/1").code == 64
    assert running.writes() == []
    assert cli("evict", f"{MODEL}/1", "--yes").code == 0


def test_what_fleetctl_did_not_start_it_does_not_end(cli, running: ClusterStandIn) -> None:
    shown = cli("evict", "odd/0", "--yes")
    assert shown.code == 1
    assert "has no fleet's mark" in shown.err
    assert running.writes() == []


@pytest.mark.parametrize("name", [f"{MODEL}/2", "org/one/1", "nobody/0"])
def test_what_does_not_exist_is_1(cli, running: ClusterStandIn, name: str) -> None:
    shown = cli("evict", name, "--yes")
    assert shown.code == 1
    assert f"there is no {name}" in shown.err
    assert running.writes() == []


@pytest.mark.parametrize("name", [MODEL, f"{MODEL}/", f"{MODEL}/*", f"{MODEL}/0,1"])
def test_it_takes_one_replica_by_name_and_no_pattern(cli, running: ClusterStandIn, name: str) -> None:
    assert cli("evict", name, "--yes").code == 64
    assert cli("evict", f"{MODEL}/0", f"{MODEL}/1", "--yes").code == 64
    assert running.writes() == []


def test_while_an_apply_runs_it_is_5(cli, running: ClusterStandIn) -> None:
    running.on_submit = lambda _: [("FAILED", event(
        0, "runSummary", "the lock of fleet lab is held by job j9", outcomes=[], exitCode=5))]
    shown = cli("evict", f"{MODEL}/0", "--yes")
    assert shown.code == 5
    assert "held by job j9" in shown.err


def test_the_lock_is_waited_for_when_asked(cli, running: ClusterStandIn) -> None:
    cli("evict", f"{MODEL}/0", "--yes", "--lock-timeout", "10m")
    [job] = running.jobs
    assert running.request_of(job)["lockTimeout"] == 600


def test_a_broken_fleet_file_ends_nothing(cli, running: ClusterStandIn, fleet_file: Path) -> None:
    fleet_file.write_text("a: [")
    assert cli("evict", f"{MODEL}/0", "-f", fleet_file, "--yes").code == 1
    assert running.requests == []


def test_where_not_all_could_be_read_nobody_knows_whether_it_is_there(cli, running: ClusterStandIn) -> None:
    running.refusals["GET", "/api/version"] = [(500, "")] * 10
    shown = cli("evict", f"{MODEL}/2", "--yes")
    assert shown.code == 1
    assert "that could be read: " in shown.err
    assert "version and session" in shown.err
    assert running.writes() == []


def test_an_eviction_that_got_out_of_sight_is_not_called_an_apply(cli, running: ClusterStandIn) -> None:
    running.on_submit = lambda _: [("FAILED", event(0, "version"))]
    shown = cli("evict", f"{MODEL}/0", "--yes")
    assert shown.code == 1
    assert "evict it again" in shown.err
    assert "apply" not in shown.err


def test_a_model_that_the_fleet_file_protects_is_not_ended_and_nobody_is_asked(
    cli, running: ClusterStandIn, fleet_file: Path
) -> None:
    text = fleet_file.read_text().replace("spec:\n", "spec:\n  policy: {protectedModels: ['org/one:*']}\n")
    fleet_file.write_text(text)
    shown = cli("evict", f"{MODEL}/1", "-f", fleet_file, typed="y\n")
    assert shown.code == 4
    assert f"{MODEL}/1 stays: spec.policy.protectedModels: org/one:* at {fleet_file}:5:29 protects it" in shown.err
    assert "?" not in shown.err
    assert running.writes() == []
    fleet_file.write_text(text.replace("org/one:*", "org/two"))
    assert cli("evict", f"{MODEL}/1", "-f", fleet_file, "--yes").code == 0
