"""`fleetctl ci apply` after a merge: a saved plan once, or a new plan of the files, with a summary page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, all_ready, serve, summary
from pull_request import FLEET, PullRequest


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """Two nodes of 8 GPUs; every created replica becomes ready."""
    stand_in = ClusterStandIn(on_submit=lambda request: all_ready(request)[-1:])
    stand_in.add_node("node-a")
    stand_in.add_node("node-b")
    with serve(stand_in):
        yield stand_in


@pytest.fixture
def merged(pull: PullRequest, cluster: ClusterStandIn) -> PullRequest:
    """The push to main after the merge, without a pull request."""
    pull.merge(FLEET + "# merged\n")
    pull.environ.update(FLEETCTL_ADDRESS=cluster.url)
    return pull


def test_files_are_planned_and_applied_without_a_question(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    result = job("ci", "apply", "-f", "fleet.yaml")
    assert result.code == 0
    assert len(cluster.jobs) == 1
    assert "Apply: 1 ready, 0 removed" in result.summary
    assert "org/one/0" in result.summary
    assert result.outputs["exit_code"] == "0"
    assert result.outputs["has_changes"] == "true"
    assert result.outputs["summary"] == "Apply: 1 ready, 0 removed"
    assert merged.hub.requests == []


def test_a_saved_plan_is_applied_exactly_and_once(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    reviewed = job("ci", "review", "-f", "fleet.yaml", FLEETCTL_PLAN="lab.fleetplan")
    assert job("ci", "apply", FLEETCTL_PLAN="lab.fleetplan", FLEETCTL_FILES="fleet.yaml").code == 0
    [done] = cluster.jobs.values()
    assert done.body["metadata"]["planId"] == reviewed.outputs["plan_id"]
    again = job("ci", "apply", "lab.fleetplan")
    assert again.code == 6
    assert again.outputs["exit_code"] == "6"
    assert len(cluster.jobs) == 1


def test_a_stale_plan_lists_the_changes_on_the_summary_page(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    job("ci", "review", "-f", "fleet.yaml", "--out", "lab.fleetplan")
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"])
    result = job("ci", "apply", "lab.fleetplan")
    assert result.code == 6
    assert "## No apply of fleet lab" in result.summary
    assert "0 live when planned, 1 now" in result.summary
    assert len(result.outputs["plan_id"]) == 64
    assert result.outputs["summary"] == "1 error", "an error may quote the plan and the cluster"
    assert cluster.jobs == {}


def test_a_damaged_plan_is_refused_and_reported(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "lab.fleetplan").write_text("{}")
    result = job("ci", "apply", "lab.fleetplan")
    assert (result.code, result.outputs["exit_code"], result.outputs["plan_id"]) == (1, "1", "")
    assert "No apply" in result.summary
    assert cluster.requests == []


def test_blocked_replicas_are_reported_and_exit_with_3(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "fleet.yaml").write_text(FLEET.replace("replicas: 1", "replicas: 3"))
    result = job("ci", "apply", "-f", "fleet.yaml")
    assert result.code == 3
    assert "INSUFFICIENT_GPU" in result.summary
    assert "::error" in result.log


def test_a_plain_fleet_file_is_not_taken_for_a_saved_plan(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    result = job("ci", "apply", "fleet.yaml")
    assert (result.code, result.outputs["summary"]) == (0, "Apply: 1 ready, 0 removed")


@pytest.mark.parametrize(("outcome", "fail_on", "code"), [
    ("blocked", "blocked", 3), ("blocked", "failed", 0), ("blocked", "never", 0), ("blocked", "", 3),
    ("failed", "failed", 3), ("failed", "never", 0), ("starting", "failed", 3), ("broken", "never", 1),
])
def test_fail_on_changes_the_exit_code_and_not_the_report(
    job, merged: PullRequest, cluster: ClusterStandIn, outcome: str, fail_on: str, code: int
) -> None:
    fleet = {"blocked": FLEET.replace("replicas: 1", "replicas: 3"), "broken": "a: ["}.get(outcome, FLEET)
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "fleet.yaml").write_text(fleet)
    if outcome in ("failed", "starting"):
        row = {"model": "org/one", "replicaId": 0, "outcome": outcome, "code": "ENGINE_EXITED"}
        cluster.on_submit = lambda _: [("SUCCEEDED", summary(0, row, code=3))]
    result = job("ci", "apply", "-f", "fleet.yaml", FLEETCTL_FAIL_ON=fail_on)
    assert result.code == code, result.log
    assert result.outputs["exit_code"] == ("1" if outcome == "broken" else "3")
    assert (f"--fail-on {fail_on} lets the job pass" in result.log) is (code == 0)


def test_a_stopped_apply_is_not_reported_as_nothing_to_do(
    job, merged: PullRequest, cluster: ClusterStandIn
) -> None:
    cluster.on_submit = lambda _: [("STOPPED", summary(0, code=130, interrupted=True))]
    result = job("ci", "apply", "-f", "fleet.yaml")
    assert (result.code, result.outputs["exit_code"], result.outputs["summary"]) == (130, "130", "Apply, interrupted")
    assert "nothing to do" not in result.summary


def test_a_policy_refuses_before_anything_is_started(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    refused = FLEET.replace("spec:\n", "spec:\n  policy: {maxNewReplicas: 0}\n")
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "fleet.yaml").write_text(refused)
    result = job("ci", "apply", "-f", "fleet.yaml")
    assert result.code == 4
    assert "maxNewReplicas" in result.summary
    assert cluster.jobs == {}


def test_a_broken_file_applies_nothing(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "fleet.yaml").write_text("a: [")
    result = job("ci", "apply", "-f", "fleet.yaml")
    assert result.code == 1
    assert result.summary
    assert cluster.writes() == []


def test_the_lock_timeout_comes_from_the_variable_or_is_the_default(
    job, merged: PullRequest, cluster: ClusterStandIn
) -> None:
    for environ, seconds in (({}, 600), ({"FLEETCTL_LOCK_TIMEOUT": "90s"}, 90), ({"FLEETCTL_LOCK_TIMEOUT": ""}, 600)):
        cluster.jobs.clear()
        assert job("ci", "apply", "-f", "fleet.yaml", **environ).code == 0
        [submitted] = cluster.jobs
        assert cluster.request_of(submitted)["lockTimeout"] == seconds


@pytest.mark.parametrize("variable", ["FLEETCTL_REPORTS", "FLEETCTL_INVENTORY"])
def test_settings_that_an_apply_ignores_are_refused(
    job, merged: PullRequest, cluster: ClusterStandIn, variable: str
) -> None:
    result = job("ci", "apply", "-f", "fleet.yaml", **{variable: "html=plan.html"})
    assert result.code == 64
    assert variable in result.log
    assert cluster.requests == []


def test_nothing_to_apply_is_a_usage_error(job, merged: PullRequest) -> None:
    assert job("ci", "apply").code == 64
