"""A replica that was ready and no longer answers its readiness: shown, without requests, counted as live, kept."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from apply_answers import VERSION, outcome
from cli_result import Cli
from cluster_stand_in import ClusterStandIn, all_ready, summary
from published_schemas import validator

from fleetctl.render.endpoint_formats import FORMATS

MODEL, WHY = "org/one", "GET /health on port 8000: HTTP 503"


@pytest.fixture
def two(cluster: ClusterStandIn) -> ClusterStandIn:
    """Two replicas, of which the second no longer answers; it is the afternoon of that day."""
    cluster.ahead_s = datetime(2026, 3, 4, 14, 5, tzinfo=timezone.utc).timestamp() - time.time()
    for number, node in enumerate(cluster.nodes):
        cluster.add_replica(MODEL, number, node["node_id"])
    cluster.stop_answering(1)
    return cluster


@pytest.fixture
def wants_two(tmp_path: Path) -> Path:
    return fleet_of(tmp_path / "fleet.yaml", 2)


def fleet_of(path: Path, replicas: int) -> Path:
    path.write_text(f"""apiVersion: fleetctl/v1
kind: Fleet
metadata: {{name: lab}}
spec:
  models:
  - {{key: {MODEL}, replicas: {replicas}, workers: [
      {{name: main, members: [{{resources: {{gpus: 8}}, engine: {{command: [serve]}}}}]}}]}}
""")
    return path


def test_status_has_its_own_word_and_says_since_when_and_why(cli: Cli, two: ClusterStandIn, wants_two: Path) -> None:
    result = cli("status", "-f", wants_two)
    [row] = [line for line in result.out.splitlines() if line.startswith(f"{MODEL}/1")]
    assert "not ready" in row
    text = " ".join(result.out.split())
    assert f"no longer ready since 12:03 UTC: {WHY}" in text
    assert "Replicas: 1 ready, 1 not ready" in result.out
    document = json.loads(cli("status", "--format", "json").out)
    validator("inventory").validate(document)
    assert [(one.get("notReadySince"), one.get("notReadyReason")) for one in document["replicas"]] == [
        (None, None), ("2026-03-04T12:03:11Z", WHY)]
    assert "1 up" in cli("inventory").out


@pytest.mark.parametrize("more", [
    {"readyAt": "2026-03-04T11:00:00Z"}, {"readyAt": 7}, {"since": "noon"}, {"since": None}, {"readyAt": []}])
def test_a_record_of_another_life_or_without_a_time_does_not_count(
    cli: Cli, two: ClusterStandIn, more: dict[str, Any]
) -> None:
    two.stop_answering(1, **more)
    assert "Replicas: 2 ready" in cli("status").out


def test_what_an_actor_says_of_its_probe_is_bounded_and_cannot_command_a_terminal(
    cli: Cli, two: ClusterStandIn
) -> None:
    two.stop_answering(1, reason="\x1b[2J\n::error::" + "x" * 9_000)
    result = cli("status", "--format", "json")
    [reason] = [one["notReadyReason"] for one in json.loads(result.out)["replicas"] if "notReadySince" in one]
    assert reason == ("\x1b[2J\n::error::" + "x" * 9_000)[:300].replace("\x1b", " ").replace("\n", " ")
    assert "\x1b" not in cli("status").out


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "table"])
def test_it_is_in_no_format_of_endpoints(cli: Cli, two: ClusterStandIn, wants_two: Path, form: str) -> None:
    written = cli("endpoints", "-f", wants_two, "--format", form).out
    assert "7001" in written
    assert "7002" not in written
    two.records.put("notready", [], "lab")
    assert "7002" in cli("endpoints", "-f", wants_two, "--format", form).out


def test_a_plan_counts_it_as_live_and_an_apply_leaves_it_and_is_partial(
    cli: Cli, two: ClusterStandIn, wants_two: Path
) -> None:
    plan = cli("plan", "-f", wants_two, "--detailed-exitcode")
    assert plan.code == 0
    assert "0 to create, 0 blocked, 0 held, 1 no longer ready" in plan.out
    result = cli("apply", "-f", wants_two, "--yes", "--format", "json")
    assert result.code == 3
    [row] = result.summary["outcomes"]
    assert (row["replicaId"], row["outcome"], row["code"], row["message"]) == (
        1, "starting", "NO_LONGER_READY",
        f"it is up, but has not been ready since 12:03 UTC: {WHY}")
    assert two.writes() == [], "there is nothing to do"
    assert cli("apply", "-f", wants_two, "--yes", "--no-wait").code == 0, "it only wants replicas created"
    assert cli("apply", "-f", fleet_of(wants_two, 1), "--yes").code == 0, "one is wanted, and one is ready"


def test_after_an_apply_the_cluster_tells_which_replicas_answer_by_then(
    cli: Cli, two: ClusterStandIn, tmp_path: Path
) -> None:
    two.add_node("node-c")

    def answer(request: dict[str, Any]) -> Any:
        two.records.put("notready", [], "lab")
        return all_ready(request)[-1:]

    two.on_submit = answer
    assert cli("apply", "-f", fleet_of(tmp_path / "f.yaml", 3), "--yes").code == 0, "it answers again"

    def stop(request: dict[str, Any]) -> Any:
        two.add_replica(MODEL, 2, two.nodes[2]["node_id"])
        two.stop_answering(2)
        return [("SUCCEEDED", VERSION + summary(1, {**outcome("ready", 2), "model": MODEL}))]

    two.on_submit = stop
    result = cli("apply", "-f", tmp_path / "f.yaml", "--yes", "--format", "json")
    assert (result.code, [(row["replicaId"], row["outcome"]) for row in result.summary["outcomes"]]) == (
        3, [(2, "starting")])


def test_a_plan_makes_one_more_request_only_while_a_replica_is_not_ready(
    cli: Cli, two: ClusterStandIn, wants_two: Path
) -> None:
    def asked() -> int:
        two.requests.clear()
        assert cli("plan", "-f", wants_two).code == 0
        return len(two.requests)

    late = asked()
    two.records.rows["fleetctl.records.run"]["metadata"]["rows"] = '["fleetctl.records.run"]'
    assert asked() < late
