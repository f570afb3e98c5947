"""`fleetctl apply` from its flags to its exit code, against a cluster that stands in."""

from __future__ import annotations

import json
from pathlib import Path

from apply_plays import VERSION, outcome, run_everything
from cluster_stand_in import ClusterStandIn, all_ready, ready, summary


def test_when_everything_becomes_ready_it_is_0_and_every_replica_has_a_row(cli, fits: Path) -> None:
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 0
    assert "org/one/0" in shown.out
    assert "10.0.0.7:7001" in shown.out
    assert shown.out.splitlines()[-1] == "Apply: 3 ready, 0 removed"
    assert "apply --attach" in shown.err


def test_what_does_not_fit_is_a_row_with_its_reason_and_it_is_3(cli, fleet_file: Path) -> None:
    written = fleet_file.read_bytes()
    shown = cli("apply", "-f", fleet_file, "--yes")
    assert shown.code == 3
    assert fleet_file.read_bytes() == written, "what is wanted stays so, and the next apply tries it again"
    assert shown.out.splitlines()[-1] == "Apply: 3 ready, 1 blocked, 0 removed"
    result = shown.out.rpartition("REPLICA ")[2]
    assert "org/one blocked (INSUFFICIENT_GPU)" in result
    assert "needs 8 free GPUs" in result


def test_with_nothing_to_do_no_job_is_submitted_and_it_is_0(cli, cluster: ClusterStandIn, fits: Path) -> None:
    run_everything(cluster)
    shown = cli("apply", "-f", fits)
    assert shown.code == 0
    assert shown.out.splitlines()[-1] == "Apply: nothing to do, 0 removed"
    assert cluster.writes() == []


def test_with_nothing_to_do_but_something_blocked_no_job_is_submitted_and_it_is_3(
    cli, cluster: ClusterStandIn, fleet_file: Path
) -> None:
    run_everything(cluster)
    told = cli("apply", "-f", fleet_file, "--format", "json").summary
    assert told["exitCode"] == 3
    [row] = told["outcomes"]
    assert (row["outcome"], row["model"]) == ("blocked", "org/one")
    assert cluster.writes() == []


def test_more_than_wanted_and_models_that_left_the_file_are_kept(
    cli, cluster: ClusterStandIn, fits: Path
) -> None:
    run_everything(cluster)
    cluster.add_replica("gone/from-file", 0, cluster.nodes[0]["node_id"], gpus=0)
    fits.write_text(fits.read_text().replace("replicas: 2", "replicas: 0").replace("replicas: 1", "replicas: 0"))
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 0
    assert "held: 2 beyond the target of 0, kept" in shown.out
    assert cluster.writes() == []


def test_starting_replicas_are_awaited_without_a_question(cli, cluster: ClusterStandIn, fits: Path) -> None:
    run_everything(cluster)
    cluster.actors[0].update(state="RESTARTING")
    cluster.on_submit = lambda request: [("SUCCEEDED", VERSION + summary(1, ready(request["await"][0]["key"], 0)))]
    shown = cli("apply", "-f", fits)
    assert shown.code == 0
    assert "org/one/0" in shown.out
    assert len(cluster.jobs) == 1


def test_a_lock_that_is_held_is_5_and_names_the_holder(cli, cluster: ClusterStandIn, fits: Path) -> None:
    holder = {"job": "fleetctl-apply-9", "who": "bob@ci"}
    cluster.on_submit = lambda _: [("FAILED", VERSION + summary(1, code=5, message="the lock is held", holder=holder))]
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 5
    assert "the lock is held, started by bob@ci" in shown.err
    assert "fleetctl stop fleetctl-apply-9" in shown.err


def test_an_agent_that_died_is_1_and_suggests_a_new_apply(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = lambda _: [("FAILED", VERSION)]
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 1
    assert "without a summary" in shown.err
    assert "apply again" in shown.err


def test_the_wait_timeout_is_7_and_the_apply_continues(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = lambda _: [("RUNNING", VERSION)]
    shown = cli("apply", "-f", fits, "--yes", "--wait-timeout", "10ms")
    assert shown.code == 7
    [job] = cluster.jobs
    assert f"apply --attach {job}" in shown.err
    assert not cluster.jobs[job].stopped


def test_a_cluster_that_refuses_jobs_is_reported_with_1(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.refusals["PUT", "/api/packages"] = [(405, "Method Not Allowed")]
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 1
    assert "a GET-only proxy is enough for plan, not for apply" in shown.err


def test_an_incomplete_inventory_means_no_action(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.refusals["GET", "/api/v0/actors"] = [(500, "")] * 10
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 1
    assert cluster.writes() == []


def test_flags_reach_the_agent(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cli("apply", "-f", fits, "--yes", "--parallelism", "3", "--lock-timeout", "1h30m", "--target", "org/two",
        "--namespace", "other")
    [job] = cluster.jobs
    asked = cluster.request_of(job)
    assert (asked["parallelism"], asked["lockTimeout"], asked["namespace"]) == (3, 5400.0, "other")
    assert [action["model"] for action in asked["plan"]["actions"]] == ["org/two"]
    assert job.startswith("fleetctl-apply-")


def test_env_values_go_to_the_agent_and_nowhere_else(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = all_ready
    shown = [cli("apply", "-f", fits, "--yes", "--format", output) for output in ("table", "json", "jsonl")]
    assert "hush-hush" not in "".join(one.out + one.err for one in shown)
    assert "hush-hush" in json.dumps(cluster.request_of(next(iter(cluster.jobs))))


def test_models_left_out_by_flags_are_not_awaited(cli, cluster: ClusterStandIn, fits: Path) -> None:
    run_everything(cluster)
    cluster.actors[0].update(state="RESTARTING")
    shown = cli("apply", "-f", fits, "--exclude", "org/one")
    assert shown.code == 0
    assert cluster.writes() == []


def test_a_replica_started_by_another_apply_is_fine(cli, cluster: ClusterStandIn, fits: Path) -> None:
    rows = [outcome("ready"), outcome("skipped", 1, code="TARGET_REACHED", message="2 of 2 are already live")]
    cluster.on_submit = lambda _: [("SUCCEEDED", VERSION + summary(1, *rows))]
    assert cli("apply", "-f", fits, "--yes").code == 0


def test_replicas_that_start_already_may_take_as_long_as_their_model(
    cli, cluster: ClusterStandIn, fits: Path, tmp_path: Path
) -> None:
    fits.write_text(fits.read_text().replace("replicas: 2", "replicas: 2\n    startupTimeout: 90s"))
    run_everything(cluster)
    cluster.actors[0].update(state="RESTARTING")
    saved = tmp_path / "lab.fleetplan"
    cli("plan", "-f", fits, "--out", saved)
    for arguments in (["-f", fits], [saved]):
        cluster.jobs.clear()
        cli("apply", *arguments, "--yes")
        [job] = cluster.jobs
        assert cluster.request_of(job)["await"] == [{"key": "org/one", "lifecycle": {"startupTimeout": 90.0}}]
