"""`fleetctl evict` and `fleetctl restart`: they ask, and act only on the named replicas that fleetctl started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, event

MODEL = "org/one:1"


def carried_out(request: dict[str, Any], outcome: str = "gone") -> list[tuple[str, str]]:
    rows = [{"model": one["model"], "replicaId": one["replicaId"], "outcome": outcome, "nodes": one["nodes"],
             "message": ""} for one in request["replicas"]]
    return [("SUCCEEDED", event(0, "runSummary", "done", outcomes=rows, exitCode=0))]


@pytest.fixture
def running(cluster: ClusterStandIn) -> ClusterStandIn:
    """Two replicas that fleetctl started and one without a mark; the agent carries out every request."""
    for replica_id, node in enumerate(cluster.nodes):
        cluster.add_replica(MODEL, replica_id, node["node_id"])
    cluster.add_replica("odd", 0, cluster.nodes[0]["node_id"], fleet=None, gpus=0)
    cluster.on_submit = carried_out
    return cluster


def submitted(running: ClusterStandIn) -> dict[str, Any]:
    [job] = running.jobs
    return running.request_of(job)


def ids_submitted(running: ClusterStandIn) -> list[tuple[str, int]]:
    return [(one["model"], one["replicaId"]) for one in submitted(running)["replicas"]]


def test_the_question_names_the_replica_with_its_fleet_and_node(cli, running: ClusterStandIn) -> None:
    result = cli("evict", f"{MODEL}/1", typed="n\n")
    assert result.code == 1
    assert f"End {MODEL}/1 (fleet lab, ready, on node-b)? [y/N]" in result.err
    assert "nothing was done" in result.err
    assert running.writes() == []


def test_a_question_without_an_answer_counts_as_no_and_is_not_an_error(cli, running: ClusterStandIn) -> None:
    result = cli("evict", f"{MODEL}/1", typed="")
    assert result.code == 1
    assert "error" not in result.err
    assert result.err.endswith("note: nothing was done\n")
    assert running.writes() == []


def test_after_a_yes_the_agent_ends_that_replica(cli, running: ClusterStandIn) -> None:
    result = cli("evict", f"{MODEL}/1", typed="y\n")
    assert result.code == 0
    assert "Evict: 1 gone\n" in result.out
    assert (submitted(running)["fleet"], ids_submitted(running)) == ("lab", [(MODEL, 1)])
    assert next(iter(running.jobs)).startswith("fleetctl-evict-")


def test_without_a_question_a_single_replica_is_listed_too(cli, running: ClusterStandIn) -> None:
    result = cli("evict", f"{MODEL}/0", "--yes")
    assert result.err.splitlines()[0].startswith(f"end: {MODEL}/0 (fleet lab, "), result.err


def test_several_replicas_are_listed_before_the_question(cli, running: ClusterStandIn) -> None:
    result = cli("evict", f"{MODEL}/1", f"{MODEL}/0", "--drain", "30s", typed="y\n")
    assert (result.code, submitted(running)["drain"]) == (0, 30)
    assert f"{MODEL}/0 (fleet lab, ready, on node-a)" in result.err
    assert f"{MODEL}/1 (fleet lab, ready, on node-b)" in result.err
    assert "End these 2 replicas? [y/N]" in result.err
    assert ids_submitted(running) == [(MODEL, 0), (MODEL, 1)]


def test_a_model_key_means_all_its_replicas(cli, running: ClusterStandIn) -> None:
    assert cli("restart", MODEL, "--dry-run").err.count("restart: ") == 2, "a key without an id means every replica"
    assert cli("evict", MODEL, "--yes").code == 0
    assert ids_submitted(running) == [(MODEL, 0), (MODEL, 1)]


def test_a_key_that_ends_like_an_id_is_resolved_or_refused_as_ambiguous(cli, running: ClusterStandIn) -> None:
    node = running.nodes[0]["node_id"]
    running.add_replica("plain/3", 0, node, gpus=0)
    assert cli("restart", "plain/3", "--dry-run").err.count("plain/3/0 (") == 1
    running.add_replica("plain", 3, node, gpus=0)
    both = cli("evict", "plain/3", "--yes")
    assert (both.code, running.writes()) == (64, [])
    assert "plain/3 is replica 3 of plain, and a model of its own" in both.err
    assert "write `plain --replica-id 3`, or `plain/3/ID`" in both.err
    assert cli("evict", "plain", "--replica-id", "3", "--yes").code == 0
    assert ids_submitted(running) == [("plain", 3)]


def test_the_all_flag_ends_only_the_replicas_of_the_named_fleet(cli, running: ClusterStandIn, fleet_file: Path) -> None:
    running.add_replica("theirs", 0, running.nodes[0]["node_id"], fleet="other", gpus=0)
    assert cli("evict", "--all", "--yes").code == 64
    both = cli("evict", "--all", MODEL, "-f", fleet_file, "--yes")
    assert both.code == 64
    assert f"`fleetctl evict {MODEL}` ends that replica, or all of that model" in both.err
    assert cli("evict", "--all", "--replica-id", "0", "-f", fleet_file, "--yes").code == 64
    assert running.writes() == []
    assert cli("evict", "--all", "-f", fleet_file, "--yes").code == 0
    assert ids_submitted(running) == [(MODEL, 0), (MODEL, 1)]


@pytest.mark.parametrize("verb", ["evict", "restart"])
def test_with_a_fleet_file_a_model_means_only_its_replicas_there(
    cli, running: ClusterStandIn, fleet_file: Path, verb: str
) -> None:
    running.add_replica(MODEL, 2, running.nodes[0]["node_id"], fleet="other", gpus=0)
    running.add_replica("theirs", 0, running.nodes[0]["node_id"], fleet="other", gpus=0)
    nothing = cli(verb, "theirs", "-f", fleet_file, "--yes")
    assert (nothing.code, running.writes()) == (1, [])
    assert "theirs does not run in fleet lab: theirs/0 is in fleet other" in nothing.err
    result = cli(verb, MODEL, "-f", fleet_file, "--dry-run")
    assert f"{MODEL}/2 is in fleet other and is left out" in result.err
    assert f"{MODEL}/1 (fleet lab" in result.err
    assert f"{MODEL}/2 (fleet other" not in result.err
    assert f"{MODEL}/2 (fleet other" in cli(verb, f"{MODEL}/2", "-f", fleet_file, "--dry-run").err


def test_replicas_of_two_fleets_are_two_jobs(cli, running: ClusterStandIn) -> None:
    running.add_replica(MODEL, 2, running.nodes[0]["node_id"], fleet="other", gpus=0)
    result = cli("evict", MODEL, "--yes", "--format", "json")
    assert {running.request_of(job)["fleet"] for job in running.jobs} == {"lab", "other"}
    summary = json.loads(result.out)
    assert (summary["exitCode"], len(summary["outcomes"])) == (0, 3)


def test_a_failure_in_one_fleet_does_not_hide_the_result_of_another(cli, running: ClusterStandIn) -> None:
    running.add_replica(MODEL, 2, running.nodes[0]["node_id"], fleet="other", gpus=0)
    busy = event(0, "runSummary", "the lock of fleet other is held by job j9", outcomes=[], exitCode=5)
    running.on_submit = lambda request: carried_out(request) if request["fleet"] == "lab" else [("FAILED", busy)]
    result = cli("evict", MODEL, "--yes", "--format", "json")
    assert result.code == 3
    assert [(row["replicaId"], row["outcome"], row.get("code")) for row in json.loads(result.out)["outcomes"]] == [
        (0, "gone", None), (1, "gone", None), (2, "failed", "NOT_DONE")]


def test_an_interrupt_in_one_fleet_skips_the_next(
        cli, running: ClusterStandIn) -> None:
    running.add_replica(MODEL, 2, running.nodes[0]["node_id"], fleet="other", gpus=0)
    running.on_submit = lambda _: [("FAILED", event(
        0, "runSummary", "interrupted before anything was begun", outcomes=[], exitCode=3, interrupted=True))]
    result = cli("evict", MODEL, "--drain", "9s", "--yes")
    assert (result.code, submitted(running)["fleet"]) == (130, "lab")
    assert "note: interrupted before anything was begun" in result.err
    assert result.out == "Evict, interrupted\n"


def test_an_eviction_that_continues_after_an_interrupt_is_reported(
        cli, running: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fleetctl.cli.explicit.run_explicit", interrupted)
    result = cli("evict", MODEL, "--yes")
    assert result.code == 130
    assert "note: the eviction may continue in the cluster; `fleetctl status` shows the replicas" in result.err


def test_a_dry_run_lists_and_writes_nothing(cli, running: ClusterStandIn, fleet_file: Path) -> None:
    running.add_replica("org/one", 0, running.nodes[0]["node_id"], gpus=0)
    result = cli("evict", MODEL, "org/one", "-f", fleet_file, "--dry-run")
    assert result.code == 0
    assert f"{MODEL}/1 (fleet lab, ready, on node-b)" in result.err
    assert "org/one: the fleet file wants" in result.err
    assert "0 stay; the next apply starts" in result.err
    assert running.writes() == []


def test_a_replica_that_cannot_be_ended_exits_with_3_and_its_reason(cli, running: ClusterStandIn) -> None:
    row = {"model": MODEL, "replicaId": 0, "outcome": "failed", "code": "NOT_FOUND", "message": "there is no such"}
    running.on_submit = lambda _: [("FAILED", event(0, "runSummary", "0 of 1", outcomes=[row], exitCode=3))]
    result = cli("evict", f"{MODEL}/0", "--yes")
    assert result.code == 3
    assert "failed (NOT_FOUND)" in result.out
    assert "Evict: 1 failed" in result.out


def test_restart_asks_and_sends_the_startup_timeout(cli, running: ClusterStandIn, fleet_file: Path) -> None:
    running.on_submit = lambda request: carried_out(request, "ready")
    result = cli("restart", f"{MODEL}/1", "-f", fleet_file, typed="y\n")
    assert result.code == 0
    assert f"Restart {MODEL}/1 (fleet lab, ready, on node-b)? [y/N]" in result.err
    assert "Restart: 1 ready" in result.out
    [one] = submitted(running)["replicas"]
    assert one["startupTimeout"] > 0
    assert next(iter(running.jobs)).startswith("fleetctl-restart-")
    history = cli("history")
    assert f"restarted {MODEL}/1" in history.out


@pytest.mark.parametrize("verb", ["evict", "restart"])
def test_without_a_terminal_the_yes_flag_is_required(cli, running: ClusterStandIn, verb: str) -> None:
    assert cli(verb, f"{MODEL}/1").code == 64
    assert cli(verb).code == 64
    assert running.writes() == []
    assert cli(verb, f"{MODEL}/0", "--yes").code == 0


@pytest.mark.parametrize("verb", ["evict", "restart"])
def test_replicas_not_started_by_fleetctl_are_not_touched(cli, running: ClusterStandIn, verb: str) -> None:
    result = cli(verb, "odd/0", f"{MODEL}/0", "--yes")
    assert result.code == 1
    assert "no fleet mark" in result.err
    assert running.writes() == []


@pytest.mark.parametrize("verb", ["evict", "restart"])
@pytest.mark.parametrize("name", [f"{MODEL}/2", "org/one/1", "nobody/0", f"{MODEL}/", f"{MODEL}/*", f"{MODEL}/0,1"])
def test_an_unknown_replica_exits_with_1(cli, running: ClusterStandIn, verb: str, name: str) -> None:
    result = cli(verb, name, "--yes")
    assert result.code == 1
    assert f"there is no {name}" in result.err
    assert running.writes() == []


def test_all_unknown_replicas_are_named_at_once(cli, running: ClusterStandIn) -> None:
    result = cli("evict", f"{MODEL}/7", f"{MODEL}/0", "nobody/0", "--yes")
    assert f"there is no {MODEL}/7 and no nobody/0\nhint: {MODEL} has 0, 1; `fleetctl status` lists" in result.err
    assert running.writes() == []


def test_no_healthy_replica_is_suggested_for_an_unknown_id(cli, running: ClusterStandIn) -> None:
    result = cli("evict", f"{MODEL}/7", "--yes")
    assert f"hint: {MODEL} has 0, 1" in result.err
    assert "did you mean" not in result.err
    assert f"did you mean {MODEL}?" in cli("evict", "org/one:2", "--yes").err


def test_a_held_lock_exits_with_5(cli, running: ClusterStandIn) -> None:
    running.on_submit = lambda _: [("FAILED", event(
        0, "runSummary", "the lock of fleet lab is held by job j9", outcomes=[], exitCode=5))]
    result = cli("evict", f"{MODEL}/0", "--yes")
    assert result.code == 5
    assert "held by job j9" in result.err


def test_the_lock_timeout_is_sent_to_the_agent(cli, running: ClusterStandIn) -> None:
    cli("evict", f"{MODEL}/0", "--yes", "--lock-timeout", "10m")
    assert submitted(running)["lockTimeout"] == 600


def test_a_broken_fleet_file_ends_nothing(cli, running: ClusterStandIn, fleet_file: Path) -> None:
    fleet_file.write_text("a: [")
    assert cli("evict", f"{MODEL}/0", "-f", fleet_file, "--yes").code == 1
    assert running.requests == []


def test_an_incomplete_inventory_cannot_prove_a_replica_absent(cli, running: ClusterStandIn) -> None:
    running.refusals["GET", "/api/version"] = [(500, "")] * 10
    result = cli("evict", f"{MODEL}/2", "--yes")
    assert result.code == 1
    assert "that could be read: " in result.err
    assert "version and session" in result.err
    assert running.writes() == []


def test_an_eviction_without_a_summary_is_not_called_an_apply(cli, running: ClusterStandIn) -> None:
    running.on_submit = lambda _: [("FAILED", event(0, "version"))]
    result = cli("evict", f"{MODEL}/0", "--yes")
    assert result.code == 1
    assert "evict the rest" in result.err
    assert "apply" not in result.err


@pytest.mark.parametrize("verb", ["evict", "restart"])
def test_a_protected_model_is_refused_without_a_question(
    cli, running: ClusterStandIn, fleet_file: Path, verb: str
) -> None:
    text = fleet_file.read_text().replace("spec:\n", "spec:\n  policy: {protectedModels: ['org/one:*']}\n")
    fleet_file.write_text(text)
    result = cli(verb, f"{MODEL}/1", "-f", fleet_file, typed="y\n")
    assert result.code == 4
    assert f"{MODEL}/1 stays: spec.policy.protectedModels: org/one:* at {fleet_file}:5:30 protects it" in result.err
    assert "?" not in result.err
    assert running.writes() == []
    fleet_file.write_text(text.replace("org/one:*", "org/two"))
    assert cli(verb, f"{MODEL}/1", "-f", fleet_file, "--yes").code == 0


def with_weights(running: ClusterStandIn, size: int) -> dict[str, Any]:
    """Give the first replica weights; return its actor."""
    actor = running.actors[0]
    mark = json.loads(actor["repr_name"])
    mark["members"][0]["weights"] = {"artifact": "a" * 64, "view": None, "whole": True, "port": 9, "bytes": size}
    actor["repr_name"] = json.dumps(mark)
    return actor


def test_evicting_to_warm_shows_the_memory_and_sends_the_budget(cli, running: ClusterStandIn) -> None:
    with_weights(running, 3 << 30)
    dry = cli("evict", f"{MODEL}/0", "--to", "warm", "--dry-run")
    assert f"evict to warm: {MODEL}/0 (fleet lab, ready, on node-a)" in dry.err
    assert "node-a: 3Gi of weights stay in memory; with those already WARM 3Gi of at most 512Gi" in dry.err
    assert running.writes() == []
    assert cli("evict", f"{MODEL}/0", "--to", "warm", typed="y\n").code == 0
    request = submitted(running)
    assert (request["level"], list(request["warm"].values())) == ("WARM", [{"name": "node-a", "bytes": 1 << 39}])
    assert "level" not in request["replicas"][0]
    [job] = running.jobs.values()
    assert job.body["metadata"]["level"] == "WARM"


@pytest.mark.parametrize(("size", "message"), [(0, "nothing can be WARM: no member that is ready has `weights`"),
                                            (1 << 40, "node-a: 1Ti of weights stay in memory")])
def test_a_replica_that_cannot_be_warm_is_refused_first(cli, running: ClusterStandIn, size: int, message: str) -> None:
    if size:
        with_weights(running, size)
    refused = cli("evict", f"{MODEL}/0", "--to", "warm", "--yes")
    assert (refused.code, running.writes()) == (1, [])
    assert message in refused.err


def test_a_warm_replica_is_ended_by_name_and_has_no_engine(cli, running: ClusterStandIn) -> None:
    actor = with_weights(running, 5)
    actor["name"] = actor["name"].replace("ModelActor:", "WarmReplica:")
    assert f"{MODEL}/0 is already WARM" in cli("evict", f"{MODEL}/0", "--to", "warm", "--yes").err
    assert "a WARM replica has no engine" in cli("restart", f"{MODEL}/0", "--yes").err
    assert running.writes() == []
    result = cli("evict", f"{MODEL}/0", typed="y\n")
    assert f"End {MODEL}/0 (fleet lab, warm, on node-a)?" in result.err
    assert submitted(running)["replicas"][0]["level"] == "WARM"


@pytest.mark.parametrize("whole", [True, False])
def test_a_level_leaves_the_replicas_of_the_other_level_alone(
        cli, running: ClusterStandIn, fleet_file: Path, whole: bool) -> None:
    actor = with_weights(running, 5)
    actor["name"] = actor["name"].replace("ModelActor:", "WarmReplica:")
    named = ("--all", "-f", fleet_file) if whole else (MODEL,)
    for level, replica in (("hot", 1), ("warm", 0)):
        dry = cli("evict", *named, "--level", level, "--dry-run")
        assert (dry.code, running.writes()) == (0, [])
        assert f"end: {MODEL}/{replica} (" in dry.err
        assert f"{MODEL}/{1 - replica} (" not in dry.err
        assert f"1 replica left alone: not {level.upper()}" in dry.err
    refused = cli("evict", f"{MODEL}/1", "--level", "warm", "--yes")
    assert (refused.code, running.writes()) == (1, [])
    assert f"none of these is WARM: {MODEL}/1" in refused.err
    assert cli("evict", *named, "--level", "hot", "--yes").code == 0
    assert ids_submitted(running) == [(MODEL, 1)]


def test_an_interrupted_demotion_continues_within_the_budget(
        cli, running: ClusterStandIn) -> None:
    hot = with_weights(running, 400 << 30)
    assert json.loads(hot["repr_name"])["members"]
    mark = json.loads(hot["repr_name"])
    mark.update(level="WARM", members=[{**one, "memory": 400 << 30} for one in mark["members"]])
    running.actors.append({**hot, "actor_id": "e" * 32, "name": hot["name"].replace("ModelActor:", "WarmReplica:"),
                           "repr_name": json.dumps(mark)})
    result = cli("evict", f"{MODEL}/0", f"{MODEL}/1", "--to", "warm", "--yes")
    assert "with those already WARM 400Gi of at most 512Gi" in result.err
    assert ids_submitted(running) == [(MODEL, 0), (MODEL, 1)]
