"""`fleetctl apply` from its flags to its exit code, against a stand-in cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apply_answers import VERSION, add_all_replicas, outcome
from cluster_stand_in import ClusterStandIn, all_ready, ready, summary


def test_apply_exits_with_0_and_lists_every_replica_once_all_are_ready(cli, fits: Path) -> None:
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 0
    assert "org/one/0" in result.out
    assert "10.0.0.7:7001" in result.out
    assert result.out.splitlines()[-1] == "Apply: 3 ready, 0 removed"
    assert "apply --attach" in result.err


@pytest.mark.parametrize("chosen", ["table", "json", "jsonl"])
def test_warnings_about_the_files_are_told_once_in_every_format(cli, fits: Path, chosen: str) -> None:
    fits.write_text(fits.read_text().replace("command: [", "command: [vllm, serve, x, --port, '8000', ", 1))
    result = cli("apply", "-f", fits, "--yes", "--format", chosen)
    assert result.code == 0
    assert (result.out + result.err).count("FL065") == 1
    assert ("FL065" in result.out) == (chosen == "table")


def test_only_warnings_about_planned_models_and_the_files_as_a_whole_are_told(cli, fits: Path) -> None:
    text = fits.read_text()
    assert text.count("command: [") == 2
    fits.write_text(text.replace("command: [", "command: ['--port 8000', ").replace(
        "spec:", "spec:\n  policy: {quotas: [{selector: {team: nobody}, gpus: 1}]}"))
    assert cli("plan", "-f", fits).out.count("FL071") == 2
    result = cli("plan", "-f", fits, "--target", "org/one")
    assert result.out.count("FL071") == 1
    assert result.out.count("FL076") == 1


def test_a_replica_that_does_not_fit_is_listed_with_its_reason_and_the_code_is_3(cli, fleet_file: Path) -> None:
    written = fleet_file.read_bytes()
    result = cli("apply", "-f", fleet_file, "--yes")
    assert result.code == 3
    assert fleet_file.read_bytes() == written, "the target stays, and the next apply tries again"
    assert result.out.splitlines()[-1] == "Apply: 3 ready, 1 blocked, 0 removed"
    table = result.out.rpartition("REPLICA ")[2]
    assert "org/one blocked (INSUFFICIENT_GPU)" in table
    assert "needs 8 free GPUs" in table


def test_with_nothing_to_do_no_job_is_submitted_and_the_exit_code_is_0(
    cli, cluster: ClusterStandIn, fits: Path
) -> None:
    add_all_replicas(cluster)
    result = cli("apply", "-f", fits)
    assert result.code == 0
    assert result.out.splitlines()[-1] == "Apply: nothing to do, 0 removed"
    assert cluster.writes() == []


def test_with_only_blocked_replicas_no_job_is_submitted_and_the_exit_code_is_3(
    cli, cluster: ClusterStandIn, fleet_file: Path
) -> None:
    add_all_replicas(cluster)
    report = cli("apply", "-f", fleet_file, "--format", "json").summary
    assert report["exitCode"] == 3
    [row] = report["outcomes"]
    assert (row["outcome"], row["model"]) == ("blocked", "org/one")
    assert cluster.writes() == []


def test_surplus_replicas_and_models_no_longer_in_the_file_are_kept(
    cli, cluster: ClusterStandIn, fits: Path
) -> None:
    add_all_replicas(cluster)
    cluster.add_replica("gone/from-file", 0, cluster.nodes[0]["node_id"], gpus=0)
    fits.write_text(fits.read_text().replace("replicas: 2", "replicas: 0").replace("replicas: 1", "replicas: 0"))
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 0
    assert "held: 2 beyond the target of 0, kept" in result.out
    assert cluster.writes() == []


def test_starting_replicas_are_awaited_without_a_question(cli, cluster: ClusterStandIn, fits: Path) -> None:
    add_all_replicas(cluster)
    cluster.actors[0].update(state="RESTARTING")
    cluster.on_submit = lambda request: [("SUCCEEDED", VERSION + summary(1, ready(request["await"][0]["key"], 0)))]
    result = cli("apply", "-f", fits)
    assert result.code == 0
    assert "org/one/0" in result.out
    assert len(cluster.jobs) == 1


def test_a_held_lock_exits_with_5_and_names_the_holder(cli, cluster: ClusterStandIn, fits: Path) -> None:
    holder = {"job": "fleetctl-apply-9", "who": "bob@ci"}
    cluster.on_submit = lambda _: [("FAILED", VERSION + summary(1, code=5, message="the lock is held", holder=holder))]
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 5
    assert "the lock is held, started by bob@ci" in result.err
    assert "fleetctl stop fleetctl-apply-9" in result.err


def test_a_dead_agent_exits_with_1_and_suggests_another_apply(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = lambda _: [("FAILED", VERSION)]
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 1
    assert "without a summary" in result.err
    assert "run the same command again" in result.err


def test_the_wait_timeout_exits_with_7_and_the_apply_continues(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = lambda _: [("RUNNING", VERSION)]
    result = cli("apply", "-f", fits, "--yes", "--wait-timeout", "10ms")
    assert result.code == 7
    [job] = cluster.jobs
    assert f"apply --attach {job}" in result.err
    assert not cluster.jobs[job].stopped


def test_a_cluster_that_refuses_jobs_is_an_error_that_says_why(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.refusals["PUT", "/api/packages"] = [(405, "Method Not Allowed")]
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 1
    assert "a GET-only proxy is enough for plan, not for apply" in result.err


def test_an_incomplete_inventory_causes_no_action(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.refusals["GET", "/api/v0/actors"] = [(500, "")] * 10
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 1
    assert cluster.writes() == []


def test_flags_reach_the_agent(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cli("apply", "-f", fits, "--yes", "--parallelism", "3", "--lock-timeout", "1h30m", "--target", "org/two",
        "--namespace", "other")
    [job] = cluster.jobs
    request = cluster.request_of(job)
    assert (request["parallelism"], request["lockTimeout"], request["namespace"]) == (3, 5400.0, "other")
    assert [action["model"] for action in request["plan"]["actions"]] == ["org/two"]
    assert job.startswith("fleetctl-apply-")


def test_env_values_go_to_the_agent_and_nowhere_else(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = all_ready
    result = [cli("apply", "-f", fits, "--yes", "--format", output) for output in ("table", "json", "jsonl")]
    assert "hush-hush" not in "".join(one.out + one.err for one in result)
    assert "hush-hush" in json.dumps(cluster.request_of(next(iter(cluster.jobs))))


def test_excluded_models_are_not_awaited(cli, cluster: ClusterStandIn, fits: Path) -> None:
    add_all_replicas(cluster)
    cluster.actors[0].update(state="RESTARTING")
    result = cli("apply", "-f", fits, "--exclude", "org/one")
    assert result.code == 0
    assert cluster.writes() == []


def test_a_replica_started_by_another_apply_is_fine(cli, cluster: ClusterStandIn, fits: Path) -> None:
    rows = [outcome("ready"), outcome("skipped", 1, code="TARGET_REACHED", message="2 of 2 are already live")]
    cluster.on_submit = lambda _: [("SUCCEEDED", VERSION + summary(1, *rows))]
    assert cli("apply", "-f", fits, "--yes").code == 0


def test_replicas_already_starting_get_the_startup_timeout_of_their_model(
    cli, cluster: ClusterStandIn, fits: Path, tmp_path: Path
) -> None:
    fits.write_text(fits.read_text().replace("replicas: 2", "replicas: 2\n    startupTimeout: 90s"))
    add_all_replicas(cluster)
    cluster.actors[0].update(state="RESTARTING")
    saved = tmp_path / "lab.fleetplan"
    cli("plan", "-f", fits, "--out", saved)
    for arguments in (["-f", fits], [saved]):
        cluster.jobs.clear()
        cli("apply", *arguments, "--yes")
        [job] = cluster.jobs
        assert cluster.request_of(job)["await"] == [{"key": "org/one", "lifecycle": {"startupTimeout": 90.0}}]
