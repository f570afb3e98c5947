"""`apply --wait-for-nodes`: asks, waits, creates on what has come, and ends as one apply; the cluster stands in."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cluster_stand_in import ClusterStandIn, Steps, all_ready, event, summary

from fleetctl.cli.apply import command

BIG = {"gpus": 8, "cpus": 16, "memory": "64Gi", "labels": {"pool": "big"}}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "POLL_S", 0.01)


@pytest.fixture
def growing(fits: Path) -> Path:
    """One model that fits on the nodes there are, and one with two replicas on nodes that may come."""
    document: dict[str, Any] = yaml.safe_load(fits.read_text())
    member = {"resources": {"gpus": 8}, "nodeSelector": {"pool": "big"}, "engine": {"command": ["serve"]}}
    document["spec"]["models"].append(
        {"key": "org/big", "replicas": 2, "workers": [{"name": "main", "members": [member]}]})
    document["spec"]["cluster"] = {"grow": [{"name": "big", "node": BIG, "max": 4}]}
    fits.write_text(yaml.safe_dump(document))
    return fits


def blocked(request: dict[str, Any], kind: str) -> Steps:
    """An agent that has asked for nodes, or could not, and has nothing to create."""
    rows = [{key: row[key] for key in ("model", "code", "message", "replicas")} | {"outcome": "blocked"}
            for row in request["plan"]["blocked"]]
    lines = event(0, "version", "fleetctl agent", version="1.0") + event(1, kind, kind)
    return [("SUCCEEDED", lines + summary(2, *rows, code=3))]


def test_it_creates_on_each_node_that_comes_and_reports_everything_once(
    cli, cluster: ClusterStandIn, growing: Path
) -> None:
    requests: list[dict[str, Any]] = []

    def play(request: dict[str, Any]) -> Steps:
        requests.append(request["plan"])
        for action in request["plan"]["actions"]:
            for member in action["members"]:
                cluster.add_replica(action["model"], action["replicaId"], member["nodeId"], gpus=member["gpus"],
                                    spec_hash=action["specHash"])
        if len(requests) < 3:
            cluster.add_node(f"new-{len(requests)}", pool="big")
        return all_ready(request)[-1:]

    cluster.on_submit = play
    shown = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "1m", "--format", "jsonl")
    assert shown.code == 0, shown.err
    assert [[row["nodes"] for row in plan["growth"]] for plan in requests] == [[2], [1], [0]]
    assert [event["seq"] for event in shown.lines] == sorted({event["seq"] for event in shown.lines})
    assert [event["type"] for event in shown.lines].count("version") == 1
    ended = [(row["model"], row["replicaId"]) for row in shown.lines[-1]["outcomes"]]
    assert sorted(ended) == [("org/big", 0), ("org/big", 1), ("org/one", 0), ("org/one", 1), ("org/two", 0)]
    assert "waiting for 1 new big node;" in shown.err


def test_it_ends_as_partial_if_time_is_over_or_nodes_were_not_requested(
    cli, cluster: ClusterStandIn, growing: Path
) -> None:
    growing.write_text(growing.read_text().replace("replicas: 1", "replicas: 0"))
    cluster.on_submit = lambda request: blocked(request, "nodesRequested")
    late = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "1ms")
    assert late.code == 3
    assert "the time to wait for nodes is over" in late.err
    cluster.on_submit = lambda request: blocked(request, "nodesNotRequested")
    refused = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "1h", "--format", "json")
    assert refused.code == 3
    assert {row["code"] for row in refused.summary["outcomes"]} == {"WAITS_FOR_NODES"}


def test_without_waiting_it_reports_the_requested_nodes(cli, cluster: ClusterStandIn, growing: Path) -> None:
    cluster.on_submit = lambda request: blocked(request, "nodesRequested")
    shown = cli("apply", "-f", growing, "--yes")
    assert shown.code == 3
    assert "big: 2 nodes, at most 4; for 2 of org/big" in shown.out
    assert "would run on 2 new big nodes (2 of 4)" in " ".join(shown.out.split())


@pytest.mark.parametrize("form", ["table", "json"])
def test_ctrl_c_during_the_wait_still_reports_created_replicas(
    cli, cluster: ClusterStandIn, growing: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    cluster.on_submit = lambda request: all_ready(request)[-1:]
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupt))
    shown = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "1h", "--format", form)
    assert shown.code == 130
    if form == "json":
        assert {(row["model"], row["outcome"]) for row in shown.summary["outcomes"]} == {
            ("org/one", "ready"), ("org/two", "ready")}
    else:
        assert "org/one/0" in shown.out


def test_another_apply_for_the_same_nodes_does_not_end_the_wait(
    cli, cluster: ClusterStandIn, growing: Path
) -> None:
    requests: list[dict[str, Any]] = []

    def play(request: dict[str, Any]) -> Steps:
        requests.append(request["plan"])
        if len(requests) == 2:
            lines = event(0, "version", "fleetctl agent", version="1.0")
            return [("FAILED", lines + summary(1, code=5, reason="LOCK_HELD", message="another apply runs"))]
        for action in request["plan"]["actions"]:
            for member in action["members"]:
                cluster.add_replica(action["model"], action["replicaId"], member["nodeId"], gpus=member["gpus"],
                                    spec_hash=action["specHash"])
        if len(requests) == 1:
            cluster.add_node("new-1", pool="big")
            cluster.add_node("new-2", pool="big")
        return all_ready(request)[-1:]

    cluster.on_submit = play
    shown = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "1m", "--format", "json")
    assert shown.code == 0, shown.err
    assert len(requests) == 3
    assert {row["outcome"] for row in shown.summary["outcomes"]} == {"ready"}


def test_the_nodes_of_an_abandoned_fleet_are_released_after_a_question(cli, cluster: ClusterStandIn) -> None:
    asked: list[dict[str, Any]] = []

    def play(request: dict[str, Any]) -> Steps:
        asked.append({key: request[key] for key in ("fleet", "dryRun")})
        lines = event(0, "version", "fleetctl agent", version="1.0") + event(1, "nodesReleased", "big: 2 new")
        return [("SUCCEEDED", lines + summary(2, message="nothing was ended"))]

    cluster.on_submit = play
    assert cli("release-nodes", "old").code == 64
    assert asked == [], "there is no terminal to say yes on"
    shown = cli("release-nodes", "old", "--dry-run")
    assert (shown.code, shown.err) == (0, "note: big: 2 new\nnote: nothing was ended\n")
    assert cli("release-nodes", "old", "--yes").code == 0
    assert asked == [{"fleet": "old", "dryRun": True}, {"fleet": "old", "dryRun": False}]


STATUS = """======== Autoscaler status: 2026-11-22 23:51:15.638558 ========
Node status
---------------------------------------------------------------
Active:
 (no active nodes)
Pending:
 big, 2 launching
Recent failures:
 big: LaunchFailed (latest_attempt: 23:50:01)
 big: NodeTerminated (instance_id: 17)

Resources
---------------------------------------------------------------
Total Usage:
 0.0/2.0 CPU
"""
REFUSED = ("No available node types can fulfill cluster constraint: {'GPU': 8.0}*4. Add suitable node types to this "
           "cluster to resolve this issue.")


def test_messages_of_the_autoscaler_are_shown_if_something_waits_for_nodes(
    cli, cluster: ClusterStandIn, growing: Path
) -> None:
    def says(age_s: float, status: str = "") -> list[str]:
        cluster.data_at = {
            "/events": {"events": [{"message": text, "timestamp": str(int(time.time() - age_s))}
                                   for text in (REFUSED, "Adding 1 node(s) of type big.")]},
            "/api/cluster_status": {"clusterStatus": status}}
        return json.loads(cli("plan", "-f", growing, "--format", "json").out)["autoscaler"]

    assert says(600) == [], "that was about an earlier request"
    [refused] = says(5)
    assert refused.startswith("Ray's autoscaler adds none of the requested nodes: ")
    assert refused.endswith("its maximum of that type is lower: {'GPU': 8.0}*4")
    assert says(600, STATUS) == ["Ray's autoscaler: pending: big, 2 launching",
                                 "Ray's autoscaler: big: LaunchFailed (latest_attempt: 23:50:01)"]
    assert "LaunchFailed" in cli("plan", "-f", growing).out
    assert "LaunchFailed" in cli("status", "-f", growing).err
    cluster.on_submit = lambda request: blocked(request, "nodesRequested")
    waited = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "100ms")
    assert waited.err.count("LaunchFailed") == 1
    growing.write_text(growing.read_text().replace("replicas: 2", "replicas: 0"))
    assert says(5) == [], "nothing waits for nodes"
    cluster.data_at = {"/events": {"events": [{"message": REFUSED}]}, "/api/cluster_status": {"clusterStatus": STATUS}}
    growing.write_text(growing.read_text().replace("replicas: 0", "replicas: 2"))
    launches = json.loads(cli("plan", "-f", growing, "--format", "json").out)["autoscaler"]
    assert len(launches) == 2, "an event without its time costs no more than itself"
    cluster.data_at = {"/events": "odd", "/api/cluster_status": []}
    assert json.loads(cli("plan", "-f", growing, "--format", "json").out)["autoscaler"] == []
