"""HOT, WARM and COLD as a user sees them: prefetches for `cold`, promotions, and the output of status and map."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cli_result import Cli
from cluster_stand_in import ClusterStandIn, Steps, event, ready, summary
from published_schemas import validator, validator_of
from record_rows import now, record

from fleetctl.agent import prefetch
from fleetctl.agent.messages import GotWeights
from fleetctl.agent.on_nodes import NodeAnswer
from fleetctl.agent.prefetch import Order, PrefetchResult, fetches_of
from fleetctl.agent.report import warm_name
from fleetctl.agent.run import step_all
from fleetctl.agent.run_messages import ApplyRequest
from fleetctl.agent.wire import document_of, parse
from fleetctl.documents.answers import PlacementMap
from fleetctl.documents.loading import load_plan

ONE = "1" * 64
GIB = 1 << 30


def write(path: Path, replicas: int = 0, cold: dict[str, str] | None = None) -> Path:
    weights = {"from": [{"path": "/models/m"}], "index": ONE}
    member = {"resources": {"gpus": 1}, "weights": weights, "engine": {"command": ["serve"], "env": {"TOKEN": "hush"}}}
    model = {"key": "m", "replicas": replicas, "workers": [{"name": "main", "members": [member]}],
             **({"cold": {"nodes": cold}} if cold is not None else {})}
    path.write_text(yaml.safe_dump({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"},
                                    "spec": {"models": [model]}}))
    return path


def ids(cluster: ClusterStandIn) -> dict[str, str]:
    return {node["node_name"]: node["node_id"] for node in cluster.nodes}


def note(cluster: ClusterStandIn, node_id: str, artifact: str) -> None:
    cluster.log_files[node_id, f"fleetctl-cold-{node_id}-{artifact}.json"] = "{}"


@pytest.fixture
def failing_nodes(cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let the agent fetch cold weights, except on the nodes whose names are in the returned set."""
    cluster.add_node("closed")
    cluster.add_job("n", ("SUCCEEDED", ""), verb="cordon", nodeName="closed", node=ids(cluster)["closed"]).step()
    cluster.add_node("dead", state="DEAD")
    failing: set[str] = set()

    def ask(_: object, node_id: str, order: Order, __: float) -> Any:
        name = next(name for name, found in ids(cluster).items() if found == node_id)
        [member] = order.members
        assert member.engine.env == {"TOKEN": "hush"}
        row = PrefetchResult(member.weights.artifact, GotWeights("origin", "/models/m", 5 * GIB, 2.5))
        if name in failing:
            row = PrefetchResult(member.weights.artifact, trouble="not enough room on the disk")
        else:
            note(cluster, node_id, member.weights.artifact)
        return SimpleNamespace(answer=lambda: NodeAnswer(node_id, [row]))

    def respond(request: dict[str, Any]) -> Steps:
        lines: list[str] = []
        events = SimpleNamespace(emit=lambda kind, message, **fields: lines.append(
            event(len(lines) + 1, kind, message, **fields)))
        tasks = fetches_of(parse(ApplyRequest, request), SimpleNamespace(events=events))  # type: ignore[arg-type]
        while not all(task.outcome for task in tasks):
            step_all(tasks)
        rows = document_of([task.outcome for task in tasks])
        return [("SUCCEEDED", event(0, "version", "agent", version="1.0") + "".join(lines) + summary(99, *rows))]

    monkeypatch.setattr(prefetch, "Asked", ask)
    monkeypatch.setattr(prefetch, "add", lambda kind, subject, payload, fleet: cluster.records.add(
        kind, record(subject, now(), **payload), fleet))
    cluster.on_submit = respond
    return failing


def test_nodes_without_the_weights_fetch_them_and_then_there_is_nothing_to_do(
    cli: Cli, cluster: ClusterStandIn, failing_nodes: set[str], tmp_path: Path
) -> None:
    file = write(tmp_path / "lab.yaml", cold={})
    note(cluster, ids(cluster)["node-b"], ONE)
    note(cluster, ids(cluster)["node-a"], "2" * 64)
    planned = cli("plan", "-f", file, "--detailed-exitcode")
    assert planned.code == 2
    assert "weights of m onto node-a from path /models/m" in planned.out
    assert "weights onto 1 node" in planned.out.splitlines()[-1]
    document = json.loads(cli("plan", "-f", file, "--format", "json").out)
    validator("plan").validate(document)
    [action] = document["actions"]
    assert (action["id"], action["op"], [member["node"] for member in action["members"]]) == (
        "m/prefetch", "prefetch", ["node-a"])
    assert "hush" not in json.dumps(document)
    assert "node-a" in cli("status", "-f", file).out
    applied = cli("apply", "-f", file, "--yes", "--format", "json")
    assert applied.code == 0, applied.err
    [row] = json.loads(applied.out)["outcomes"]
    assert (row["outcome"], row["level"], row["nodes"], row["weights"]["bytes"]) == (
        "ready", "COLD", ["node-a"], 5 * GIB)
    again = cli("plan", "-f", file, "--detailed-exitcode")
    assert (again.code, "fetch" in again.out) == (0, False)
    assert cli("apply", "-f", file, "--yes").code == 0


def test_a_node_that_cannot_fetch_makes_the_apply_partial_with_a_reason(
    cli: Cli, cluster: ClusterStandIn, failing_nodes: set[str], tmp_path: Path
) -> None:
    failing_nodes.add("node-b")
    file, saved = write(tmp_path / "lab.yaml", cold={}), tmp_path / "p.json"
    assert cli("plan", "-f", file, "--out", saved).code == 0
    applied = cli("apply", saved, "--yes")
    assert applied.code == 3
    assert "not enough room on the disk" in applied.out
    assert "weights on 1 node" in applied.out.splitlines()[-1]
    failing_nodes.clear()
    cooling = cli("plan", "-f", file, "--detailed-exitcode")
    assert (cooling.code, "weights of m onto" in cooling.out) == (0, False)
    [row] = json.loads(cli("plan", "-f", file, "--format", "json").out)["models"]
    assert row["reason"].endswith("; 1 node failed to fetch its weights: left alone for a while")
    assert "weights of m onto node-b" in cli("plan", "-f", file, "--ignore-cooldown").out
    file.write_text(file.read_text().replace(ONE, "2" * 64))
    assert "node-b" in cli("plan", "-f", file).out, "other weights are not cooling down"


def test_a_silent_node_is_named_and_fetches_nothing(
    cli: Cli, cluster: ClusterStandIn, failing_nodes: set[str], tmp_path: Path
) -> None:
    cluster.answer_of_node[ids(cluster)["node-a"]] = 500, '{"result": false, "msg": "no agent", "data": {}}'
    planned = cli("plan", "-f", write(tmp_path / "lab.yaml", cold={}))
    assert "onto node-b from" in planned.out
    assert "node-a: the weights on its disk are unknown" in planned.err


def test_no_node_is_examined_for_a_fleet_without_cold(cli: Cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    document = json.loads(cli("plan", "-f", write(tmp_path / "lab.yaml"), "--format", "json").out)
    assert not [path for _, path in cluster.requests if path.startswith("/api/v0/logs")]
    assert not {"promote", "prefetch"} & document["summary"].keys()
    assert document["actions"] == []


@pytest.fixture
def warm(cluster: ClusterStandIn) -> ClusterStandIn:
    """A WARM replica on the second node, beside a ready one."""
    node_id = ids(cluster)["node-b"]
    cluster.add_replica("m", 0, node_id, gpus=10_000)
    serves = {"artifact": ONE, "view": None, "whole": True, "port": 7000, "bytes": 3 * GIB}
    place = {"group": "main", "copy": 0, "role": "Standalone", "rank": 0, "nodeId": node_id, "ip": "10.0.0.7",
             "memory": 3 * GIB, "weights": serves}
    mark = {"v": 1, "fleet": "lab", "namespace": "fleet", "specHash": "abc", "level": "WARM", "members": [place]}
    cluster.actors.append({**cluster.actors[-1], "actor_id": "e" * 32, "name": warm_name("m", 4),
                           "class_name": "WarmReplica", "required_resources": {"memory": 3.0 * GIB},
                           "repr_name": json.dumps(mark)})
    return cluster


def test_a_plan_says_what_is_promoted_and_can_be_saved_and_applied(
    cli: Cli, warm: ClusterStandIn, tmp_path: Path
) -> None:
    file, saved = write(tmp_path / "lab.yaml", replicas=2), tmp_path / "p.json"
    planned = cli("plan", "-f", file, "--out", saved)
    assert "m/4: 1 GPU on node-b, promoted from WARM" in planned.out
    assert "1 to create (1 from WARM)" in planned.out.splitlines()[-1]
    assert "promoted from WARM" in cli("plan", "-f", file, "--format", "markdown").out
    assert "promoted from WARM" in cli("plan", "-f", file, "--format", "html").out
    plan = load_plan(saved.read_text(), "p.json")
    assert [(one.op, one.replica_id) for one in plan.actions] == [("promote", 4)]

    warm.on_submit = lambda request: [("SUCCEEDED", event(0, "version", "agent", version="1.0") + summary(
        9, {**ready("m", 4, "node-b"), "level": "HOT"}))]
    applied = cli("apply", saved, "--yes")
    assert applied.code == 0, applied.err
    assert "promoted" in applied.out


def test_status_and_map_show_warm_replicas_which_do_not_count(
    cli: Cli, warm: ClusterStandIn, tmp_path: Path
) -> None:
    file = write(tmp_path / "lab.yaml", replicas=1)
    result = cli("status", "-f", file)
    rows = [line.split() for line in result.out.splitlines()]
    assert ["m/4", "WARM", "warm", "node-b"] in [row[:4] for row in rows]
    assert ["m/0", "HOT", "ready,"] in [row[:3] for row in rows]
    assert "Replicas: 1 ready, 1 warm" in result.out
    assert cli("plan", "-f", file, "--detailed-exitcode").code == 0
    levels = {one["replicaId"]: one["level"]
              for one in json.loads(cli("status", "--format", "json").out)["replicas"]}
    assert levels == {0: "HOT", 4: "WARM"}
    assert "(WARM, 3Gi)" in cli("map", "-f", file).out
    document = json.loads(cli("map", "-f", file, "--format", "json").out)
    validator_of(PlacementMap).validate(document)
    assert [entry["live"] for entry in document["legend"] if entry["model"] == "m"] == [1]
