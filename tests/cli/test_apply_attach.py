"""`fleetctl apply --attach`: follow a running apply, or show the result of one that ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from apply_answers import VERSION, outcome
from cluster_stand_in import ClusterStandIn, summary


def test_attach_follows_the_running_apply(cli, cluster: ClusterStandIn, fits: Path) -> None:
    blocked = {"model": "org/one", "outcome": "blocked", "code": "INSUFFICIENT_GPU", "replicas": 2}
    log = VERSION + summary(1, outcome("ready"), blocked, code=3)
    cluster.add_job("j1", ("SUCCEEDED", log), verb="apply", fleet="lab").status = "RUNNING"
    cluster.add_job("j0", verb="apply", fleet="lab").status = "SUCCEEDED"
    cluster.add_job("j2", verb="evict", fleet="lab").status = "RUNNING"
    result = cli("apply", "--attach")
    assert result.code == 3
    assert result.out.splitlines()[-1] == "Apply: 1 ready, 2 blocked, 0 removed"
    assert cluster.writes() == []


def test_attach_requires_a_job_if_several_are_running(cli, cluster: ClusterStandIn, fits: Path) -> None:
    for job, fleet in (("j1", "lab"), ("j2", "other")):
        log = VERSION + summary(1, outcome("ready"))
        cluster.add_job(job, ("SUCCEEDED", log), verb="apply", fleet=fleet).status = "RUNNING"
    several = cli("apply", "--attach")
    assert several.code == 64
    assert "j1 (fleet lab), j2 (fleet other)" in several.err
    assert cli("apply", "--attach", "j2").code == 0
    cluster.jobs["j2"].status = "RUNNING"
    assert cli("apply", "--attach", "-f", fits).code == 0


def test_attach_shows_the_result_of_an_ended_run(cli, cluster: ClusterStandIn) -> None:
    cluster.add_job("j1", verb="apply").log = VERSION + summary(1, outcome("failed", code="ENGINE_EXITED"), code=3)
    cluster.jobs["j1"].status = "SUCCEEDED"
    assert cli("apply", "--attach", "j1", "--format", "json").summary["exitCode"] == 3


def test_attach_to_another_verb_shows_its_result(cli, cluster: ClusterStandIn) -> None:
    job = "fleetctl-evict-b73085eeb5d4"
    cluster.add_job(job, verb="evict").log = VERSION + summary(1, outcome("gone"))
    cluster.jobs[job].status = "SUCCEEDED"
    for name in (job, "b73085eeb5d4", "b730"):  # as `history` and `stop` take it
        assert cli("apply", "--attach", name).out.splitlines()[-1] == "Evict: 1 gone"


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "no apply is running"), (["nowhere"], "no such run: nowhere"),
])
def test_attach_to_nothing_is_an_error(cli, arguments: list[str], words: str) -> None:
    result = cli("apply", "--attach", *arguments)
    assert result.code == 1
    assert words in result.err
