"""`fleetctl ci drift` on a schedule: one issue lists the drift, and is closed when there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, event, serve, summary
from pull_request import FLEET, PullRequest

from fleetctl.fleetfile.load import load_fleet


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """Two empty nodes of 8 GPUs."""
    stand_in = ClusterStandIn()
    stand_in.add_node("node-a")
    stand_in.add_node("node-b")
    with serve(stand_in):
        yield stand_in


@pytest.fixture
def scheduled(pull: PullRequest, cluster: ClusterStandIn) -> PullRequest:
    """A scheduled run on the main branch."""
    pull.merge(FLEET + "# merged\n")
    pull.environ.update(FLEETCTL_ADDRESS=cluster.url)
    return pull


def run_replica(cluster: ClusterStandIn, scheduled: PullRequest, spec_hash: str | None = None) -> None:
    [model] = load_fleet([str(Path(scheduled.environ["GITHUB_WORKSPACE"]) / "fleet.yaml")]).models
    cluster.actors.clear()
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"], spec_hash=spec_hash or model.spec_hash)


def test_the_issue_is_opened_updated_and_closed_with_the_drift(
    job, scheduled: PullRequest, cluster: ClusterStandIn
) -> None:
    hub = scheduled.hub
    run_replica(cluster, scheduled)
    fine = job("ci", "drift", "-f", "fleet.yaml")
    assert (fine.code, hub.issues, fine.outputs["exit_code"]) == (0, [], "0")
    assert fine.outputs["summary"] == "No drift: no replica is missing, and all match the files"

    cluster.actors.clear()
    missing = job("ci", "drift", "-f", "fleet.yaml")
    assert missing.code == 2
    [issue] = hub.issues
    assert (issue["state"], issue["title"]) == ("open", "Drift of fleet lab")
    assert "Drift: 1 can be created" in issue["body"]
    assert "## Drift of fleet lab" in missing.summary

    run_replica(cluster, scheduled, "another")
    outdated = job("ci", "drift", "-f", "fleet.yaml")
    assert outdated.code == 2
    assert "Drift: 1 outdated" in hub.issues[0]["body"]

    run_replica(cluster, scheduled)
    assert job("ci", "drift", "-f", "fleet.yaml").code == 0
    assert [row["state"] for row in hub.issues] == ["closed"]
    assert "No drift" in hub.issues[0]["body"]
    assert cluster.writes() == []


def test_failed_replicas_that_are_still_missing_are_in_the_issue(
    job, scheduled: PullRequest, cluster: ClusterStandIn
) -> None:
    row = {"model": "org/one", "replicaId": 0, "outcome": "failed", "code": "ENGINE_EXITED", "message": "CUDA error"}
    log = event(0, "version") + summary(1, row, code=3)
    cluster.add_job("fleetctl-apply-1", start_time=1, verb="apply", fleet="lab").log = log
    cluster.jobs["fleetctl-apply-1"].status = "SUCCEEDED"
    result = job("ci", "drift", "-f", "fleet.yaml", "--report", "jsonl=drift.jsonl")
    assert result.code == 3
    assert "1 can be created, 1 failed in the latest apply" in result.outputs["summary"]
    assert "CUDA error" in scheduled.hub.issues[0]["body"]
    lines = [json.loads(line) for line in
             (Path(scheduled.environ["GITHUB_WORKSPACE"]) / "drift.jsonl").read_text().splitlines()]
    assert any(line.get("code") == "ENGINE_EXITED" for line in lines)
    run_replica(cluster, scheduled)
    assert job("ci", "drift", "-f", "fleet.yaml").code == 0


def test_cards_in_use_by_others_and_ended_cordons_keep_the_issue_open_and_the_exit_code_0(
    job, scheduled: PullRequest, cluster: ClusterStandIn
) -> None:
    run_replica(cluster, scheduled)
    card = {"uuid": "GPU-0", "name": "H100", "memoryTotal": 81920}
    cluster.of_node[cluster.nodes[1]["node_id"]] = {
        "gpus": [{**card, "index": index, "memoryUsed": 20480 * (index == 2)} for index in range(8)]}
    cluster.add_job("n", ("SUCCEEDED", ""), verb="cordon", nodeName="node-a", until="2026-01-01T00:00:00Z").step()
    result = job("ci", "drift", "-f", "fleet.yaml")
    assert (result.code, scheduled.hub.issues[0]["state"]) == (0, "open")
    assert result.outputs["summary"].endswith("all match the files; 2 warnings")
    body = scheduled.hub.issues[0]["body"]
    assert "CARD_IN_USE" in body
    assert "CORDON_ENDED" in body
    cluster.of_node.clear()
    cluster.add_job("m", ("SUCCEEDED", ""), start_time=2, verb="uncordon", nodeName="node-a").step()
    assert job("ci", "drift", "-f", "fleet.yaml").code == 0
    assert scheduled.hub.issues[0]["state"] == "closed"


@pytest.mark.parametrize(("fleet", "code"), [
    (FLEET.replace("replicas: 1", "replicas: 3"), 3),
    (FLEET.replace("spec:\n", "spec:\n  policy: {maxNewGpus: 0}\n"), 4),
])
def test_the_exit_code_is_that_of_the_worst_drift(
    job, scheduled: PullRequest, cluster: ClusterStandIn, fleet: str, code: int
) -> None:
    (Path(scheduled.environ["GITHUB_WORKSPACE"]) / "fleet.yaml").write_text(fleet)
    assert job("ci", "drift", "-f", "fleet.yaml", "--no-issue").code == code
    assert scheduled.hub.requests == []


def test_an_error_leaves_the_issue_as_it_is(job, scheduled: PullRequest, cluster: ClusterStandIn) -> None:
    assert job("ci", "drift", "-f", "fleet.yaml").code == 2
    before = dict(scheduled.hub.issues[0])
    result = job("ci", "drift", "-f", "fleet.yaml", FLEETCTL_ADDRESS="http://127.0.0.1:1")
    assert result.code == 1
    assert "No check of fleet lab" in result.summary
    assert scheduled.hub.issues == [before]


def test_an_issue_that_cannot_be_written_changes_no_exit_code(
    job, scheduled: PullRequest, cluster: ClusterStandIn
) -> None:
    result = job("ci", "drift", "-f", "fleet.yaml", GITHUB_TOKEN="")
    assert result.code == 2
    assert "no issue was written: GITHUB_TOKEN is not set" in result.log
