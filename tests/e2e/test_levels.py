"""HOT, WARM and back on a real Ray: cards are freed, ids stay, nothing is duplicated or lost, whatever is killed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import eventually
from e2e_world import NODE_MEMORY, World, member, model

pytestmark = pytest.mark.ray

MIB = 1 << 20
HOT, WARM = "ModelActor:one:0", "WarmReplica:one:0"


def weights_of(world: World) -> dict[str, Any]:
    """Index a model of one tensor of one MiB; return its lines for the fleet file."""
    folder = world.tmp_path / "origin"
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "U8", "shape": [MIB], "data_offsets": [0, MIB]}}).encode()
    data = hashlib.shake_128(world.fleet.encode()).digest(MIB)
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    printed: dict[str, Any] = yaml.safe_load(world.run("weights", "index", str(folder)).stdout)["weights"]
    return printed


def on(node: str, weights: dict[str, Any], role: str | None = None) -> dict[str, Any]:
    return member("--plain", gpus=2, node=node, role=role, weights=weights)


def evict_one(world: World, *arguments: str) -> dict[str, Any]:
    done = world.run("evict", *arguments, "--yes", "--format", "json")
    assert done.stdout, done.stderr
    [row] = json.loads(done.stdout)["outcomes"]
    return dict(row)


def apply_one(world: World) -> dict[str, Any]:
    """Apply, and return the outcome of the one started replica."""
    [row] = world.apply_result()["outcomes"]
    assert row["outcome"] == "ready", row
    return dict(row)


def promote_one(world: World) -> dict[str, Any]:
    """Apply a plan that promotes id 0."""
    assert [(action["op"], action["replicaId"]) for action in world.plan()["actions"]] == [("promote", 0)]
    row = apply_one(world)
    assert row["replicaId"] == 0, row
    return row


def states(world: World) -> dict[str, str]:
    return {name: row["state"] for name, row in world.actors().items()}


def levels(world: World) -> list[tuple[str, int, str, str]]:
    return [(row["model"], row["replicaId"], row["level"], row["state"]) for row in world.replicas()]


def test_a_warm_replica_frees_its_card_survives_and_is_hot_again_under_its_id(
    world: World, disks: dict[str, Path]
) -> None:
    weights = weights_of(world)
    one = model("one", 1, on("a", weights))
    world.write(one)
    assert apply_one(world)["weights"]["source"] == "origin"
    shutil.rmtree(world.tmp_path / "origin")

    world.cluster.hold(namespace=world.fleet, name="hoard", node="a", gpus=0, memory=NODE_MEMORY)
    row = evict_one(world, "one/0", "--to", "warm")
    assert (row["outcome"], row["code"]) == ("failed", "NO_MEMORY"), row
    assert states(world) == {HOT: "ALIVE", "hoard": "ALIVE"}, "a replica whose weights do not fit in memory stays HOT"
    world.cluster.kill(namespace=world.fleet, name="hoard")
    eventually(lambda: world.cluster.free(node="a", resource="memory") == NODE_MEMORY, "Ray has the memory back")

    killed = world.run_with("WARM is up, HOT not ended", "evict", "one/0", "--to", "warm", "--yes")
    assert "the agent ended without a summary" in killed.stderr, killed.stderr
    assert states(world) == {HOT: "ALIVE", WARM: "ALIVE"}
    assert sorted(levels(world)) == [("one", 0, "HOT", "ALIVE"), ("one", 0, "WARM", "ALIVE")]
    assert (world.plan()["actions"], world.plan()["unmanaged"]) == ([], [])
    begun = world.actors()[WARM]["pid"]

    row = evict_one(world, "one/0", "--to", "warm")
    assert (row["outcome"], row["level"], row["nodes"]) == ("gone", "WARM", ["a"]), row
    assert states(world) == {WARM: "ALIVE"}
    assert world.actors()[WARM]["pid"] == begun, "weights loaded by the killed eviction are used"
    assert world.engines() == []
    assert world.run("history").stdout.count("evicted one/0 to WARM") == 1

    world.write({**one, "replicas": 0}, model("two", 1, member("--plain", gpus=2, node="a")))
    eventually(lambda: [(one["id"], one["op"]) for one in world.plan()["actions"]] == [("two/0", "create")],
               "its cards are offered")
    world.cluster.hold(namespace=world.fleet, name="two", node="a", gpus=2)  # and Ray grants them
    os.kill(begun, signal.SIGKILL)
    eventually(lambda: (row := world.actors().get(WARM)) and row["state"] == "ALIVE" and row["pid"] != begun,
               "it is WARM again")
    assert levels(world) == [("one", 0, "WARM", "ALIVE")]
    assert world.run("restart", "one/0", "--yes").returncode == 1
    world.cluster.kill(namespace=world.fleet, name="two")

    world.write(one)
    eventually(lambda: world.plan()["actions"], "its cards are offered again")
    row = promote_one(world)
    assert (row["weights"]["source"], row["weights"]["bytes"]) == ("disk", 0)
    eventually(lambda: states(world) == {HOT: "ALIVE"}, "the WARM replica has left")
    assert world.ask(row)["FLEETCTL_MODEL_DIR"] == str(disks["a"] / weights["index"] / "files")
    assert world.plan()["actions"] == []

    row = evict_one(world, "one/0", "--to", "cold")
    assert (row["outcome"], row["level"], states(world)) == ("gone", "COLD", {})


def test_a_gang_is_warm_on_all_its_nodes_and_ends_with_any_of_them(world: World, tmp_path: Path) -> None:
    weights = {**weights_of(world), "view": {"shard": {"rules": [{"match": "w"}]}}}
    world.cluster.add(names=["goes"], memory=NODE_MEMORY, disks=str(tmp_path))
    try:
        world.write(model("one", 1, on("b", weights, "Leader"), on("goes", weights, "Worker")))
        assert apply_one(world)["outcome"] == "ready"
        assert evict_one(world, "one/0", "--to", "warm")["level"] == "WARM"
        assert (states(world), world.cluster.groups()) == ({WARM: "ALIVE"}, [])
        [row] = world.replicas()
        assert [each["memory"] // 1024 for each in row["members"]] == [512, 512]
        assert len({each["nodeId"] for each in row["members"]}) == 2
        [holder] = world.cluster.classes(name="WarmHolder")
        os.kill(holder, signal.SIGKILL)
        eventually(lambda: world.cluster.classes(name="WarmHolder") not in ([], [holder])
                   and states(world) == {WARM: "ALIVE"}, "all of it is WARM again")

        assert [action["op"] for action in world.plan()["actions"]] == ["promote"]
        killed = world.run_with("right after a create", "apply", "-f", world.file, "--yes")
        assert "the agent ended without a summary" in killed.stderr, killed.stderr
        outcomes = world.apply_result()["outcomes"]  # Ray may not know of the actor yet, or end it with its creator
        assert [(row["outcome"], row["replicaId"]) for row in outcomes] in ([], [("ready", 0)]), outcomes
        assert all(row["weights"]["bytes"] == 0 for row in outcomes), "weights on the nodes' disks are used"
        eventually(lambda: states(world) == {HOT: "ALIVE"} and not world.cluster.classes(name="WarmHolder"),
                   "it has left")
        assert evict_one(world, "one/0", "--to", "warm")["level"] == "WARM"
    finally:
        world.cluster.remove(name="goes")
    eventually(lambda: (states(world), world.cluster.free(node="b", resource="memory")) == ({}, NODE_MEMORY),
               "it is gone, and what it held on the other node is free")
    world.write(model("one", 1, on("b", weights, "Leader"), on("a", weights, "Worker")))
    assert [(action["op"], action["replicaId"]) for action in world.plan()["actions"]] == [("create", 0)]
