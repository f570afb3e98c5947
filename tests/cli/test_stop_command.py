"""`fleetctl stop`: ends the job of an apply, lists the replicas that stay, and touches nothing else."""

from __future__ import annotations

import pytest
from apply_answers import VERSION, outcome
from cluster_stand_in import ClusterStandIn, StoredJob, event, summary

CREATED = event(1, "replicaCreated", "org/one/0: created on node-a", model="org/one", replicaId=0)
JOB = "fleetctl-apply-8dd5457ba23d"


@pytest.fixture
def running(cluster: ClusterStandIn) -> StoredJob:
    """A running apply that has created one replica; when stopped, it reports and ends."""
    job = cluster.add_job(JOB, verb="apply", fleet="lab", who="ann@desk")
    job.status, job.log = "RUNNING", VERSION + CREATED
    rest = outcome("skipped", 1, code="INTERRUPTED")
    report = summary(2, outcome("starting"), rest, code=3, interrupted=True)

    def end(stopped: StoredJob) -> None:
        stopped.steps = [("STOPPED", stopped.log + report)]

    cluster.on_stop = end
    return job


STOP = [("POST", f"/api/jobs/{JOB}/stop")]


@pytest.mark.parametrize("words", [[], [JOB], ["8dd5"]])
def test_the_apply_is_stopped_and_its_replicas_are_reported(
    cli, cluster: ClusterStandIn, running: StoredJob, words: list[str]
) -> None:
    result = cli("stop", *words, typed="y\n")
    assert result.code == 0, result.err
    assert "Stop the apply of fleet lab" in result.err
    assert "started by ann@desk; 1 replica created so far; created replicas stay" in result.err
    assert result.out.splitlines()[-1] == "Apply, interrupted: 1 starting, 1 skipped, 0 removed"
    assert "is stopped; what it created stays (1 replica)" in result.err
    assert cluster.writes() == STOP


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("\n", 1), (None, 64)])
def test_without_a_yes_nothing_is_sent(
    cli, cluster: ClusterStandIn, running: StoredJob, typed: str | None, code: int
) -> None:
    assert cli("stop", typed=typed).code == code
    assert cluster.writes() == []
    assert cli("stop", "--yes").code == 0


def test_a_job_that_is_not_an_apply_of_fleetctl_cannot_be_stopped(cli, cluster: ClusterStandIn) -> None:
    cluster.add_job("fleetctl-evict-1", verb="evict", fleet="lab").status = "RUNNING"
    cluster.add_job("training", verb="apply").body["metadata"] = {}
    for job in ("fleetctl-evict-1", "training"):
        result = cli("stop", job, "--yes")
        assert (result.code, f"no such run: {job}" in result.err) == (1, True)
    assert "no apply is running" in cli("stop", "--yes").err
    assert cluster.writes() == []


def test_one_of_several_applies_has_to_be_named_and_an_ended_one_is_left_alone(
    cli, cluster: ClusterStandIn, running: StoredJob
) -> None:
    cluster.add_job("fleetctl-apply-2", verb="apply", fleet="other").status = "RUNNING"
    several = cli("stop", "--yes")
    assert (several.code, "name one: fleetctl stop JOB" in several.err) == (64, True)
    cluster.add_job("fleetctl-apply-3", verb="apply", fleet="lab").status = "SUCCEEDED"
    ended = cli("stop", "fleetctl-apply-3", "--yes")
    assert (ended.code, "has already ended" in ended.err) == (0, True)
    assert cluster.writes() == []


def test_an_apply_killed_before_its_report_still_lists_its_replicas(
    cli, cluster: ClusterStandIn, running: StoredJob
) -> None:
    cluster.on_stop = lambda job: setattr(job, "status", "STOPPED")
    result = cli("stop", "--yes")
    assert result.code == 0
    assert "org/one/0: created on node-a" in result.err


def test_an_apply_that_does_not_end_is_reported_and_not_awaited(
    cli, cluster: ClusterStandIn, running: StoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.apply.follow.STOP_PATIENCE_S", 0.0)
    cluster.on_stop = lambda _: None
    result = cli("stop", "--yes")
    assert (result.code, "was asked to stop and has not ended yet" in result.err) == (7, True)


def test_a_cluster_that_refuses_the_stop_is_an_error(cli, cluster: ClusterStandIn, running: StoredJob) -> None:
    cluster.refusals["POST", f"/api/jobs/{JOB}"] = [(405, "GET only")]
    result = cli("stop", "--yes")
    assert result.code == 1
    assert "was not stopped and continues" in result.err
