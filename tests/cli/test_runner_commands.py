"""In GitHub Actions, no output of an engine, a node or the agent reaches the runner as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apply_answers import VERSION, outcome
from cluster_stand_in import ClusterStandIn, event, summary

from fleetctl.inventory.engine_log import log_name

HOSTILE = "last words:\n::error::pwn\n  ::add-mask::x\n##[error]p ##[debug]q"


@pytest.fixture(autouse=True)
def job(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("CI", "true")


def commands(text: str) -> list[str]:
    """The workflow commands a runner would find: the newer form starts a line, the older one may be anywhere."""
    return [line for line in text.splitlines() if "##[" in line or line.lstrip().startswith("::")]


@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_apply_prints_no_runner_command(cli, cluster: ClusterStandIn, fits: Path, output: str) -> None:
    rows = [outcome("failed", 0, message=HOSTILE, nodes=["::error::node"], code="ENGINE_EXITED"), outcome("ready", 1)]
    failure = event(1, "replicaFailed", HOSTILE, model="org/one", replicaId=0, nodes=["node-a"])
    cluster.on_submit = lambda _: [("SUCCEEDED", VERSION + failure + summary(2, *rows, code=3))]
    result = cli("apply", "-f", fits, "--yes", "--format", output)
    assert result.code == 3
    assert commands(result.out + result.err) == []
    if output == "table":
        assert "\\u003a:error::pwn" in result.out
    else:
        assert result.lines[-1]["outcomes"][0]["message"] == HOSTILE, "the JSON keeps its meaning"


def test_a_failed_apply_prints_no_runner_command(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = lambda _: [("FAILED", event(0, "runSummary", HOSTILE, outcomes=[], exitCode=1))]
    result = cli("apply", "-f", fits, "--yes")
    assert result.code == 1
    assert commands(result.out + result.err) == []


@pytest.mark.parametrize("code", [3, 1])
def test_evict_prints_no_runner_command(cli, cluster: ClusterStandIn, code: int) -> None:
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"])
    rows = [outcome("failed", 0, message=HOSTILE)] if code == 3 else []
    cluster.on_submit = lambda _: [("SUCCEEDED", event(0, "runSummary", HOSTILE, outcomes=rows, exitCode=code))]
    result = cli("evict", "org/one/0", "--yes")
    assert result.code == code
    assert "error::pwn" in result.out + result.err
    assert commands(result.out + result.err) == []


def test_logs_print_no_runner_command(cli, cluster: ClusterStandIn) -> None:
    node = cluster.nodes[0]["node_id"]
    for name in ("main", "::error::group"):
        cluster.log_files[node, log_name("fleet", "org/one", 0, "main", 0, 0).replace("main", name)] = HOSTILE
    result = cli("logs", "org/one/0")
    assert result.code == 0
    assert result.out.count("error::pwn") == 2
    assert commands(result.out + result.err) == []


@pytest.mark.parametrize("command", ["status", "inventory", "history", "map"])
def test_read_only_commands_print_no_runner_command(cli, cluster: ClusterStandIn, command: str) -> None:
    cluster.add_node("##[error]node")
    cluster.add_replica("##[error]model", 0, cluster.nodes[2]["node_id"], fleet="::error::fleet")
    done = ("SUCCEEDED", VERSION + summary(1))
    cluster.add_job("fleetctl-apply-1", done, verb="apply", fleet="f", who="##[error]")
    for output in ("table", "json"):
        result = cli(command, "--format", output)
        assert "error]" in result.out
        assert commands(result.out + result.err) == []
        if output == "json":
            assert "##[error]" in str(json.loads(result.out))


def test_a_debug_traceback_has_no_runner_command(cli, cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_DEBUG", "1")
    cluster.refusals["GET", "/api/jobs/"] = [(500, HOSTILE)]
    result = cli("history")
    assert "Traceback" in result.err
    assert commands(result.err) == []
