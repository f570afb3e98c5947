"""In a job of GitHub Actions nothing that an engine, a node or the agent says is obeyed by the runner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apply_plays import VERSION, outcome
from cluster_stand_in import ClusterStandIn, event, summary

from fleetctl.inventory.engine_log import log_name

SAID = "last words:\n::error::pwn\n  ::add-mask::x\n##[error]p ##[debug]q"


@pytest.fixture(autouse=True)
def job(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("CI", "true")


def commands(text: str) -> list[str]:
    """The workflow commands a runner would find: the newer form begins a line, the older one may be anywhere in it."""
    return [line for line in text.splitlines() if "##[" in line or line.lstrip().startswith("::")]


@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_apply(cli, cluster: ClusterStandIn, fits: Path, output: str) -> None:
    rows = [outcome("failed", 0, message=SAID, nodes=["::error::node"], code="ENGINE_EXITED"), outcome("ready", 1)]
    told = event(1, "replicaFailed", SAID, model="org/one", replicaId=0, nodes=["node-a"])
    cluster.on_submit = lambda _: [("SUCCEEDED", VERSION + told + summary(2, *rows, code=3))]
    shown = cli("apply", "-f", fits, "--yes", "--format", output)
    assert shown.code == 3
    assert commands(shown.out + shown.err) == []
    if output == "table":
        assert "\\u003a:error::pwn" in shown.out
    else:
        assert shown.lines[-1]["outcomes"][0]["message"] == SAID, "JSON means what it did"


def test_apply_that_fails(cli, cluster: ClusterStandIn, fits: Path) -> None:
    cluster.on_submit = lambda _: [("FAILED", event(0, "runSummary", SAID, outcomes=[], exitCode=1))]
    shown = cli("apply", "-f", fits, "--yes")
    assert shown.code == 1
    assert commands(shown.out + shown.err) == []


@pytest.mark.parametrize("code", [3, 1])
def test_evict(cli, cluster: ClusterStandIn, code: int) -> None:
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"])
    rows = [outcome("failed", 0, message=SAID)] if code == 3 else []
    cluster.on_submit = lambda _: [("SUCCEEDED", event(0, "runSummary", SAID, outcomes=rows, exitCode=code))]
    shown = cli("evict", "org/one/0", "--yes")
    assert shown.code == code
    assert "error::pwn" in shown.out + shown.err
    assert commands(shown.out + shown.err) == []


def test_logs(cli, cluster: ClusterStandIn) -> None:
    node = cluster.nodes[0]["node_id"]
    for name in ("main", "::error::group"):
        cluster.log_files[node, log_name("fleet", "org/one", 0, "main", 0, 0).replace("main", name)] = SAID
    shown = cli("logs", "org/one/0")
    assert shown.code == 0
    assert shown.out.count("error::pwn") == 2
    assert commands(shown.out + shown.err) == []


@pytest.mark.parametrize("command", ["status", "inventory", "history", "map"])
def test_what_only_looks(cli, cluster: ClusterStandIn, command: str) -> None:
    cluster.add_node("##[error]node")
    cluster.add_replica("##[error]model", 0, cluster.nodes[2]["node_id"], fleet="::error::fleet")
    done = ("SUCCEEDED", VERSION + summary(1))
    cluster.add_job("fleetctl-apply-1", done, verb="apply", fleet="f", who="##[error]")
    for output in ("table", "json"):
        shown = cli(command, "--format", output)
        assert "error]" in shown.out
        assert commands(shown.out + shown.err) == []
        if output == "json":
            assert "##[error]" in str(json.loads(shown.out))


def test_a_bug_that_is_debugged(cli, cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_DEBUG", "1")
    cluster.refusals["GET", "/api/jobs/"] = [(500, SAID)]
    shown = cli("history")
    assert "Traceback" in shown.err
    assert commands(shown.err) == []
