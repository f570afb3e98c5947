"""No shape of a dashboard's answers ends a command as a bug in fleetctl: any value may be of any JSON type."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_result import Cli
from cluster_stand_in import ClusterStandIn, Steps, all_ready, event
from random_cases import cases
from record_rows import record as record_of

from fleetctl.agent.report import actor_name

COMMANDS = (
    ("status", "-f", "FLEET"), ("plan", "-f", "FLEET"), ("doctor", "-f", "FLEET"), ("history",),
    ("endpoints", "-f", "FLEET", "--format", "json"), ("inventory", "--format", "json"), ("status",),
    ("history", "show", "latest"), ("import",), ("logs", "org/one"), ("map", "-f", "FLEET"),
    ("evict", "org/one/0", "--dry-run"), ("replace", "org/one", "-f", "FLEET", "--dry-run"),
)
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 7, 1.5, 1e308, float("nan"), float("inf"), 10**400, -10**18, 2**63, "", "x", "\u0661",
    "{", "9" * 5000, "\x1b[2J\n::error::x", "\ud800", "a" * 100_000, "2026-13-45T00:00:00Z",
    "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "1970-01-01T00:00:00Z", "NaN", "[1]",
    '{"v":1,"fleet":"lab","members":[{"ip":5,"port":true}]}', '{"readyAt":"9999-12-31T23:59:59-23:59","fleet":"lab"}',
    "ALIVE", "DEAD", "PENDING", [], [1] * 100, [[]], [None], ["x"], {}, {"a": 1}, {"": {}}, [{}],
)
Place = tuple[Any, Any]


@pytest.fixture
def full(cluster: ClusterStandIn) -> ClusterStandIn:
    """A cluster with something of every kind that a command reads."""
    first, second = (row["node_id"] for row in cluster.nodes)
    for row in cluster.nodes:
        row["start_time_ms"] = 1_772_000_000_000
        card = {"index": 0, "uuid": f"GPU-{row['node_name']}", "name": "H100", "memoryTotal": 81920,
                "memoryUsed": 70_000, "processesPids": [{"pid": 42, "gpuMemoryUsage": 20_000}]}
        slots = {"GPU": {"resourceSlots": [{"slot": 0, "allocation": 1}]}}
        worker = {"pid": 42, "actorId": "0" * 32, "usedResources": slots}
        cluster.of_node[row["node_id"]] = {
            "gpus": [card], "disk": {"/": {"total": 100, "free": 1}}, "mem": [1 << 40, 1 << 39, 50, 1 << 39],
            "raylet": {"nodeId": row["node_id"], "state": "ALIVE", "stateSnapshot": {"state": "ALIVE"},
                       "nodeManagerHostname": "h", "coreWorkersStats": [worker]}}
    cluster.add_replica("org/one", 0, first, up_ms=(1_772_000_000_000, 1_772_000_000_000), gpus=0)
    cluster.add_replica("org/one", 1, second, state="RESTARTING", restarts=2, gpus=0)
    cluster.add_replica("org/two", 0, second, state="PENDING_CREATION", gpus=0)
    cluster.add_failure("org/two", second, "abc", "it ended; last output: oh no")
    _add_gang(cluster, first, second)
    cluster.log_files[first, "fleetctl-org_one.log"] = "fleetctl: starting at 2026-03-04T12:00:00Z\n"
    record = cluster.add_job("fleetctl-apply-000000000001", ("SUCCEEDED", event(0, "version", "agent")), verb="apply",
                             fleet="lab", namespace="fleet", toolVersion="0.0.1", create="1", planId="p" * 64,
                             draining=first, unfetched=json.dumps([{"nodeId": first, "artifact": "1" * 64,
                                                                    "at": "2026-03-04T12:00:00Z"}]))
    record.status, record.log, record.driver_id = "FAILED", all_ready_log(), cluster.actors[0]["job_id"]
    record.start_time, record.end_time, record.message = 1_772_000_000_000, 1_772_000_009_000, "oh"
    cluster.add_job("fleetctl-cordon-000000000002", verb="cordon", nodes=json.dumps([first]), reason="broken",
                    until="2026-03-04T12:00:00Z", tool="fleetctl").status = "SUCCEEDED"
    cluster.add_job("fleetctl-apply-000000000003", ("RUNNING", ""), verb="apply", fleet="lab").status = "RUNNING"
    reload = {"model": "org/one", "replicaId": 0, "actorId": cluster.actors[0]["actor_id"], "specHash": "x",
              "at": "2026-03-04T12:00:00Z", "nodeIds": [first], "weights": [None]}
    cluster.add_job("fleetctl-apply-000000000004", verb="apply", fleet="lab", namespace="fleet",
                    reloads=json.dumps([reload]), replicas='["org/one/0"]').status = "SUCCEEDED"
    rows = cluster.records
    rows.put("cordon", [record_of(second, verb="cordon", node=second, nodeName="node-b", reason="x", until="soon")])
    rows.put("slots", [record_of(second, node=second, slots="4"), record_of(first, node=first, slots="2", who="ana")])
    rows.put("draining", [record_of("c" * 56)])
    rows.put("reload", [record_of("x/j", **reload, fleet="lab", namespace="fleet", code="RELOAD_FAILED")], "lab")
    rows.put("unfetched", [record_of("n/a", nodeId=first, artifact="2" * 64)], "lab")
    rows.put("run", [record_of("fleetctl-evict-000000000005", verb="evict", namespace="fleet", driver="18",
                               replicas='["org/one/0"]')], jobs="9", drivers="9")
    return cluster


def all_ready_log() -> str:
    steps: Steps = all_ready({"record": {"replicas": []}, "plan": {"actions": [], "blocked": []}})
    return steps[-1][1]


def _add_gang(cluster: ClusterStandIn, *node_ids: str) -> None:
    places = [{"group": "main", "copy": 0, "role": "Worker" if rank else "Leader", "rank": rank, "nodeId": node_id,
               "gpus": 10_000, "vram": 0, "cpus": 0, "memory": 0, "ip": "10.0.0.7", "port": 9000 + rank,
               "gpuIndices": [0], "gpuUuids": ["GPU-x"],
               "weights": {"artifact": "1" * 64, "port": 7000, "bytes": 5, "view": None,
                           "fetched": {"source": "peer", "from": "m/0", "left": [], "seconds": 1.5}}}
              for rank, node_id in enumerate(node_ids)]
    described = {"v": 1, "fleet": "lab", "namespace": "fleet", "specHash": "abc", "restartMax": 5,
                 "readyAt": "2026-03-04T12:00:00Z", "members": places}
    base = {"state": "ALIVE", "job_id": "17", "ray_namespace": "fleet", "num_restarts": "0", "death_cause": None,
            "required_resources": {}, "placement_group_id": None, "repr_name": ""}
    cluster.actors.append({**base, "actor_id": "a" * 32, "name": actor_name("org/gang", 0), "node_id": node_ids[0],
                           "class_name": "GangCoordinator",
                           "repr_name": json.dumps(described)})
    for number, node_id in enumerate(node_ids):
        cluster.actors.append({**base, "actor_id": f"b{number}" * 16, "name": "", "node_id": node_id,
                               "class_name": "GangMember", "placement_group_id": "9" * 36,
                               "required_resources": {f"GPU_group_{'9' * 36}": 1.0}})
    cluster.groups.append({"name": actor_name("org/gang", 1), "placement_group_id": "9" * 36, "state": "CREATED",
                           "bundles": [{"node_id": node_ids[0], "unit_resources": {"GPU": 1.0}}]})


def places_in(value: Any) -> Iterator[Place]:
    """Yield every place of a JSON value as its container and key; also inside texts that are JSON."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places_in(value[key])


def mutate(answer: Any, chance: random.Random) -> None:
    """Replace up to three values of an answer; a text of JSON, such as a repr, may change inside instead."""
    for _ in range(chance.randint(1, 3)):
        places = list(places_in(answer))
        if not places:
            return
        container, key = chance.choice(places)
        inner = container[key]
        if isinstance(inner, str) and inner[:1] in ("{", "[") and chance.random() < 0.8:
            try:
                inside = json.loads(inner)
            except ValueError:
                continue
            mutate(inside, chance)
            container[key] = json.dumps(inside)
        elif isinstance(container, dict) and chance.random() < 0.1:
            container[chance.choice(("x", "__proto__", "", " ", "\u202e"))] = container.pop(key)
        else:
            container[key] = chance.choice(VALUES)


def mutate_from_now_on(cluster: ClusterStandIn, chance: random.Random) -> None:
    """Change one in three answers of the dashboard."""
    faithful = type(cluster).answer

    def answer(method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, Any]:
        status, content = faithful(cluster, method, path, query, body)
        if chance.random() < 1 / 3 and status == 200:
            try:
                parsed = [json.loads(content)]
            except ValueError:
                return status, content
            mutate(parsed, chance)
            content = json.dumps(parsed[0])
        return status, content

    cluster.answer = answer  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(cases(150)))
def test_no_shape_of_an_answer_is_a_bug(seed: int, cli: Cli, full: ClusterStandIn, fleet_file: Path) -> None:
    chance = random.Random(seed)
    mutate_from_now_on(full, chance)
    words = [str(fleet_file) if word == "FLEET" else word for word in COMMANDS[seed % len(COMMANDS)]]
    result = cli(*words)
    assert "bug in fleetctl" not in result.err, result.err
    assert "Traceback" not in result.err + result.out
    assert full.writes() == []


def one_model(folder: Path) -> Path:
    (folder / "one.yaml").write_text("""
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec: {models: [{key: m, replicas: 1, workers: [{name: main, members: [
  {resources: {gpus: 1, cpus: 1, memory: 1Gi}, engine: {command: [x]}}]}]}]}
""")
    return folder / "one.yaml"


@pytest.mark.parametrize("amount", [1e305, 1e17, 10**30, float("nan"), float("inf"), -1, "x", 1025])
def test_a_node_with_an_absurd_amount_is_named_and_left_out_and_others_are_planned(
    cli: Cli, cluster: ClusterStandIn, tmp_path: Path, amount: Any
):
    first, second = cluster.nodes
    first["resources_total"]["GPU"] = amount
    done = cli("plan", "-f", one_model(tmp_path), "--format", "json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert [member["nodeId"] for action in plan["actions"] for member in action["members"]] == [second["node_id"]]
    found = json.loads(cli("inventory", "--format", "json").out)
    warnings = [warning for warning in found["warnings"] if "left out" in warning]
    assert warnings == [(f"Ray says that {first['node_name']} has GPU: {amount} (0 to 1024), which no node has: it is "
                        "left out, and gets no new replicas")]
    assert found["complete"]


@pytest.mark.parametrize("number", [1e305, 1e17, 10**30, float("nan"), -1, 2**63, 10**300])
@pytest.mark.parametrize("place", ["card", "index", "slot", "sum", "claim", "host"])
def test_an_absurd_number_about_a_node_ends_no_plan(
    cli: Cli, full: ClusterStandIn, tmp_path: Path, place: str, number: Any
):
    first = full.nodes[0]["node_id"]
    entry = full.of_node[first]
    card = entry["gpus"][0]
    if place == "claim":
        full.actors[0]["required_resources"] = {"GPU": number, "CPU": number, "memory": number}
    elif place == "host":
        entry["mem"] = [number, number, 50, number]
        card["memoryTotal"] = 0
    elif place == "slot":
        entry["raylet"]["coreWorkersStats"][0]["usedResources"]["GPU"]["resourceSlots"] = [
            {"slot": number, "allocation": number}]
    elif place == "sum":
        text = f"{number}/16.0 CPU\n{number}/{number} GPU\n{number}B/{number}TiB memory"
        full._sums = lambda _: text  # type: ignore[method-assign]
    else:
        card.update({"index": number} if place == "index" else {"memoryTotal": number, "memoryUsed": number})
    done = cli("plan", "-f", one_model(tmp_path))
    assert "bug in fleetctl" not in done.err
    assert done.code == 0, done.err
