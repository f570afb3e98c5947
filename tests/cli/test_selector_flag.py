"""`--selector`: the models of a fleet with some labels, for plan, apply, status, capacity and map."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

WORKERS = "workers: [{name: main, members: [{resources: {gpus: 2}, engine: {command: [serve]}}]}]"


@pytest.fixture
def labeled(tmp_path: Path, cluster: ClusterStandIn) -> Path:
    """Three models, two with a team label, and a quota on one team."""
    cluster.add_replica("org/a", 0, cluster.nodes[0]["node_id"], gpus=20_000)
    path = tmp_path / "labelled.yaml"
    path.write_text(f"""\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {{name: lab}}
spec:
  policy: {{quotas: [{{selector: {{team: nlp}}, gpus: 4}}]}}
  shapes:
    two: {{{WORKERS}}}
  models:
  - {{key: org/a, replicas: 4, labels: {{team: nlp, tier: core}}, shape: two}}
  - {{key: org/b, replicas: 1, labels: {{team: vision}}, shape: two}}
  - {{key: org/c, replicas: 1, shape: two}}
""")
    return path


def test_a_plan_covers_only_the_selected_models_and_keeps_the_selector_when_saved(
    cli, labeled: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "nlp.fleetplan"
    plan = json.loads(cli("plan", "-f", labeled, "-l", "team=nlp", "--format", "json", "--out", saved).out)
    assert [action["id"] for action in plan["actions"]] == ["org/a/1"]
    assert [(one["model"], one["replicas"], one["code"]) for one in plan["blocked"]] == [("org/a", 2, "QUOTA")]
    assert [row["reason"] for row in plan["models"]][1:] == ["left out: not chosen by --selector"] * 2
    assert [row["labels"] for row in plan["models"]] == [{"team": "nlp", "tier": "core"}, {"team": "vision"}, {}]
    again = cli("apply", saved, "--selector", "team=nlp")
    assert (again.code, "--selector" in again.err) == (64, True)
    assert json.loads(cli("show", saved, "--format", "json").out)["options"]["selector"] == "team=nlp"


def test_an_apply_starts_only_the_selected_models(cli, cluster: ClusterStandIn, labeled: Path) -> None:
    assert cli("apply", "-f", labeled, "-l", "team in (nlp)", "--yes").code == 3
    assert cli("apply", "-f", labeled, "-l", "!team", "--yes").code == 0


def test_a_report_counts_by_label(cli, labeled: Path) -> None:
    lines = cli("plan", "-f", labeled).out.splitlines()
    table = [line.split() for line in lines[lines.index(next(line for line in lines if "LABEL" in line)):]][:4]
    assert table == [["LABEL", "MODELS", "WANTED", "LIVE", "CREATE", "BLOCKED"], ["team=nlp", "1", "4", "1", "1", "2"],
                     ["team=vision", "1", "1", "0", "1", "-"], ["tier=core", "1", "4", "1", "1", "2"]]


def test_status_capacity_and_map_show_only_the_selected_models(cli, cluster: ClusterStandIn, labeled: Path) -> None:
    cluster.add_replica("org/b", 0, cluster.nodes[1]["node_id"], gpus=20_000)
    assert [row["model"] for row in json.loads(
        cli("status", "-f", labeled, "-l", "team=vision", "--format", "json").out)["replicas"]] == ["org/b"]
    assert [row["model"] for row in json.loads(
        cli("capacity", "-f", labeled, "-l", "team", "--format", "json").out)["rows"]] == ["org/a", "org/b"]
    drawn = json.loads(cli("map", "-f", labeled, "-l", "team=vision", "--format", "json").out)
    assert [node["name"] for node in drawn["nodes"]] == ["node-b"]
    assert [entry["model"] for entry in drawn["legend"]] == ["org/b"]


@pytest.mark.parametrize("command", ["plan", "status", "capacity", "map"])
def test_a_selector_that_matches_nothing_is_an_error_that_lists_the_labels(
    cli, labeled: Path, command: str
) -> None:
    result = cli(command, "-f", labeled, "--selector", "team=npl")
    assert result.code == 1
    assert "no model of the fleet file has such labels" in result.err
    assert "team=nlp, team=vision, tier=core" in result.err
    assert cli(command, "-f", labeled, "--selector", "team=a b").code == 64


@pytest.mark.parametrize("command", ["status", "capacity", "map"])
def test_a_selector_requires_a_fleet_file(cli, cluster: ClusterStandIn, command: str) -> None:
    result = cli(command, "--selector", "team=nlp", *(["--shape", "1"] if command == "capacity" else []))
    assert (result.code, "give the file with -f" in result.err) == (64, True)
