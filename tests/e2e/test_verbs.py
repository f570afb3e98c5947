"""Ctrl-C, evict, and fleets that claim each other's models, as a user or a pipeline runs them."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from cluster import eventually
from e2e_world import World, member, model

from fleetctl.inventory import records

pytestmark = pytest.mark.ray


def test_an_interrupt_skips_replicas_not_yet_begun_and_leaves_the_others_running(world: World) -> None:
    world.write(model("one", 5, member(*world.loads, gpus=1)))
    client = world.start("apply", "-f", world.file, "--yes", "--parallelism", "1", "--format", "json")
    eventually(world.actors, "the first replica is being created")
    client.send_signal(signal.SIGINT)
    shown, messages = client.communicate(timeout=600)
    assert client.returncode == 130, messages
    assert "Traceback" not in messages
    summary = json.loads(shown)
    assert summary["message"].startswith("Apply, interrupted: ")
    kinds = {row["replicaId"]: row["outcome"] for row in summary["outcomes"]}
    assert set(kinds.values()) == {"starting", "skipped"}
    world.loaded.touch()
    begun = {f"ModelActor:one:{number}" for number, kind in kinds.items() if kind == "starting"}
    eventually(lambda: {row["state"] for row in world.actors().values()} == {"ALIVE"}, "what was created goes on")
    assert set(world.actors()) == begun

    assert world.apply_result("--lock-timeout", "120s")["exitCode"] == 0
    assert len(world.actors()) == 5


def test_deploy_scale_restart_and_evict_one_model(world: World) -> None:
    world.write(model("one", 2, member("--plain", gpus=0.5)),
                model("gang", 1, member(role="Leader"), member(role="Worker")))
    assert world.run("deploy", "one", "--replicas", "1", "-f", world.file, "--yes").returncode == 0
    assert set(world.actors()) == {"ModelActor:one:0"}
    assert world.run("deploy", "one", "-f", world.file, "--yes").returncode == 1
    assert world.run("scale", "one", "--scale-up", "2", "-f", world.file, "--yes").returncode == 0
    assert world.run("scale", "gang", "--replicas", "1", "-f", world.file, "--yes").returncode == 0
    before = world.actors()
    assert set(before) == {"ModelActor:one:0", "ModelActor:one:1", "ModelActor:one:2", "ModelActor:gang:0"}

    two = [member["address"] + f":{member['port']}" for replica in world.replicas() if replica["model"] == "one"
           for member in replica["members"]][:2]
    (together := world.tmp_path / "together").mkdir()
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda address: httpx.put(f"http://{address}{together}", timeout=60).status_code, two)
    assert list(answers) == [200, 200], "they serve concurrently"

    restarted = world.run("restart", "one/1", "gang", "-f", world.file, "--yes", "--format", "json")
    assert restarted.returncode == 0, restarted.stderr
    assert {row["outcome"] for row in json.loads(restarted.stdout)["outcomes"]} == {"ready"}
    after = world.actors()
    assert {name: row["restarts"] for name, row in after.items()} == {
        "ModelActor:one:0": 0, "ModelActor:one:1": 1, "ModelActor:one:2": 0, "ModelActor:gang:0": 1}
    assert {name: (row["id"], row["node"]) for name, row in after.items()} == {
        name: (row["id"], row["node"]) for name, row in before.items()}
    assert len(world.engines()) == 9, "3 x 1 and 2 x 3: no process of an old engine is left"

    assert world.run("evict", "one/0").returncode == 64, "no terminal for the question, and no --yes"
    assert world.run("evict", "one/7", "--yes").returncode == 1
    assert world.run("evict", "gang/0", "one/1", "--yes").returncode == 0
    assert world.actors() == {name: after[name] for name in ("ModelActor:one:0", "ModelActor:one:2")}
    eventually(lambda: len(world.engines()) == 2, "all of the gang's processes are gone, the others stay")
    eventually(lambda: not world.cluster.groups(), "its placement group is given back")
    ended = world.run("evict", "one", "--drain", "1s", "--yes", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    assert [row["outcome"] for row in json.loads(ended.stdout)["outcomes"]] == ["gone"] * 2
    assert world.engines() == [], "evict returns when the engines are gone"
    assert world.actors() == {}


@pytest.mark.long
def test_a_model_that_another_fleet_runs_is_blocked_and_can_be_adopted(world: World) -> None:
    world.write(model("one", 1, member("--plain", gpus=1)))
    assert world.apply_result()["exitCode"] == 0
    world.write(model("one", 1, member("--plain", gpus=1)), model("two", 1, member("--plain", gpus=1)),
                fleet="renamed")
    summary = world.apply_result()
    assert summary["exitCode"] == 3
    by_model = {row["model"]: row for row in summary["outcomes"]}
    assert by_model["one"]["code"] == "CLAIMED_BY_FLEET"
    assert world.fleet in by_model["one"]["message"]
    assert by_model["two"]["outcome"] == "ready"

    assert world.apply_result("--adopt-from", world.fleet)["exitCode"] == 0
    assert set(world.actors()) == {"ModelActor:one:0", "ModelActor:two:0"}


def test_a_cordoned_node_is_avoided_and_a_drained_one_is_emptied_after_its_replacements(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FEW_JOBS", -1)  # as in a cluster with a long list of jobs
    world.write(model("one", 3, member("--plain", gpus=1)))
    assert world.run("cordon", "a", "--for", "1h", "--reason", "new driver").returncode == 0
    assert world.apply_result()["exitCode"] == 0
    nodes = {node["id"]: node for node in json.loads(world.run("inventory", "--format", "json").stdout)["nodes"]}
    assert [node["cordon"]["reason"] for node in nodes.values() if node["cordon"]] == ["new driver"]
    states = {job["submission_id"]: job["status"] for job in world.listed_jobs()}
    assert {states[f"{records.ROW}{kind}"] for kind in (records.CORDON, records.RUN)} == {"SUCCEEDED"}

    def actors_on(name: str) -> set[str]:
        return {actor for actor, row in world.actors().items() if nodes[row["node"]]["name"] == name}

    assert actors_on("a") == set()
    assert len(actors_on("b")) + len(actors_on("c")) == 3
    assert world.run("uncordon", "a").returncode == 0
    leaving = actors_on("b")
    drained = world.run("drain", "b", "--evict", "-f", world.file, "--yes")
    assert drained.returncode == 0, drained.stderr
    assert actors_on("b") == set()
    assert len(world.actors()) == 3
    assert leaving
    assert not leaving & set(world.actors())
    assert world.run("uncordon", "b").returncode == 0
    history = world.run("history").stdout.splitlines()
    assert len([row for row in history if "uncordoned b" in row]) == 1
    assert len([row for row in history if " drain " in row and "gone" in row]) == 1
    assert not [row for row in history if "records" in row]
