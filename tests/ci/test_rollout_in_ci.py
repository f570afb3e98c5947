"""`fleetctl ci rollout` after a merge: it replaces what is outdated, and says so; the review has said it before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_stand_in import ClusterStandIn, Steps, all_ready, event, serve
from pull_request import FLEET, PullRequest


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """Two nodes of 8 GPUs with an outdated replica; every created replica becomes ready, and evicted ones end."""
    stand_in = ClusterStandIn()

    def act(request: dict) -> Steps:  # type: ignore[type-arg]
        if "plan" in request:
            for action in request["plan"]["actions"]:
                member = action["members"][0]
                stand_in.add_replica("org/one", action["replicaId"], member["nodeId"], gpus=member["gpus"],
                                     spec_hash=action["specHash"])
            return all_ready(request)[-1:]
        [one] = request["replicas"]
        stand_in.actors = [actor for actor in stand_in.actors if actor["actor_id"] != one["actorId"]]
        row = {"model": "org/one", "replicaId": one["replicaId"], "outcome": "gone", "nodes": [], "message": ""}
        return [("SUCCEEDED", event(0, "runSummary", "done", outcomes=[row], exitCode=0))]

    stand_in.on_submit = act
    for name in ("node-a", "node-b"):
        stand_in.add_node(name)
    stand_in.add_replica("org/one", 0, stand_in.nodes[0]["node_id"], gpus=10_000, spec_hash="old")
    with serve(stand_in):
        yield stand_in


def test_a_review_says_what_a_rollout_would_replace(job, pull: PullRequest, cluster: ClusterStandIn) -> None:
    pull.merge(FLEET + "# merged\n")
    result = job("ci", "review", "-f", "fleet.yaml", FLEETCTL_ADDRESS=cluster.url)
    assert "1 outdated" in result.summary


def test_after_a_merge_the_outdated_replicas_are_replaced_without_a_question(
    job, pull: PullRequest, cluster: ClusterStandIn
) -> None:
    pull.merge(FLEET + "# merged\n")
    result = job("ci", "rollout", "-f", "fleet.yaml", FLEETCTL_ADDRESS=cluster.url)
    assert result.code == 0
    assert [actor["name"] for actor in cluster.actors] == ["ModelActor:org/one:1"]
    assert "## Rollout of fleet lab" in result.summary
    assert result.outputs["summary"] == "Rollout: 1 ready, 1 gone"
    assert pull.hub.requests == []
    again = job("ci", "rollout", FLEETCTL_FILES="fleet.yaml", FLEETCTL_ADDRESS=cluster.url)
    assert (again.code, again.outputs["exit_code"]) == (0, "0")


def test_an_error_is_reported_and_no_files_are_a_usage_error(job, pull: PullRequest, cluster: ClusterStandIn) -> None:
    pull.merge(FLEET.replace("replicas", "replica"))
    result = job("ci", "rollout", "-f", "fleet.yaml", FLEETCTL_ADDRESS=cluster.url)
    assert (result.code, result.outputs["exit_code"]) == (1, "1")
    assert "No rollout of fleet lab" in result.summary
    assert job("ci", "rollout", FLEETCTL_ADDRESS=cluster.url).code == 64
