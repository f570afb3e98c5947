"""`fleetctl ci apply` after a merge: a saved plan once, or the files afresh; the summary page says how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, all_ready, serve, summary
from pull_request import FLEET, PullRequest


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """Two nodes of 8 GPUs; all that is created becomes ready."""
    stand_in = ClusterStandIn(on_submit=lambda request: all_ready(request)[-1:])
    stand_in.add_node("node-a")
    stand_in.add_node("node-b")
    with serve(stand_in):
        yield stand_in


@pytest.fixture
def merged(pull: PullRequest, cluster: ClusterStandIn) -> PullRequest:
    """The push to main that follows the merge, without a pull request."""
    pull.merge(FLEET + "# merged\n")
    pull.environ.update(FLEETCTL_ADDRESS=cluster.url)
    return pull


def test_files_are_planned_and_applied_without_a_question(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    ended = job("ci", "apply", "-f", "fleet.yaml")
    assert ended.code == 0
    assert len(cluster.jobs) == 1
    assert "Apply: 1 ready, 0 removed" in ended.summary
    assert "org/one/0" in ended.summary
    assert ended.outputs["exit_code"] == "0"
    assert ended.outputs["has_changes"] == "true"
    assert ended.outputs["summary"] == "Apply: 1 ready, 0 removed"
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
    ended = job("ci", "apply", "lab.fleetplan")
    assert ended.code == 6
    assert "## No apply of fleet lab" in ended.summary
    assert "0 live when planned, 1 now" in ended.summary
    assert len(ended.outputs["plan_id"]) == 64
    assert ended.outputs["summary"] == "1 error", "an error may quote the plan and the cluster"
    assert cluster.jobs == {}


def test_a_damaged_plan_is_refused_and_reported(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "lab.fleetplan").write_text("{}")
    ended = job("ci", "apply", "lab.fleetplan")
    assert (ended.code, ended.outputs["exit_code"], ended.outputs["plan_id"]) == (1, "1", "")
    assert "No apply" in ended.summary
    assert cluster.requests == []


def test_blocked_replicas_are_reported_with_3(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "fleet.yaml").write_text(FLEET.replace("replicas: 1", "replicas: 3"))
    ended = job("ci", "apply", "-f", "fleet.yaml")
    assert ended.code == 3
    assert "INSUFFICIENT_GPU" in ended.summary
    assert "::error" in ended.log


def test_a_plain_fleet_file_is_no_saved_plan(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    ended = job("ci", "apply", "fleet.yaml")
    assert (ended.code, ended.outputs["summary"]) == (0, "Apply: 1 ready, 0 removed")


@pytest.mark.parametrize(("how", "fail_on", "code"), [
    ("blocked", "blocked", 3), ("blocked", "failed", 0), ("blocked", "never", 0), ("blocked", "", 3),
    ("failed", "failed", 3), ("failed", "never", 0), ("starting", "failed", 3), ("broken", "never", 1),
])
def test_fail_on_changes_the_exit_code_and_not_the_report(
    job, merged: PullRequest, cluster: ClusterStandIn, how: str, fail_on: str, code: int
) -> None:
    fleet = {"blocked": FLEET.replace("replicas: 1", "replicas: 3"), "broken": "a: ["}.get(how, FLEET)
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "fleet.yaml").write_text(fleet)
    if how in ("failed", "starting"):
        row = {"model": "org/one", "replicaId": 0, "outcome": how, "code": "ENGINE_EXITED"}
        cluster.on_submit = lambda _: [("SUCCEEDED", summary(0, row, code=3))]
    ended = job("ci", "apply", "-f", "fleet.yaml", FLEETCTL_FAIL_ON=fail_on)
    assert ended.code == code, ended.log
    assert ended.outputs["exit_code"] == ("1" if how == "broken" else "3")
    assert (f"--fail-on {fail_on} lets the job pass" in ended.log) is (code == 0)


def test_a_stopped_apply_is_not_reported_as_one_without_work(
    job, merged: PullRequest, cluster: ClusterStandIn
) -> None:
    cluster.on_submit = lambda _: [("STOPPED", summary(0, code=130, interrupted=True))]
    ended = job("ci", "apply", "-f", "fleet.yaml")
    assert (ended.code, ended.outputs["exit_code"], ended.outputs["summary"]) == (130, "130", "Apply, interrupted")
    assert "nothing to do" not in ended.summary


def test_a_policy_refuses_before_anything_is_begun(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    refused = FLEET.replace("spec:\n", "spec:\n  policy: {maxNewReplicas: 0}\n")
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "fleet.yaml").write_text(refused)
    ended = job("ci", "apply", "-f", "fleet.yaml")
    assert ended.code == 4
    assert "maxNewReplicas" in ended.summary
    assert cluster.jobs == {}


def test_a_broken_file_applies_nothing(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    (Path(merged.environ["GITHUB_WORKSPACE"]) / "fleet.yaml").write_text("a: [")
    ended = job("ci", "apply", "-f", "fleet.yaml")
    assert ended.code == 1
    assert ended.summary
    assert cluster.writes() == []


def test_it_waits_for_the_lock_as_long_as_the_flag_says(job, merged: PullRequest, cluster: ClusterStandIn) -> None:
    for environ, seconds in (({}, 600), ({"FLEETCTL_LOCK_TIMEOUT": "90s"}, 90), ({"FLEETCTL_LOCK_TIMEOUT": ""}, 600)):
        cluster.jobs.clear()
        assert job("ci", "apply", "-f", "fleet.yaml", **environ).code == 0
        [submitted] = cluster.jobs
        assert cluster.request_of(submitted)["lockTimeout"] == seconds


@pytest.mark.parametrize("variable", ["FLEETCTL_REPORTS", "FLEETCTL_INVENTORY"])
def test_settings_that_an_apply_ignores_are_refused(
    job, merged: PullRequest, cluster: ClusterStandIn, variable: str
) -> None:
    ended = job("ci", "apply", "-f", "fleet.yaml", **{variable: "html=plan.html"})
    assert ended.code == 64
    assert variable in ended.log
    assert cluster.requests == []


def test_nothing_to_apply_is_a_usage_error(job, merged: PullRequest) -> None:
    assert job("ci", "apply").code == 64
