"""`fleetctl drain`: a cordon, replacements elsewhere, then the replaced replicas end; no fewer are ready meanwhile."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, Steps, all_ready, event

from fleetctl.agent.report import actor_name
from fleetctl.cli.drain import Draining
from fleetctl.documents.inventory import Inventory, Node, Replica, ReplicaMember
from fleetctl.fleetfile.load import inspect_fleet

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
"""
MODEL = """\
  - key: %s
    replicas: %d
    workers:
    - name: main
      members: [{resources: {gpus: %d}, engine: {command: [serve]}}]
"""


@pytest.fixture
def acting(cluster: ClusterStandIn) -> ClusterStandIn:
    """Agents carry out every request: new replicas are ready at once, ended ones are gone."""
    def respond(request: dict[str, Any]) -> Steps:
        if "plan" not in request:
            names = {actor_name(one["model"], one["replicaId"]) for one in request["replicas"]}
            cluster.actors = [one for one in cluster.actors if one["name"] not in names]
            rows = [{"model": one["model"], "replicaId": one["replicaId"], "outcome": "gone", "nodes": [],
                     "message": ""} for one in request["replicas"]]
            return [("SUCCEEDED", event(0, "runSummary", "done", outcomes=rows, exitCode=0))]
        for action in request["plan"]["actions"]:
            [member] = action["members"]
            cluster.add_replica(action["model"], action["replicaId"], member["nodeId"], gpus=member["gpus"])
        return all_ready(request)[-1:]

    cluster.on_submit = respond
    return cluster


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two replicas of `one` with 3 GPUs, one of `two` with 2."""
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET + MODEL % ("one", 2, 3) + MODEL % ("two", 1, 2))
    return path


def place(acting: ClusterStandIn, *replicas: tuple[str, int, str, int]) -> None:
    for model, number, node, gpus in replicas:
        acting.add_replica(model, number, acting.nodes["ab".index(node)]["node_id"], gpus=gpus * 10_000)


def running(acting: ClusterStandIn) -> dict[str, str]:
    names = {node["node_id"]: node["node_name"] for node in acting.nodes}
    return {one["name"].partition(":")[2]: names[one["node_id"]] for one in acting.actors}


def verbs(acting: ClusterStandIn) -> list[str]:
    return [job.body["metadata"]["verb"] for job in acting.jobs.values()]


def test_replacements_are_ready_before_the_replaced_replicas_end(cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("one", 0, "a", 3), ("one", 1, "b", 3), ("two", 0, "a", 2))
    result = cli("drain", "node-a", "--evict", "--drain", "3s", "--for", "1h", "-f", file, "--yes")
    assert result.code == 0, result.err
    assert verbs(acting) == ["cordon", "apply", "evict"]
    assert running(acting) == {"one:1": "node-b", "one:2": "node-b", "two:1": "node-b"}
    assert cli("plan", "-f", file, "--detailed-exitcode").code == 0, "the next apply has nothing to do"


def test_without_the_evict_flag_the_next_command_is_shown_and_drain_can_continue(
        cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("one", 0, "a", 3), ("one", 1, "b", 3))
    result = cli("drain", "node-a", "-f", file, "--yes")
    assert result.code == 0
    assert f"to end them: fleetctl evict one/0 -f {file}" in result.err
    assert running(acting) == {"one:0": "node-a", "one:1": "node-b", "one:2": "node-b"}
    assert cli("drain", "node-a", "--evict", "-f", file, "--yes").code == 0
    assert verbs(acting) == ["cordon", "apply", "evict"], "nothing is created or cordoned twice"
    assert running(acting) == {"one:1": "node-b", "one:2": "node-b"}


def test_replicas_without_room_elsewhere_stay_and_the_rest_are_evicted(cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("one", 0, "a", 3), ("one", 1, "b", 3), ("two", 0, "a", 2), ("other", 0, "b", 3))
    question = cli("drain", "node-a", "--evict", "-f", file, typed="n\n")
    assert "start 1 replica elsewhere, then end 1 replica there? [y/N]" in question.err
    assert [line for line in question.err.splitlines() if line.startswith("end:")] == ["end: two/0"]
    assert "stays: one/0: there is no room for its replacement (INSUFFICIENT_GPU)" in question.err
    result = cli("drain", "node-a", "--evict", "-f", file, "--yes")
    assert result.code == 3
    assert "one/0 skipped (NEEDED)" in result.out
    assert "without it fewer replicas of one would be ready than before" in result.out
    assert running(acting) == {"one:0": "node-a", "one:1": "node-b", "two:1": "node-b", "other:0": "node-b"}


@pytest.mark.parametrize("evict", [["--evict"], []])
def test_a_dry_run_foresees_what_stays_and_exits_as_the_drain_does(
        cli, acting: ClusterStandIn, file: Path, evict: list[str]) -> None:
    place(acting, ("one", 0, "a", 3), ("one", 1, "b", 3), ("two", 0, "a", 2), ("other", 0, "b", 3))
    command = ("drain", "node-a", *evict, "-f", file)
    dry = cli(*command, "--dry-run")
    assert (dry.code, acting.writes()) == (3, [])
    assert f"{'end' if evict else 'leaves'}: two/0\nstays: one/0: there is no room" in dry.err
    assert cli(*command, "--yes").code == 3
    acting.actors = [one for one in acting.actors if not one["name"].startswith("ModelActor:other:")]
    dry = cli(*command, "--dry-run")
    assert dry.code == 0, dry.err
    assert "stays" not in dry.err
    assert cli(*command, "--yes").code == 0


def test_a_dry_run_counts_replacements_that_are_starting_and_surplus_replicas(
        cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("two", 0, "a", 2), ("one", 0, "a", 3), ("one", 1, "b", 3), ("one", 2, "b", 3))
    acting.add_replica("two", 1, acting.nodes[1]["node_id"], state="PENDING_CREATION", gpus=20_000)
    dry = cli("drain", "node-a", "--evict", "--dry-run", "-f", file)
    assert dry.code == 0, dry.err
    assert {"end: two/0", "end: one/0"} <= set(dry.err.splitlines())


def test_a_replica_that_has_ended_meanwhile_is_no_failure(cli, acting: ClusterStandIn, file: Path) -> None:
    respond = acting.on_submit

    def gone_before(request: dict[str, Any]) -> Steps:
        steps = respond(request)
        if "plan" in request:
            return steps
        rows = [{"model": one["model"], "replicaId": one["replicaId"], "outcome": "failed", "code": "NOT_FOUND",
                 "nodes": [], "message": "it is already gone"} for one in request["replicas"]]
        return [("SUCCEEDED", event(0, "runSummary", "done", outcomes=rows, exitCode=3))]

    acting.on_submit = gone_before
    place(acting, ("one", 0, "a", 3), ("two", 0, "b", 2))
    done = cli("drain", "node-a", "-f", file, "--evict", "--yes")
    assert (done.code, set(running(acting).values())) == (0, {"node-b"}), done.err


def test_a_surplus_replica_needs_no_replacement(cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("two", 0, "a", 2), ("two", 1, "b", 2))
    assert cli("drain", "node-a", "--evict", "-f", file, "--yes").code == 0
    assert verbs(acting) == ["cordon", "evict"]
    assert running(acting) == {"two:1": "node-b"}


def test_no_serving_replica_ends_before_its_replacement_is_ready(cli, acting: ClusterStandIn, file: Path) -> None:
    def starting(request: dict[str, Any]) -> Steps:
        acting.add_replica("two", 1, acting.nodes[1]["node_id"], state="PENDING_CREATION", gpus=20_000)
        row = {"model": "two", "replicaId": 1, "outcome": "starting", "nodes": [], "message": ""}
        return [("FAILED", event(0, "runSummary", "0 of 1", outcomes=[row], exitCode=3, interrupted=False))]

    place(acting, ("two", 0, "a", 2))
    acting.on_submit = starting
    result = cli("drain", "node-a", "--evict", "-f", file, "--yes")
    assert result.code == 3
    assert "evict" not in verbs(acting)
    assert "two/0 skipped (NEEDED)" in result.out


def test_an_interrupt_during_the_drain_time_is_reported_as_interrupted(
        cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("one", 0, "a", 3), ("one", 1, "b", 3), ("two", 0, "b", 2))
    respond = acting.on_submit
    acting.on_submit = lambda request: respond(request) if "plan" in request else [("FAILED", event(
        0, "runSummary", "interrupted before anything was begun", outcomes=[], exitCode=3, interrupted=True))]
    result = cli("drain", "node-a", "--evict", "--drain", "9s", "-f", file, "--yes")
    assert result.code == 130
    assert "one:0" in running(acting)
    assert "note: interrupted before anything was begun" in result.err
    assert result.out.splitlines()[-1] == "Drain, interrupted: 1 ready"


def test_replicas_of_no_model_in_the_file_are_listed_and_stay(cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("gone", 0, "a", 1), ("two", 0, "a", 2))
    acting.add_replica("theirs", 0, acting.nodes[0]["node_id"], fleet="other", gpus=0)
    acting.add_replica("odd", 0, acting.nodes[0]["node_id"], fleet=None, gpus=0)
    odd = acting.actors[-1]
    acting.actors.append({**odd, "actor_id": "e" * 32, "name": "WarmReplica:two:4", "class_name": "WarmReplica",
                         "repr_name": json.dumps({"v": 1, "fleet": "lab", "namespace": "fleet", "specHash": "abc",
                                                  "level": "WARM", "members": [{"nodeId": odd["node_id"]}]})})
    result = cli("drain", "node-a", "--evict", "-f", file, "--yes")
    assert result.code == 0
    assert "stays: two/4: it is WARM and ends with the node" in result.err
    assert "stays: gone/0: of no model in the fleet file" in result.err
    assert "stays: theirs/0: of fleet other" in result.err
    assert "stays: odd/0: not started by a fleet" in result.err
    assert set(running(acting)) == {"gone:0", "theirs:0", "odd:0", "two:4", "two:5"}


def test_json_has_a_row_for_each_replica_and_the_history_one_for_the_drain(
        cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("one", 0, "a", 3), ("one", 1, "b", 3), ("two", 0, "a", 2), ("other", 0, "b", 3))
    for flags, code, first in ((["--evict"], 3, "gone"), ([], 3, None)):
        result = cli("drain", "node-a", *flags, "-f", file, "--yes", "--format", "json")
        assert result.code == code
        outcomes = {f"{row['model']}/{row['replicaId']}": (row["outcome"], row.get("code"))
                for row in json.loads(result.out)["outcomes"] if row["replicaId"] is not None}
        assert outcomes["one/0"] == ("skipped", "NEEDED")
        assert outcomes.get("two/0", (None,))[0] == first
    [row] = [line for line in cli("history").out.splitlines() if " drain " in line and "1 gone" in line]
    assert "partial" in row
    assert "1 ready" in row


def test_drain_asks_once_and_a_no_or_a_dry_run_writes_nothing(cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("one", 0, "a", 3), ("one", 1, "b", 3))
    question = cli("drain", "node-a", "--evict", "-f", file, typed="n\n")
    assert question.code == 1
    assert "Drain node-a: cordon it, start 1 replica elsewhere, then end 1 replica there? [y/N]" in question.err
    dry = cli("drain", "node-a", "--evict", "--dry-run", "-f", file)
    assert dry.code == 0
    assert "one/2" in dry.out
    assert "end: one/0" in dry.err
    assert cli("drain", "node-a", "-f", file).code == 64, "there is no terminal, and no --yes"
    assert cli("drain", "node-c", "-f", file, "--yes").code == 1
    assert acting.writes() == []


def test_an_empty_node_is_only_cordoned(cli, acting: ClusterStandIn, file: Path) -> None:
    assert cli("drain", "node-a", "--evict", "-f", file, "--yes").code == 0
    assert verbs(acting) == ["cordon"]


def test_a_protected_model_is_not_drained(cli, acting: ClusterStandIn, file: Path) -> None:
    place(acting, ("two", 0, "a", 2))
    file.write_text(file.read_text().replace("spec:\n", "spec:\n  policy: {protectedModels: [two]}\n"))
    assert cli("drain", "node-a", "--evict", "-f", file, "--yes").code == 4
    assert acting.writes() == []


def seen(states: list[tuple[str, str, bool]]) -> Inventory:
    """An inventory of replicas of `one`: (node, state, draining)."""
    return Inventory(observed_at="2026-03-04T12:00:00Z", source="a test", nodes=[Node(id=n, name=n) for n in "ab"],
                     replicas=[Replica(model="one", replica_id=number, fleet="lab", state=state, draining=draining,
                                       members=[ReplicaMember(node_id=node)])
                               for number, (node, state, draining) in enumerate(states)])


def test_no_model_drops_below_the_smaller_of_its_ready_and_wanted_replicas(tmp_path: Path) -> None:
    dice, path = random.Random(1), tmp_path / "fleet.yaml"
    states = ("ALIVE", "ALIVE", "PENDING_CREATION", "RESTARTING")
    loaded = {}
    for target in range(4):
        path.write_text(FLEET + MODEL % ("one", target, 1))
        loaded[target] = inspect_fleet([str(path)])
    for _ in range(2_000):
        target = dice.randrange(4)
        before = [(dice.choice("ab"), dice.choice(states), dice.random() < 0.1) for _ in range(dice.randrange(6))]
        draining = Draining(loaded[target], seen(before), Node(id="a", name="a"))
        now = [(node, dice.choice(states), drains) for node, _, drains in before]
        now += [("b", dice.choice(states), False) for _ in range(dice.randrange(4))]
        go, stay = draining.may_end(seen(now))
        ended = {one.replica_id for one in go}
        left = [one for number, one in enumerate(now) if number not in ended]
        assert len(left) >= min(target, len(before), len(now)) or not go
        assert ready(left) >= min(target, ready(before)) or not any(now[n or 0][1:] == ("ALIVE", False) for n in ended)
        for number in (one.replica_id or 0 for one in stay):  # nothing stays that is not needed
            serving = now[number][1:] == ("ALIVE", False)
            assert len(left) <= min(target, len(before)) or (serving and ready(left) <= min(target, ready(before)))
        assert ended | {one.replica_id for one in stay} == {n for n, one in enumerate(before) if one[0] == "a"}
        if found := draining.replacements():
            wanted = found["one"][0].replicas
            stays = sum(one[0] == "b" for one in before)
            assert stays + wanted - len(before) >= min(target, len(before))


def ready(replicas: list[tuple[str, str, bool]]) -> int:
    return sum(one[1:] == ("ALIVE", False) for one in replicas)
