"""`fleetctl scale` and `fleetctl deploy`: apply one model with a number from the command line, never fewer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, all_ready

MODEL = "org/one"


@pytest.fixture
def acting(cluster: ClusterStandIn) -> ClusterStandIn:
    cluster.on_submit = all_ready
    return cluster


def created(cluster: ClusterStandIn) -> list[str]:
    return [action["id"] for job in cluster.jobs for action in cluster.request_of(job)["plan"]["actions"]]


def test_scale_starts_the_missing_replicas_of_this_model_only(
        cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    acting.add_replica(MODEL, 4, acting.nodes[0]["node_id"], gpus=0)
    result = cli("scale", MODEL, "--replicas", "3", "-f", fleet_file, "--yes", "--format", "json")
    assert result.code == 0, result.err
    assert created(acting) == [f"{MODEL}/5", f"{MODEL}/6"]
    assert [row["outcome"] for row in json.loads(result.out)["outcomes"]] == ["ready", "ready"]


def test_scale_up_is_sent_as_a_total(cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    acting.add_replica(MODEL, 0, acting.nodes[0]["node_id"], gpus=0)
    assert cli("scale", MODEL, "--scale-up", "2", "-f", fleet_file, "--yes").code == 0
    [job] = acting.jobs
    assert {action["wanted"] for action in acting.request_of(job)["plan"]["actions"]} == {3}


def test_a_lower_number_does_nothing_and_is_reported(cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    for replica_id in range(3):
        acting.add_replica(MODEL, replica_id, acting.nodes[0]["node_id"], gpus=0)
    result = cli("scale", MODEL, "--replicas", "1", "-f", fleet_file, "--yes")
    assert result.code == 0
    assert "3 are live, 1 wanted; nothing to start" in result.err
    assert acting.writes() == []


def test_replicas_of_another_fleet_are_not_counted_but_named(cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    acting.add_replica(MODEL, 0, acting.nodes[0]["node_id"], fleet="other", gpus=0)
    result = cli("scale", MODEL, "--replicas", "1", "-f", fleet_file, "--yes")
    assert result.code == 3
    assert "nothing to start" not in result.err
    assert "CLAIMED_BY_FLEET" in result.out


def test_a_number_above_that_of_the_file_is_reported(cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    result = cli("scale", MODEL, "--replicas", "6", "-f", fleet_file, "--yes")
    assert "the next plan holds" in result.err
    assert "as surplus" in result.err


@pytest.mark.parametrize(("words", "effect"), [
    (("deploy", "--replicas", "5"), "holds 2 of them as surplus"),
    (("scale", "--replicas", "5"), "holds 2 of them as surplus"),
    (("deploy", "--replicas", "1"), "the fleet file wants 3; the next apply starts 2 replicas more"),
    (("scale", "--scale-up", "1"), "the fleet file wants 3; the next apply starts 2 replicas more")])
def test_the_effect_of_the_next_apply_on_another_number_is_reported(
        cli, acting: ClusterStandIn, fleet_file: Path, words: tuple[str, ...], effect: str) -> None:
    verb, *flags = words
    assert effect in cli(verb, MODEL, *flags, "-f", fleet_file, "--yes").err


def test_deploy_is_refused_if_any_replica_of_the_model_is_live(cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    acting.add_replica(MODEL, 0, acting.nodes[0]["node_id"], state="PENDING_CREATION", gpus=0)
    result = cli("deploy", MODEL, "-f", fleet_file, "--yes")
    assert result.code == 1
    assert f"{MODEL} has 1 live replica" in result.err
    assert f"fleetctl scale {MODEL} --replicas N" in result.err
    assert acting.writes() == []


def test_deploy_starts_the_number_in_the_file_or_of_the_flag(cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    assert cli("deploy", MODEL, "--replicas", "1", "-f", fleet_file, "--yes").code == 0
    assert created(acting) == [f"{MODEL}/0"]


def test_a_deploy_that_does_not_fit_exits_with_3(cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    result = cli("deploy", MODEL, "--replicas", "5000", "-f", fleet_file, "--yes")
    assert result.code == 3
    assert "blocked" in result.out


@pytest.mark.parametrize(("command", "code"), [("scale", 0), ("deploy", 3)])
def test_a_dry_run_shows_the_plan_asks_nothing_and_writes_nothing(
        cli, acting: ClusterStandIn, fleet_file: Path, command: str, code: int) -> None:
    wanted = "2" if code == 0 else "5000"
    result = cli(command, MODEL, "--replicas", wanted, "-f", fleet_file, "--dry-run")
    assert result.code == code
    assert f"+ {MODEL}/1" in result.out
    assert "--dry-run: nothing was done" in result.err
    report = cli(command, MODEL, "--replicas", wanted, "-f", fleet_file, "--dry-run", "--format", "json").summary
    first, second, *blocked = report["outcomes"]
    assert [(row["replicaId"], row["outcome"], row["code"]) for row in (first, second)] == [
        (0, "skipped", "DRY_RUN"), (1, "skipped", "DRY_RUN")]
    assert first["nodes"] in (["node-a"], ["node-b"])
    assert {row["outcome"] for row in blocked if row.get("code") != "DRY_RUN"} == ({"blocked"} if code else set())
    assert acting.writes() == []


@pytest.mark.parametrize("command", ["scale", "deploy"])
def test_an_unknown_model_is_refused_with_the_nearest_key(
        cli, acting: ClusterStandIn, fleet_file: Path, command: str) -> None:
    result = cli(command, "org/on", "--replicas", "1", "-f", fleet_file, "--yes")
    assert result.code == 1
    assert "the fleet file has no model org/on" in result.err
    assert MODEL in result.err
    assert acting.writes() == []


def test_an_incomplete_inventory_starts_nothing(cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    acting.refusals["GET", "/api/version"] = [(500, "")] * 10
    assert cli("scale", MODEL, "--scale-up", "1", "-f", fleet_file, "--yes").code == 1
    assert acting.writes() == []


def test_dedicated_replicas_take_whole_cards_and_are_current_for_the_next_plan(
    cli, acting: ClusterStandIn, tmp_path: Path
) -> None:
    member = "{resources: {gpus: 0.25, vram: 0}, engine: {command: [serve]}}"
    fleet = tmp_path / "shared.yaml"
    fleet.write_text("apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  models:\n"
                     f"  - {{key: org/shared, replicas: 3, workers: [{{name: main, members: [{member}]}}]}}\n")
    node = acting.nodes[0]["node_id"]
    acting.add_replica("org/shared", 0, node, gpus=2_500)
    assert cli("scale", "org/shared", "--replicas", "3", "--dedicated", "-f", fleet, "--yes").code == 0
    [job] = acting.jobs
    actions = acting.request_of(job)["plan"]["actions"]
    assert [member["gpus"] for action in actions for member in action["members"]] == [10_000, 10_000]
    for action in actions:
        acting.add_replica("org/shared", action["replicaId"], node, gpus=10_000, spec_hash=action["specHash"])
    plan = json.loads(cli("plan", "-f", fleet, "--format", "json").out)
    assert plan["summary"]["create"] == 0
    assert [drift["replicaId"] for drift in plan["drift"]] == [0], "the first replica has the hash of the stand-in"
    [held] = [one for one in json.loads(cli("inventory", "--format", "json").out)["nodes"] if one["id"] == node]
    assert held["resources"]["used"]["GPU"] == 2.25


@pytest.mark.parametrize(("typed", "right"), [
    ("scale org/one 4 -f FLEET", "--replicas 4"), ("deploy org/one 4 -f FLEET", "--replicas 4"),
    ("what-if -f FLEET --scale org/one 4", "--scale org/one=4")])
def test_a_number_without_its_flag_is_refused_with_the_flag(cli, fleet_file: Path, typed: str, right: str) -> None:
    result = cli(*typed.replace("FLEET", str(fleet_file)).split())
    assert result.code == 64
    assert right in result.err


def test_scale_shows_only_its_model(cli, acting: ClusterStandIn, fleet_file: Path) -> None:
    acting.add_replica("org/two", 0, acting.nodes[0]["node_id"], gpus=0)
    out = cli("scale", MODEL, "--replicas", "1", "-f", fleet_file, "--yes").out
    assert MODEL in out
    assert "org/two" not in out


@pytest.mark.parametrize("before", [True, False])
def test_color_is_chosen_before_and_after_the_command(cli, cluster: ClusterStandIn, *, before: bool) -> None:
    cluster.add_replica(MODEL, 0, cluster.nodes[0]["node_id"], gpus=0)
    flag = ("--color", "always")
    result = cli(*flag, "status") if before else cli("status", *flag)
    assert "\x1b[32mready" in result.out
    assert "\x1b" not in cli("status").out
