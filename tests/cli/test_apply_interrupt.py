"""Ctrl-C while following an apply: once stops its job, twice detaches from it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from apply_answers import VERSION, outcome
from cluster_stand_in import ClusterStandIn, StoredJob, event, summary


def replica_created(_: dict[str, Any]) -> list[tuple[str, str]]:
    """The log of an agent that has created a replica and still runs."""
    return [("RUNNING", VERSION + event(1, "replicaCreated", "org/one/0: created"))]


def interrupt_while_following(cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetctl.apply import follow

    original = follow.log_of

    def log_of(client: Any, submission_id: str) -> str | None:
        text = original(client, submission_id)
        if not cluster.jobs[submission_id].stopped:
            raise KeyboardInterrupt
        return text

    cluster.on_submit = replica_created
    monkeypatch.setattr(follow, "log_of", log_of)


def test_ctrl_c_stops_the_job_and_reports_the_rest_as_starting(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(job: StoredJob) -> None:
        rows = [outcome("starting", message="it goes on"), outcome("skipped", 1, message="not begun")]
        job.steps = [("STOPPED", job.log + summary(2, *rows, code=3, interrupted=True))]

    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = report
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 130
    assert "Apply, interrupted: 1 starting, 1 skipped, 0 removed" in result.out
    assert "nothing more is started" in result.err
    assert cluster.writes()[-1][1].endswith("/stop")
    cluster.jobs.clear()
    assert cli("apply", "-f", fits, "--yes", "--format", "json").summary["interrupted"] is True


def test_ctrl_c_before_the_agent_could_report_claims_nothing(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = lambda job: setattr(job, "steps", [("STOPPED", "")])
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 130
    assert "gave no report" in result.err
    assert "nothing to do" not in result.out.rpartition("Plan:")[2]
    cluster.jobs.clear()
    report = cli("apply", "-f", fits, "--yes", "--format", "json").summary
    assert "gave no report" in report["message"]
    assert report["time"].endswith("Z")


def test_a_second_ctrl_c_after_the_stop_does_not_wait_for_the_report(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = lambda _: os.kill(os.getpid(), signal.SIGINT)
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 130
    [job] = cluster.jobs
    assert f"detached from job {job}, which was asked to stop" in result.err


def test_ctrl_c_twice_at_once_leaves_the_apply_running(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetctl.cli import apply_run

    def raise_interrupt() -> None:
        raise KeyboardInterrupt

    interrupt_while_following(cluster, monkeypatch)
    monkeypatch.setattr(apply_run, "_at_a_terminal", lambda: True)
    monkeypatch.setattr(apply_run, "_wait_for_second_interrupt", raise_interrupt)
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 130
    [job] = cluster.jobs
    assert "Ctrl-C again within a second detaches" in result.err
    assert f"detached from job {job}, which continues" in result.err
    assert [path for method, path in cluster.writes() if path.endswith("/stop")] == []


def test_all_events_after_ctrl_c_are_shown_once(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = event(2, "replicaStarting", "org/one/0: starting", model="org/one", replicaId=0)

    def report(job: StoredJob) -> None:
        job.steps = [("STOPPED", job.log + late + summary(3, outcome("starting"), code=3, interrupted=True))]

    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = report
    result = cli("apply", "-f", fits, "--yes", "--format", "jsonl")
    assert result.code == 130
    assert [line["type"] for line in result.lines] == ["version", "replicaCreated", "replicaStarting", "runSummary"]
    assert result.lines[-1]["exitCode"] == 130


def test_after_a_second_ctrl_c_jsonl_still_ends_with_a_summary(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_while_following(cluster, monkeypatch)
    cluster.on_stop = lambda _: os.kill(os.getpid(), signal.SIGINT)
    last = cli("apply", "-f", fits, "--yes", "--format", "jsonl").lines[-1]
    assert (last["type"], last["exitCode"], last["interrupted"]) == ("runSummary", 130, True)


def test_a_job_that_ctrl_c_cannot_stop_is_reported(
    cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_while_following(cluster, monkeypatch)
    original = cluster.answer
    monkeypatch.setattr(cluster, "answer", lambda method, path, *rest: (
        (405, "Method Not Allowed") if path.endswith("/stop") else original(method, path, *rest)))
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 1
    assert "was not stopped and continues: " in result.err
    assert "fleetctl stop fleetctl-apply-" in result.err
