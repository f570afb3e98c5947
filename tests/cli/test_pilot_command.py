"""A pilot on the command line: what a plan and an apply say of those that follow it, in every format."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from apply_answers import VERSION
from cluster_stand_in import ClusterStandIn, event, summary
from git_folder import GitFolder

from fleetctl.fleetfile.load import load_fleet

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  policy: {pilot: {replicas: 1, over: 3}}
  models:
  - key: org/m
    replicas: 12
    workers:
    - name: main
      members:
      - resources: {gpus: 1}
        engine: {command: [serve]}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "pilot.yaml"
    path.write_text(FLEET)
    return path


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_plan_says_what_starts_first_and_what_follows(cli, fleet: Path) -> None:
    result = cli("plan", "-f", fleet, "--detailed-exitcode")
    shown = words(result.out)
    assert result.code == 2
    for text in ("create 1 first as a pilot, 11 once it is ready: 0 of 12 live", "Would create once a pilot is ready",
                 "Places all 12 missing replicas, 11 of them once a pilot is ready.",
                 "Would create once a pilot is ready Where they would run now; planned again then. +",
                 "Plan: 1 to create, 11 after a pilot, 0 blocked, 0 held, 0 to remove"):
        assert text in shown


@pytest.mark.parametrize("format_", ["json", "jsonl", "markdown", "html", "github", "sarif", "junit"])
def test_every_format_says_how_many_follow(cli, fleet: Path, format_: str) -> None:
    result = cli("plan", "-f", fleet, "--format", format_)
    assert result.code == 0, result.err
    if format_ == "json":
        plan = json.loads(result.out)
        assert (plan["summary"]["afterPilot"], len(plan["afterPilot"]), plan["models"][0]["afterPilot"]) == (11, 11, 11)
    else:
        assert "11" in result.out
        assert "pilot" in result.out


def test_a_review_counts_all_that_the_change_causes(cli, fleet: Path, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1",
               **{f"GIT_{who}_{what}": f"t@{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
    repository = GitFolder(tmp_path, environ)
    repository.git("init", "--quiet")
    repository.commit({fleet.name: FLEET.replace("replicas: 12", "replicas: 5")})
    fleet.write_text(FLEET)
    change = json.loads(cli("plan", "-f", fleet, "--base", "HEAD", "--format", "json").out)["change"]
    assert (change["create"], change["alsoWithout"], change["noLonger"]) == (7, 5, 0)
    assert change["models"][0]["message"].startswith("7 more to create")


def test_a_policy_counts_all_of_them(cli, fleet: Path) -> None:
    fleet.write_text(FLEET.replace("policy: {", "policy: {maxNewReplicas: 4, "))
    result = cli("apply", "-f", fleet, "--yes")
    assert result.code == 4
    assert "creates 12 replicas" in words(result.err)


def test_the_question_names_both_and_a_dry_run_lists_both(cli, fleet: Path) -> None:
    assert "Create 1 replica and 11 more once a pilot is ready?" in words(cli("apply", "-f", fleet, typed="n\n").err)
    result = cli("scale", "org/m", "--replicas", "13", "-f", fleet, "--dry-run", "--format", "json")
    rows = [(row["code"], row["replicas"]) for row in result.summary["outcomes"]]
    assert (result.code, rows) == (0, [("DRY_RUN", 1), ("AFTER_PILOT", 12)])


def ready_pilot(cluster: ClusterStandIn, fleet: Path) -> None:
    [model] = load_fleet([str(fleet)]).models
    cluster.add_replica("org/m", 0, cluster.nodes[0]["node_id"], gpus=10_000, spec_hash=model.spec_hash)


def wanted(cluster: ClusterStandIn, **pilot: Any) -> str:
    nodes = [{"nodeId": node["node_id"], "state": "ALIVE", "free": {"GPU": 7.0, "CPU": 8.0, "memory": 1e12}}
             for node in cluster.nodes]
    return event(1, "replanWanted", "pilot org/m/0 is ready", answer="j-replan-0", nodes=nodes, refused=[], pilots=[
        {"model": "org/m", "replicaId": 0, "outcome": "ready", **pilot}])


def test_the_client_answers_a_ready_pilot_with_a_plan_of_all_others(cli, cluster: ClusterStandIn, fleet: Path) -> None:
    def on_submit(request: dict[str, Any]) -> Any:
        assert [one["id"] for one in request["plan"]["actions"]] == ["org/m/0"]
        assert len(request["plan"]["afterPilot"]) == 11
        ready_pilot(cluster, fleet)
        return [("RUNNING", VERSION + wanted(cluster)),
                ("SUCCEEDED", VERSION + wanted(cluster) + summary(2, {"model": "org/m", "outcome": "ready"}))]

    cluster.on_submit = on_submit
    assert cli("apply", "-f", fleet, "--yes").code == 0
    plan = cluster.document("j-replan-0")["request"]["plan"]
    assert [one["id"] for one in plan["actions"]] == [f"org/m/{number}" for number in range(1, 12)]
    assert "afterPilot" not in plan


def test_a_pilot_that_has_died_since_is_followed_by_another_pilot_only(
    cli, cluster: ClusterStandIn, fleet: Path
) -> None:
    cluster.on_submit = lambda _: [("RUNNING", VERSION + wanted(cluster)), (
        "SUCCEEDED", VERSION + wanted(cluster) + summary(2, {"model": "org/m", "outcome": "ready"}))]
    cli("apply", "-f", fleet, "--yes")
    plan = cluster.document("j-replan-0")["request"]["plan"]
    assert (len(plan["actions"]), len(plan["afterPilot"])) == (1, 10), "no more than was agreed to"


def test_an_apply_without_waiting_beside_a_starting_pilot_has_nothing_to_do(
    cli, cluster: ClusterStandIn, fleet: Path
) -> None:
    cluster.add_replica("org/m", 0, cluster.nodes[0]["node_id"], gpus=10_000, state="PENDING_CREATION",
                        spec_hash=load_fleet([str(fleet)]).models[0].spec_hash)
    cluster.on_submit = lambda _: pytest.fail("no job is needed")
    result = cli("apply", "-f", fleet, "--yes", "--no-wait", "--format", "json")
    [row] = result.summary["outcomes"]
    assert (result.code, row["code"], row["replicas"]) == (0, "AFTER_PILOT", 11)


@pytest.mark.parametrize(("pilot", "word"), [
    ("{replicas: 4}", "replicas is larger than over, so all new ones would be pilots"), ("{replicas: 0}", "1"),
    ("{over: 0}", "1"),
    ("{replica: 1}", "replicas"), ("true", ""), ("{replicas: 1.5}", "")])
def test_a_wrong_pilot_is_a_problem_of_the_file(cli, fleet: Path, pilot: str, word: str) -> None:
    fleet.write_text(FLEET.replace("{replicas: 1, over: 3}", pilot))
    result = cli("validate", "-f", fleet)
    assert result.code == 1
    assert f"{fleet.name}:5:" in result.out + result.err
    assert word in result.out + result.err


def outdated_on(cluster: ClusterStandIn, count: int, **more: Any) -> None:
    for number in range(count):
        cluster.add_replica("org/m", number, cluster.nodes[0]["node_id"], gpus=10_000, spec_hash="old", **more)


def test_a_drain_counts_on_those_that_follow_the_pilot_of_a_new_spec(cli, cluster: ClusterStandIn, fleet: Path
                                                                     ) -> None:
    fleet.write_text(FLEET.replace("replicas: 12", "replicas: 5"))
    outdated_on(cluster, 5)
    result = cli("drain", "node-a", "--evict", "--dry-run", "-f", fleet)
    assert (result.code, result.err.count("\nend: ")) == (0, 5), result.err
    assert "stays: " not in result.err
    typed = cli("drain", "node-a", "--evict", "-f", fleet, typed="n\n")
    assert "Drain node-a: cordon it, start 5 replicas elsewhere, then end 5 replicas there?" in words(typed.err)


VARIANTS = """\
    variants:
    - {name: big, workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [serve]}}]}]}
"""


@pytest.mark.parametrize("command", [["replace", "org/m"], ["rollout"]])
def test_an_update_says_of_all_that_follow_a_pilot_what_they_replace(
        cli, cluster: ClusterStandIn, fleet: Path, command: list[str]) -> None:
    head = FLEET[:FLEET.index("    workers:")]
    fleet.write_text(head.replace("replicas: 12", "replicas: 5\n    update: {mode: surge, surge: 5}") + VARIANTS)
    outdated_on(cluster, 5, variant="gone")
    result = cli(*command, "-f", fleet, "--dry-run")
    assert words(result.err).count("(gone, which has left the file) is replaced by") == 5, result.err
