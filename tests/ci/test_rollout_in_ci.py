"""`fleetctl ci rollout` replaces what is outdated without a question; a review says before what it will do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, Steps, all_ready, event, serve
from pull_request import FLEET, PullRequest

BOT = "github-actions[bot]"
SMALL = FLEET.replace("gpus: 8", "gpus: 4")


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """A node with an outdated replica; its agents do what they are asked to do."""
    def act(request: dict[str, Any]) -> Steps:
        if "plan" in request:
            for action in request["plan"]["actions"]:
                stand_in.add_replica(action["model"], action["replicaId"], action["members"][0]["nodeId"],
                                     gpus=40_000, spec_hash=action["specHash"])
            return all_ready(request)[-1:]
        [one] = request["replicas"]
        stand_in.actors = [actor for actor in stand_in.actors if not actor["name"].endswith(f":{one['replicaId']}")]
        row = {"model": one["model"], "replicaId": one["replicaId"], "outcome": "gone", "nodes": [], "message": ""}
        return [("SUCCEEDED", event(0, "runSummary", "done", outcomes=[row], exitCode=0))]

    stand_in = ClusterStandIn(on_submit=act)
    stand_in.add_node("node-a")
    stand_in.add_replica("org/one", 0, stand_in.nodes[0]["node_id"], gpus=40_000, spec_hash="old")
    with serve(stand_in):
        yield stand_in


def test_a_rollout_after_the_merge_is_reported_on_the_summary_page(
    job, pull: PullRequest, cluster: ClusterStandIn
) -> None:
    pull.merge(SMALL)
    result = job("ci", "rollout", FLEETCTL_FILES="fleet.yaml", FLEETCTL_ADDRESS=cluster.url, FLEETCTL_AT_ONCE="2")
    assert result.code == 0, result.log
    assert "## Rollout of fleet lab" in result.summary
    assert result.outputs["summary"] == "Rollout: 1 ready, 1 gone"
    assert (result.outputs["exit_code"], result.outputs["has_changes"]) == ("0", "true")
    assert [actor["name"] for actor in cluster.actors] == ["ModelActor:org/one:1"]


def test_fail_on_lets_a_protected_model_pass(job, pull: PullRequest, cluster: ClusterStandIn) -> None:
    pull.merge(SMALL.replace("spec:\n", "spec:\n  policy: {protectedModels: [org/one]}\n"))
    settings = {"FLEETCTL_FILES": "fleet.yaml", "FLEETCTL_ADDRESS": cluster.url}
    assert job("ci", "rollout", **settings).code == 3
    passed = job("ci", "rollout", FLEETCTL_FAIL_ON="failed", **settings)
    assert (passed.code, cluster.jobs) == (0, {})
    assert "the rollout is partial (3), and --fail-on failed lets the job pass" in passed.log


def test_an_error_is_reported_to_the_forge(job, pull: PullRequest, cluster: ClusterStandIn) -> None:
    pull.merge("a: [")
    result = job("ci", "rollout", FLEETCTL_FILES="fleet.yaml", FLEETCTL_ADDRESS=cluster.url)
    assert (result.code, result.outputs["exit_code"]) == (1, "1")
    assert "No rollout of fleet" in result.summary


def test_the_comment_of_a_review_says_what_a_rollout_would_do(job, pull: PullRequest, cluster: ClusterStandIn) -> None:
    pull.push(SMALL)
    result = job("ci", "review", FLEETCTL_FILES="fleet.yaml", FLEETCTL_ADDRESS=cluster.url)
    assert result.code == 0
    [comment] = pull.hub.of(BOT)
    does = "would replace 1 outdated replica of 1 model; no apply does"
    assert f"| `fleetctl rollout -f fleet.yaml` | {does} |" in comment
    assert f"After the merge\n  ~ `fleetctl rollout -f fleet.yaml` {does}" in result.log
