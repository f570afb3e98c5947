"""`apply --wait-for-nodes`: requests nodes, waits, creates on the new nodes, and ends as one apply."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cluster_stand_in import ClusterStandIn, Steps, all_ready, event, summary

from fleetctl.cli import apply as command

BIG = {"gpus": 8, "cpus": 16, "memory": "64Gi", "labels": {"pool": "big"}}


@pytest.fixture(autouse=True)
def _poll_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "POLL_S", 0.01)


@pytest.fixture
def growing(fits: Path) -> Path:
    """A model that fits on the existing nodes, and one whose two replicas need nodes that may be added."""
    document: dict[str, Any] = yaml.safe_load(fits.read_text())
    member = {"resources": {"gpus": 8}, "nodeSelector": {"pool": "big"}, "engine": {"command": ["serve"]}}
    document["spec"]["models"].append(
        {"key": "org/big", "replicas": 2, "workers": [{"name": "main", "members": [member]}]})
    document["spec"]["cluster"] = {"grow": [{"name": "big", "node": BIG, "max": 4}]}
    fits.write_text(yaml.safe_dump(document))
    return fits


def blocked(request: dict[str, Any], kind: str) -> Steps:
    """An agent that has requested nodes, or could not, and has nothing to create."""
    rows = [{key: row[key] for key in ("model", "code", "message", "replicas")} | {"outcome": "blocked"}
            for row in request["plan"]["blocked"]]
    lines = event(0, "version", "fleetctl agent", version="1.0") + event(1, kind, kind)
    return [("SUCCEEDED", lines + summary(2, *rows, code=3))]


def create_all(cluster: ClusterStandIn, plan: dict[str, Any]) -> None:
    for action in plan["actions"]:
        for member in action["members"]:
            cluster.add_replica(action["model"], action["replicaId"], member["nodeId"], gpus=member["gpus"],
                                spec_hash=action["specHash"])


def test_replicas_are_created_on_each_new_node_and_reported_once(
    cli, cluster: ClusterStandIn, growing: Path
) -> None:
    requests: list[dict[str, Any]] = []

    def respond(request: dict[str, Any]) -> Steps:
        requests.append(request["plan"])
        create_all(cluster, request["plan"])
        if len(requests) < 3:
            cluster.add_node(f"new-{len(requests)}", pool="big")
        return all_ready(request)[-1:]

    cluster.on_submit = respond
    result = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "1m", "--format", "jsonl")
    assert result.code == 0, result.err
    assert [[row["nodes"] for row in plan["growth"]] for plan in requests] == [[2], [1], [0]]
    assert [event["seq"] for event in result.lines] == sorted({event["seq"] for event in result.lines})
    assert [event["type"] for event in result.lines].count("version") == 1
    ended = [(row["model"], row["replicaId"]) for row in result.lines[-1]["outcomes"]]
    assert sorted(ended) == [("org/big", 0), ("org/big", 1), ("org/one", 0), ("org/one", 1), ("org/two", 0)]
    assert "waiting for 1 new big node;" in result.err


def test_the_apply_is_partial_if_the_time_is_over_or_nodes_were_not_requested(
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


def test_without_waiting_the_requested_nodes_are_reported(cli, cluster: ClusterStandIn, growing: Path) -> None:
    cluster.on_submit = lambda request: blocked(request, "nodesRequested")
    result = cli("apply", "-f", growing, "--yes")
    assert result.code == 3
    assert "big: 2 nodes, at most 4; for 2 of org/big" in result.out
    assert "would run on 2 new big nodes (2 of 4)" in " ".join(result.out.split())


@pytest.mark.parametrize("form", ["table", "json"])
def test_ctrl_c_during_the_wait_still_reports_created_replicas(
    cli, cluster: ClusterStandIn, growing: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    cluster.on_submit = lambda request: all_ready(request)[-1:]
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupt))
    result = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "1h", "--format", form)
    assert result.code == 130
    if form == "json":
        assert {(row["model"], row["outcome"]) for row in result.summary["outcomes"]} == {
            ("org/one", "ready"), ("org/two", "ready")}
    else:
        assert "org/one/0" in result.out


def test_another_apply_for_the_same_nodes_does_not_end_the_wait(
    cli, cluster: ClusterStandIn, growing: Path
) -> None:
    requests: list[dict[str, Any]] = []

    def respond(request: dict[str, Any]) -> Steps:
        requests.append(request["plan"])
        if len(requests) == 2:
            lines = event(0, "version", "fleetctl agent", version="1.0")
            return [("FAILED", lines + summary(1, code=5, reason="LOCK_HELD", message="another apply runs"))]
        create_all(cluster, request["plan"])
        if len(requests) == 1:
            cluster.add_node("new-1", pool="big")
            cluster.add_node("new-2", pool="big")
        return all_ready(request)[-1:]

    cluster.on_submit = respond
    result = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "1m", "--format", "json")
    assert result.code == 0, result.err
    assert len(requests) == 3
    assert {row["outcome"] for row in result.summary["outcomes"]} == {"ready"}


def test_the_nodes_of_an_abandoned_fleet_are_released_after_a_question(cli, cluster: ClusterStandIn) -> None:
    requests: list[dict[str, Any]] = []

    def respond(request: dict[str, Any]) -> Steps:
        requests.append({key: request[key] for key in ("fleet", "dryRun")})
        lines = event(0, "version", "fleetctl agent", version="1.0") + event(1, "nodesReleased", "big: 2 new")
        return [("SUCCEEDED", lines + summary(2, message="nothing was ended"))]

    cluster.on_submit = respond
    assert cli("release-nodes", "old").code == 64
    assert requests == [], "there is no terminal to confirm on"
    result = cli("release-nodes", "old", "--dry-run")
    assert (result.code, result.err) == (0, "note: big: 2 new\nnote: nothing was ended\n")
    assert cli("release-nodes", "old", "--yes").code == 0
    assert requests == [{"fleet": "old", "dryRun": True}, {"fleet": "old", "dryRun": False}]


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


def test_messages_of_the_autoscaler_are_shown_if_a_model_waits_for_nodes(
    cli, cluster: ClusterStandIn, growing: Path
) -> None:
    def autoscaler_messages(age_s: float, status: str = "") -> list[str]:
        cluster.data_at = {
            "/events": {"events": [{"message": text, "timestamp": str(int(time.time() - age_s))}
                                   for text in (REFUSED, "Adding 1 node(s) of type big.")]},
            "/api/cluster_status": {"clusterStatus": status}}
        return json.loads(cli("plan", "-f", growing, "--format", "json").out)["autoscaler"]

    assert autoscaler_messages(600) == [], "the event is older than the request"
    [refused] = autoscaler_messages(5)
    assert refused.startswith("Ray's autoscaler adds none of the requested nodes: ")
    assert refused.endswith("its maximum of that type is lower: {'GPU': 8.0}*4")
    assert autoscaler_messages(600, STATUS) == ["Ray's autoscaler: pending: big, 2 launching",
                                 "Ray's autoscaler: big: LaunchFailed (latest_attempt: 23:50:01)"]
    assert "LaunchFailed" in cli("plan", "-f", growing).out
    assert "LaunchFailed" in cli("status", "-f", growing).err
    cluster.on_submit = lambda request: blocked(request, "nodesRequested")
    waited = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "100ms")
    assert waited.err.count("LaunchFailed") == 1
    growing.write_text(growing.read_text().replace("replicas: 2", "replicas: 0"))
    assert autoscaler_messages(5) == [], "nothing waits for nodes"
    cluster.data_at = {"/events": {"events": [{"message": REFUSED}]}, "/api/cluster_status": {"clusterStatus": STATUS}}
    growing.write_text(growing.read_text().replace("replicas: 0", "replicas: 2"))
    launches = json.loads(cli("plan", "-f", growing, "--format", "json").out)["autoscaler"]
    assert len(launches) == 2, "only the event without a time is left out"
    for age_s, silent in ((30, 0), (90, 1)):
        cluster.data_at["/api/cluster_status"] = {"clusterStatus": {"time": time.time() - age_s}}
        told = json.loads(cli("plan", "-f", growing, "--format", "json").out)["autoscaler"]
        assert len(told) == silent
    assert told[0].startswith("Ray's autoscaler has reported nothing since 20")
    assert "has reported nothing since" in cli("plan", "-f", growing).out
    assert "has reported nothing since" in cli("status", "-f", growing).err
    waited = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "100ms")
    assert waited.err.count("has reported nothing since") == 1
    cluster.data_at = {"/events": "odd", "/api/cluster_status": []}
    assert json.loads(cli("plan", "-f", growing, "--format", "json").out)["autoscaler"] == []


def test_nodes_for_the_others_are_requested_once_their_pilot_is_ready(
    cli, cluster: ClusterStandIn, growing: Path
) -> None:
    """The first node joins, the pilot starts there, and only then the other three are requested."""
    document = yaml.safe_load(growing.read_text())
    document["spec"]["policy"] = {"pilot": {"over": 2}}
    document["spec"]["models"] = [{**document["spec"]["models"][-1], "replicas": 4}]
    growing.write_text(yaml.safe_dump(document))
    requests: list[dict[str, Any]] = []

    def respond(request: dict[str, Any]) -> Steps:
        requests.append(request["plan"])
        create_all(cluster, request["plan"])
        for _ in range(sum(row["nodes"] for row in request["plan"]["growth"])):
            cluster.add_node(f"new-{len(cluster.nodes)}", pool="big")
        return all_ready(request)[-1:]

    cluster.on_submit = respond
    shown = " ".join(cli("plan", "-f", growing).out.split())
    assert "1 new big node to request, 3 big nodes after a pilot" in shown
    assert "big: 1 node, 3 more once a pilot is ready, at most 4; for 4 of org/big" in shown, shown
    asked = cli("apply", "-f", growing, "--wait-for-nodes", "1m", typed="n\n")
    question = "Request 1 new big node from the autoscaler, 3 big nodes more once a pilot is ready?"
    assert question in asked.err + asked.out
    result = cli("apply", "-f", growing, "--yes", "--wait-for-nodes", "1m", "--format", "json")
    assert result.code == 0, result.err
    assert [(len(plan["actions"]), [(row["nodes"], row.get("afterPilot", 0)) for row in plan["growth"]])
            for plan in requests] == [(0, [(1, 3)]), (1, [(0, 3)]), (0, [(3, 0)]), (3, [(0, 0)])]
