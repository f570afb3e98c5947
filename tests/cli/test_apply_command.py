"""`fleetctl apply` from its flags to its exit code, against a cluster that stands in."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, StoredJob, all_ready, event, ready, summary

VERSION = event(0, "version", "fleetctl agent", version="1.0")


@pytest.fixture
def fits(fleet_file: Path) -> Path:
    """The fleet with targets that two nodes can hold."""
    fleet_file.write_text(fleet_file.read_text().replace("replicas: 3", "replicas: 2"))
    return fleet_file


def outcome(kind: str, replica_id: int = 0, **more: Any) -> dict[str, Any]:
    return {"model": "org/one", "replicaId": replica_id, "outcome": kind, "nodes": ["node-a"], "message": "", **more}


def test_when_everything_becomes_ready_it_is_0_and_every_replica_has_a_row(cli, fits: Path) -> None:
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 0
    assert "org/one/0" in shown.out
    assert "10.0.0.7:7001" in shown.out
    assert shown.out.splitlines()[-1] == "Apply: 3 ready, 0 removed"
    assert "apply --attach" in shown.err


def test_what_does_not_fit_is_a_row_with_its_reason_and_it_is_3(cli, fleet_file: Path) -> None:
    shown = cli("apply", "-f", fleet_file, "--yes")
    assert shown.code == 3
    assert shown.out.splitlines()[-1] == "Apply: 3 ready, 1 blocked, 0 removed"
    result = shown.out.rpartition("REPLICA ")[2]
    assert "org/one blocked (INSUFFICIENT_GPU)" in result
    assert "needs 8 free GPUs" in result


@pytest.mark.parametrize(("kinds", "code"), [
    (["ready", "ready"], 0), (["ready", "starting"], 3), (["ready", "failed"], 3), (["ready", "skipped"], 3),
    (["blocked", "ready"], 3), (["failed", "failed"], 3),
], ids=lambda value: "-".join(value) if isinstance(value, list) else str(value))
@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_text_json_and_exit_code_agree(
    cli, cluster: ClusterStandIn, fits: Path, kinds: list[str], code: int, output: str
) -> None:
    why = {kind: "" if kind == "ready" else f"because {kind}" for kind in kinds}
    rows = [outcome(kind, number, message=why[kind]) for number, kind in enumerate(kinds)]
    cluster.on_submit = lambda _: [("SUCCEEDED", VERSION + summary(1, *rows, code=code))]
    shown = cli("apply", "-f", fits, "--yes", "--format", output)
    assert shown.code == code
    if output == "table":
        words = {kind: f"{kinds.count(kind)} {kind}" for kind in kinds}
        assert all(word in shown.out.splitlines()[-1] for word in words.values())
        assert all(f"because {kind}" in shown.out for kind in kinds if kind != "ready")
    else:
        last = shown.lines[-1]
        assert (last["type"], last["exitCode"]) == ("runSummary", code)
        assert [row["outcome"] for row in last["outcomes"]] == kinds


def test_json_is_one_line_that_tells_the_whole_result(cli, fleet_file: Path) -> None:
    told = cli("apply", "-f", fleet_file, "--yes", "--format", "json").summary
    assert sorted(row["outcome"] for row in told["outcomes"]) == ["blocked", "ready", "ready", "ready"]
    assert told["message"] == "Apply: 3 ready, 1 blocked, 0 removed"
    assert len(told["planId"]) == 64


def test_jsonl_is_every_event_from_the_version_to_the_summary(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = all_ready
    lines = cli("apply", "-f", fits, "--yes", "--format", "jsonl").lines
    assert [line["type"] for line in lines] == [
        "version", "lockAcquired", "replicaReady", "replicaReady", "replicaReady", "runSummary"]
    assert [line["seq"] for line in lines] == list(range(6))
    assert lines[2]["address"] == "10.0.0.7:7001"


def test_an_event_of_the_future_is_relayed_as_it_is(cli, cluster: ClusterStandIn, fits: Path) -> None:
    future = event(1, "cardRepaired", "a card was repaired", card={"index": 3})
    cluster.on_submit = lambda _: [("SUCCEEDED", VERSION + future + summary(2, outcome("ready")))]
    shown = cli("apply", "-f", fits, "--yes", "--format", "jsonl")
    assert shown.lines[1]["card"] == {"index": 3}
    assert "a card was repaired" in cli("apply", "-f", fits, "--yes").err


def run_everything(cluster: ClusterStandIn) -> None:
    for number, node in enumerate(cluster.nodes):
        cluster.add_replica("org/one", number, node["node_id"])
    cluster.add_replica("org/two", 0, cluster.nodes[0]["node_id"], gpus=0)


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


def test_jsonl_begins_with_a_version_even_when_nothing_is_submitted(
    cli, cluster: ClusterStandIn, fleet_file: Path
) -> None:
    run_everything(cluster)
    lines = cli("apply", "-f", fleet_file, "--format", "jsonl").lines
    assert [(line["seq"], line["type"]) for line in lines] == [(0, "version"), (1, "runSummary")]
    assert lines[0]["version"] == "1.0"


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


def test_what_is_starting_already_is_awaited_without_a_question(cli, cluster: ClusterStandIn, fits: Path) -> None:
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
    assert "ray job stop fleetctl-apply-9" in shown.err


def test_an_agent_that_died_is_1_and_says_that_a_new_apply_goes_on(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = lambda _: [("FAILED", VERSION)]
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 1
    assert "without a summary" in shown.err
    assert "apply again" in shown.err


def test_its_own_time_limit_is_7_and_the_apply_goes_on(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = lambda _: [("RUNNING", VERSION)]
    shown = cli("apply", "-f", fits, "--yes", "--wait-timeout", "10ms")
    assert shown.code == 7
    [job] = cluster.jobs
    assert f"apply --attach {job}" in shown.err
    assert not cluster.jobs[job].stopped


def begun(_: dict[str, Any]) -> list[tuple[str, str]]:
    """The agent has created a replica; while its log is read, this process is interrupted, as by Ctrl-C."""
    return [("RUNNING", VERSION + event(1, "replicaCreated", "org/one/0: created"))]


def interrupt_while_following(cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetctl.apply import follow

    calm = follow.jobs.log_of

    def log_of(client: Any, submission_id: str) -> str | None:
        text = calm(client, submission_id)
        if not cluster.jobs[submission_id].stopped:
            raise KeyboardInterrupt
        return text

    cluster.on_submit = begun
    monkeypatch.setattr(follow.jobs, "log_of", log_of)


def test_ctrl_c_stops_the_job_and_the_rest_is_told_as_starting(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(job: StoredJob) -> None:
        rows = [outcome("starting", message="it goes on"), outcome("skipped", 1, message="not begun")]
        job.steps = [("STOPPED", job.log + summary(2, *rows, code=3, interrupted=True))]

    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = report
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 130
    assert "Apply: 1 starting, 1 skipped, 0 removed" in shown.out
    assert "nothing more is begun" in shown.err
    assert cluster.writes()[-1][1].endswith("/stop")
    cluster.jobs.clear()
    assert cli("apply", "-f", fits, "--yes", "--format", "json").summary["interrupted"] is True


def test_ctrl_c_before_the_agent_could_report_claims_nothing(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = lambda job: setattr(job, "steps", [("STOPPED", "")])
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 130
    assert "gave no report" in shown.err
    assert "nothing to do" not in shown.out.rpartition("Plan:")[2]
    cluster.jobs.clear()
    told = cli("apply", "-f", fits, "--yes", "--format", "json").summary
    assert "gave no report" in told["message"]
    assert told["time"].endswith("Z")


def test_ctrl_c_twice_lets_go_of_an_apply_that_goes_on(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = lambda _: os.kill(os.getpid(), signal.SIGINT)
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 130
    [job] = cluster.jobs
    assert f"let go of job {job}" in shown.err


def test_a_cluster_that_refuses_jobs_is_told_and_it_is_1(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.refusals["PUT", "/api/packages"] = [(405, "Method Not Allowed")]
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 1
    assert "a GET-only proxy is enough for plan, not for apply" in shown.err


def test_a_view_that_is_not_whole_means_no_action(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.refusals["GET", "/api/v0/actors"] = [(500, "")] * 10
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 1
    assert cluster.writes() == []


def test_attach_follows_the_one_that_runs(cli, cluster: ClusterStandIn, fits: Path) -> None:
    blocked = {"model": "org/one", "outcome": "blocked", "code": "INSUFFICIENT_GPU", "replicas": 2}
    log = VERSION + summary(1, outcome("ready"), blocked, code=3)
    cluster.add_job("j1", ("SUCCEEDED", log), verb="apply", fleet="lab").status = "RUNNING"
    cluster.add_job("j0", verb="apply", fleet="lab").status = "SUCCEEDED"
    cluster.add_job("j2", verb="evict", fleet="lab").status = "RUNNING"
    shown = cli("apply", "--attach")
    assert shown.code == 3
    assert shown.out.splitlines()[-1] == "Apply: 1 ready, 2 blocked, 0 removed"
    assert cluster.writes() == []


def test_attach_needs_a_name_where_several_run(cli, cluster: ClusterStandIn, fits: Path) -> None:
    for job, fleet in (("j1", "lab"), ("j2", "other")):
        done = VERSION + summary(1, outcome("ready"))
        cluster.add_job(job, ("SUCCEEDED", done), verb="apply", fleet=fleet).status = "RUNNING"
    several = cli("apply", "--attach")
    assert several.code == 64
    assert "j1 (fleet lab), j2 (fleet other)" in several.err
    assert cli("apply", "--attach", "j2").code == 0
    cluster.jobs["j2"].status = "RUNNING"
    assert cli("apply", "--attach", "-f", fits).code == 0


def test_attach_finds_out_how_one_ended_that_is_over(cli, cluster: ClusterStandIn) -> None:
    cluster.add_job("j1", verb="apply").log = VERSION + summary(1, outcome("failed", code="ENGINE_EXITED"), code=3)
    cluster.jobs["j1"].status = "SUCCEEDED"
    assert cli("apply", "--attach", "j1", "--format", "json").summary["exitCode"] == 3


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "no apply is running"), (["nowhere"], "knows no job nowhere"),
])
def test_attach_to_nothing_is_an_error(cli, arguments: list[str], words: str) -> None:
    shown = cli("apply", "--attach", *arguments)
    assert shown.code == 1
    assert words in shown.err


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


def test_what_happens_after_ctrl_c_is_told_once_and_to_the_end(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = event(2, "replicaStarting", "org/one/0: starting", model="org/one", replicaId=0)

    def report(job: StoredJob) -> None:
        job.steps = [("STOPPED", job.log + late + summary(3, outcome("starting"), code=3, interrupted=True))]

    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = report
    shown = cli("apply", "-f", fits, "--yes", "--format", "jsonl")
    assert shown.code == 130
    assert [line["type"] for line in shown.lines] == ["version", "replicaCreated", "replicaStarting", "runSummary"]
    assert shown.lines[-1]["exitCode"] == 130


def test_ctrl_c_twice_ends_the_lines_for_programs_too(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = lambda _: os.kill(os.getpid(), signal.SIGINT)
    last = cli("apply", "-f", fits, "--yes", "--format", "jsonl").lines[-1]
    assert (last["type"], last["exitCode"], last["interrupted"]) == ("runSummary", 130, True)


def test_ctrl_c_that_does_not_reach_the_job_is_said(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_while_following(cluster, monkeypatch)
    calm = cluster.answer
    monkeypatch.setattr(cluster, "answer", lambda method, path, *rest: (
        (405, "Method Not Allowed") if path.endswith("/stop") else calm(method, path, *rest)))
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 1
    assert "was not stopped and goes on: " in shown.err
    assert "ray job stop fleetctl-apply-" in shown.err


HOLDER = {"job": "j9", "who": "bob@ci"}
ENDS = {
    "an agent that died": (1, [("FAILED", VERSION)]),
    "an agent that could not begin": (1, [("FAILED", event(0, "runSummary", "no Python", outcomes=[], exitCode=1))]),
    "a lock that is held": (5, [("FAILED", VERSION + summary(1, code=5, message="the lock is held", holder=HOLDER))]),
    "a plan that was used": (6, [("FAILED", VERSION + summary(1, code=6, message="used", usedBy="j7"))]),
    "a time limit": (7, [("RUNNING", VERSION)]),
}


@pytest.mark.parametrize("output", ["json", "jsonl"])
@pytest.mark.parametrize("end", ENDS)
def test_the_last_line_is_a_summary_however_it_ends(
    cli, cluster: ClusterStandIn, fits: Path, end: str, output: str
) -> None:
    code, steps = ENDS[end]
    cluster.on_submit = lambda _: list(steps)
    shown = cli("apply", "-f", fits, "--yes", "--format", output, "--wait-timeout", "10ms" if code == 7 else "1h")
    assert shown.code == code
    *before, last = shown.lines
    assert [line["type"] for line in before] == (["version"] if output == "jsonl" else [])
    assert (last["type"], last["exitCode"], last["level"], last["outcomes"]) == ("runSummary", code, "error", [])
    assert last["message"] in shown.err
    assert last.get("holder") == (HOLDER if code == 5 else None)
    assert [line["seq"] for line in shown.lines] == list(range(len(shown.lines))) or output == "json"


def test_an_error_before_the_plan_is_made_is_a_summary_too(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.refusals["GET", "/api/v0/actors"] = [(500, "")] * 10
    lines = cli("apply", "-f", fits, "--yes", "--format", "jsonl").lines
    assert [(line["type"], line.get("exitCode")) for line in lines] == [("version", None), ("runSummary", 1)]


def test_what_flags_leave_out_is_not_waited_for(cli, cluster: ClusterStandIn, fits: Path) -> None:
    run_everything(cluster)
    cluster.actors[0].update(state="RESTARTING")
    shown = cli("apply", "-f", fits, "--exclude", "org/one")
    assert shown.code == 0
    assert cluster.writes() == []


def test_a_replica_others_have_started_meanwhile_is_fine(cli, cluster: ClusterStandIn, fits: Path) -> None:
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
