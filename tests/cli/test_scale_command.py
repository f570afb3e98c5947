"""`fleetctl scale` and `fleetctl deploy`: an apply of one model to a number from the command line, never to fewer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, all_ready

MODEL = "org/one"


@pytest.fixture
def obeying(cluster: ClusterStandIn) -> ClusterStandIn:
    cluster.on_submit = all_ready
    return cluster


def created(cluster: ClusterStandIn) -> list[str]:
    return [action["id"] for job in cluster.jobs for action in cluster.request_of(job)["plan"]["actions"]]


def test_scale_starts_as_many_as_are_missing_of_this_model_alone(
        cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    obeying.add_replica(MODEL, 4, obeying.nodes[0]["node_id"], gpus=0)
    shown = cli("scale", MODEL, "--replicas", "3", "-f", fleet_file, "--yes", "--format", "json")
    assert shown.code == 0, shown.err
    assert created(obeying) == [f"{MODEL}/5", f"{MODEL}/6"]
    assert [row["outcome"] for row in json.loads(shown.out)["outcomes"]] == ["ready", "ready"]


def test_scale_up_becomes_a_total_before_anything_happens(cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    obeying.add_replica(MODEL, 0, obeying.nodes[0]["node_id"], gpus=0)
    assert cli("scale", MODEL, "--scale-up", "2", "-f", fleet_file, "--yes").code == 0
    [job] = obeying.jobs
    assert {action["wanted"] for action in obeying.request_of(job)["plan"]["actions"]} == {3}


def test_a_lower_number_does_nothing_and_is_reported(cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    for replica_id in range(3):
        obeying.add_replica(MODEL, replica_id, obeying.nodes[0]["node_id"], gpus=0)
    shown = cli("scale", MODEL, "--replicas", "1", "-f", fleet_file, "--yes")
    assert shown.code == 0
    assert "3 are live, 1 wanted; nothing to start" in shown.err
    assert obeying.writes() == []


def test_replicas_of_another_fleet_are_not_counted_but_named(cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    obeying.add_replica(MODEL, 0, obeying.nodes[0]["node_id"], fleet="other", gpus=0)
    shown = cli("scale", MODEL, "--replicas", "1", "-f", fleet_file, "--yes")
    assert shown.code == 3
    assert "nothing to start" not in shown.err
    assert "CLAIMED_BY_FLEET" in shown.out


def test_a_number_above_the_files_is_reported(cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    shown = cli("scale", MODEL, "--replicas", "6", "-f", fleet_file, "--yes")
    assert "the next plan holds" in shown.err
    assert "as surplus" in shown.err


@pytest.mark.parametrize(("words", "said"), [
    (("deploy", "--replicas", "5"), "holds 2 of them as surplus"),
    (("scale", "--replicas", "5"), "holds 2 of them as surplus"),
    (("deploy", "--replicas", "1"), "the fleet file wants 3; the next apply starts 2 replicas more"),
    (("scale", "--scale-up", "1"), "the fleet file wants 3; the next apply starts 2 replicas more")])
def test_the_effect_of_the_next_apply_on_another_number_is_reported(
        cli, obeying: ClusterStandIn, fleet_file: Path, words: tuple[str, ...], said: str) -> None:
    verb, *flags = words
    assert said in cli(verb, MODEL, *flags, "-f", fleet_file, "--yes").err


def test_deploy_is_refused_if_any_replica_of_the_model_is_live(cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    obeying.add_replica(MODEL, 0, obeying.nodes[0]["node_id"], state="PENDING_CREATION", gpus=0)
    shown = cli("deploy", MODEL, "-f", fleet_file, "--yes")
    assert shown.code == 1
    assert f"{MODEL} has 1 live replica" in shown.err
    assert f"fleetctl scale {MODEL} --replicas N" in shown.err
    assert obeying.writes() == []


def test_deploy_starts_the_number_in_the_file_or_of_the_flag(cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    assert cli("deploy", MODEL, "--replicas", "1", "-f", fleet_file, "--yes").code == 0
    assert created(obeying) == [f"{MODEL}/0"]


def test_what_does_not_fit_is_not_enough(cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    shown = cli("deploy", MODEL, "--replicas", "5000", "-f", fleet_file, "--yes")
    assert shown.code == 3
    assert "blocked" in shown.out


@pytest.mark.parametrize(("command", "code"), [("scale", 0), ("deploy", 3)])
def test_a_dry_run_shows_the_plan_asks_nothing_and_writes_nothing(
        cli, obeying: ClusterStandIn, fleet_file: Path, command: str, code: int) -> None:
    wanted = "2" if code == 0 else "5000"
    shown = cli(command, MODEL, "--replicas", wanted, "-f", fleet_file, "--dry-run")
    assert shown.code == code
    assert f"+ {MODEL}/1" in shown.out
    assert "--dry-run: nothing was done" in shown.err
    told = cli(command, MODEL, "--replicas", wanted, "-f", fleet_file, "--dry-run", "--format", "json").summary
    first, second, *blocked = told["outcomes"]
    assert [(row["replicaId"], row["outcome"], row["code"]) for row in (first, second)] == [
        (0, "skipped", "DRY_RUN"), (1, "skipped", "DRY_RUN")]
    assert first["nodes"] in (["node-a"], ["node-b"])
    assert {row["outcome"] for row in blocked if row.get("code") != "DRY_RUN"} == ({"blocked"} if code else set())
    assert obeying.writes() == []


@pytest.mark.parametrize("command", ["scale", "deploy"])
def test_a_model_that_the_file_does_not_have_is_named_with_the_nearest(
        cli, obeying: ClusterStandIn, fleet_file: Path, command: str) -> None:
    shown = cli(command, "org/on", "--replicas", "1", "-f", fleet_file, "--yes")
    assert shown.code == 64
    assert "the fleet file has no model org/on" in shown.err
    assert MODEL in shown.err
    assert obeying.writes() == []


def test_an_incomplete_inventory_starts_nothing(cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    obeying.refusals["GET", "/api/version"] = [(500, "")] * 10
    assert cli("scale", MODEL, "--scale-up", "1", "-f", fleet_file, "--yes").code == 1
    assert obeying.writes() == []


def test_dedicated_replicas_take_whole_cards_and_are_current_for_the_next_plan(
    cli, obeying: ClusterStandIn, tmp_path: Path
) -> None:
    member = "{resources: {gpus: 0.25, vram: 0}, engine: {command: [serve]}}"
    fleet = tmp_path / "shared.yaml"
    fleet.write_text("apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  models:\n"
                     f"  - {{key: org/shared, replicas: 3, workers: [{{name: main, members: [{member}]}}]}}\n")
    node = obeying.nodes[0]["node_id"]
    obeying.add_replica("org/shared", 0, node, gpus=2_500)
    assert cli("scale", "org/shared", "--replicas", "3", "--dedicated", "-f", fleet, "--yes").code == 0
    [job] = obeying.jobs
    actions = obeying.request_of(job)["plan"]["actions"]
    assert [member["gpus"] for action in actions for member in action["members"]] == [10_000, 10_000]
    for action in actions:
        obeying.add_replica("org/shared", action["replicaId"], node, gpus=10_000, spec_hash=action["specHash"])
    plan = json.loads(cli("plan", "-f", fleet, "--format", "json").out)
    assert plan["summary"]["create"] == 0
    assert [drift["replicaId"] for drift in plan["drift"]] == [0], "the first one carries the stand-in's hash"
    [held] = [one for one in json.loads(cli("inventory", "--format", "json").out)["nodes"] if one["id"] == node]
    assert held["resources"]["used"]["GPU"] == 2.25


@pytest.mark.parametrize(("typed", "right"), [
    ("scale org/one 4 -f FLEET", "--replicas 4"), ("deploy org/one 4 -f FLEET", "--replicas 4"),
    ("what-if -f FLEET --scale org/one 4", "--scale org/one=4")])
def test_a_number_without_its_flag_is_refused_with_it(cli, fleet_file: Path, typed: str, right: str) -> None:
    shown = cli(*typed.replace("FLEET", str(fleet_file)).split())
    assert shown.code == 64
    assert right in shown.err


def test_scale_shows_the_model_it_is_about(cli, obeying: ClusterStandIn, fleet_file: Path) -> None:
    obeying.add_replica("org/two", 0, obeying.nodes[0]["node_id"], gpus=0)
    out = cli("scale", MODEL, "--replicas", "1", "-f", fleet_file, "--yes").out
    assert MODEL in out
    assert "org/two" not in out


@pytest.mark.parametrize("before", [True, False])
def test_color_is_chosen_before_and_after_the_command(cli, cluster: ClusterStandIn, *, before: bool) -> None:
    cluster.add_replica(MODEL, 0, cluster.nodes[0]["node_id"], gpus=0)
    flag = ("--color", "always")
    shown = cli(*flag, "status") if before else cli("status", *flag)
    assert "\x1b[32mready" in shown.out
    assert "\x1b" not in cli("status").out
