"""The cluster that gets the job's token: the one the job names, or the one in merged files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, all_ready, serve
from pull_request import FLEET, PullRequest


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """A cluster whose address is not loopback."""
    stand_in = ClusterStandIn(on_submit=lambda request: all_ready(request)[-1:])
    stand_in.add_node("node-a")
    with serve(stand_in):
        stand_in.url = stand_in.url.replace("127.0.0.1", "0.0.0.0")
        yield stand_in


@pytest.fixture
def fleet_in_base(pull: PullRequest, cluster: ClusterStandIn) -> str:
    """The fleet in the base, which names the cluster."""
    fleet = FLEET.replace("spec:\n", f"spec:\n  cluster: {{address: '{cluster.url}'}}\n")
    pull.main = pull.remote.commit("main", fleet)
    return fleet


@pytest.fixture
def merged(pull: PullRequest, fleet_in_base: str) -> PullRequest:
    """The push to main after the merge."""
    pull.merge(fleet_in_base + "# merged\n")
    return pull


def tokens(cluster: ClusterStandIn) -> set[str | None]:
    assert cluster.headers
    return {headers.get("authorization") for headers in cluster.headers}


def test_the_cluster_in_the_base_gets_the_token_in_a_review(
    job, pull: PullRequest, cluster: ClusterStandIn, fleet_in_base: str
) -> None:
    pull.push(fleet_in_base.replace("replicas: 1", "replicas: 2"))
    job("ci", "review", "-f", "fleet.yaml", "--no-comment", RAY_AUTH_TOKEN="t0ken")
    assert tokens(cluster) == {"Bearer t0ken"}


@pytest.mark.parametrize("address", [True, False], ids=["address", "none"])
def test_a_review_of_a_published_inventory_contacts_no_cluster(
    job, pull: PullRequest, cluster: ClusterStandIn, fleet_in_base: str, tmp_path: Path, address: bool
) -> None:
    """Neither the cluster of the job, nor that of the files, nor the one that the inventory was read from."""
    published = tmp_path / "published.json"
    published.write_text(job("inventory", "--address", cluster.url, "--format", "json", folder=tmp_path,
                             GITHUB_STEP_SUMMARY=str(tmp_path / "unused")).log)
    cluster.requests.clear()
    pull.push(fleet_in_base.replace("replicas: 1", "replicas: 2"))
    result = job("ci", "review", "-f", "fleet.yaml", "--inventory", published, "--no-comment", RAY_AUTH_TOKEN="t0ken",
                 **({"FLEETCTL_ADDRESS": cluster.url} if address else {}))
    assert result.code == 0, result.log
    assert f"from {cluster.url}" in result.log
    assert cluster.requests == []


def test_the_cluster_in_merged_files_gets_the_token(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    assert job("ci", "apply", "-f", "fleet.yaml", RAY_AUTH_TOKEN="t0ken").code == 0
    assert tokens(cluster) == {"Bearer t0ken"}


def test_the_address_in_a_saved_plan_is_not_trusted(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    assert job("ci", "review", "-f", "fleet.yaml", "--out", "lab.fleetplan").code == 0
    cluster.headers.clear()
    assert job("ci", "apply", "lab.fleetplan", RAY_AUTH_TOKEN="t0ken").code == 0
    assert tokens(cluster) == {None}


@pytest.mark.parametrize("verb", ["review", "apply"])
def test_a_job_without_a_known_change_sends_no_token(
    job, merged: PullRequest, cluster: ClusterStandIn, verb: str
) -> None:
    job("ci", verb, "-f", "fleet.yaml", "--forge", "none", RAY_AUTH_TOKEN="t0ken")
    assert tokens(cluster) == {None}


def test_an_apply_of_a_change_under_review_sends_no_token(
    job, pull: PullRequest, cluster: ClusterStandIn, fleet_in_base: str
) -> None:
    pull.push(fleet_in_base + "# a change\n")
    job("ci", "apply", "-f", "fleet.yaml", RAY_AUTH_TOKEN="t0ken")
    assert tokens(cluster) == {None}


def test_a_token_over_plain_http_is_warned_about_once_for_each_host(
    job, pull: PullRequest, cluster: ClusterStandIn, fleet_in_base: str
) -> None:
    pull.push(fleet_in_base.replace("replicas: 1", "replicas: 2"))
    forge = pull.hub.url.replace("127.0.0.1", "0.0.0.0")
    plain = {"GITHUB_API_URL": forge, "RAY_AUTH_TOKEN": "t0ken"}
    log = job("ci", "review", "-f", "fleet.yaml", **plain).log
    for secret, url in (("the cluster's token", cluster.url), ("the token for the forge", forge)):
        assert log.count(f"sending {secret} to {url.removeprefix('http://')} over plain http") == 1
    assert "plain http" not in job("ci", "review", "-f", "fleet.yaml", FLEETCTL_PLAIN_HTTP="0.0.0.0", **plain).log
