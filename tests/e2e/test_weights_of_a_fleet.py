"""Weights from the fleet file to the engine, on a real Ray: the plan names the sources, and the nodes use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import RayCluster, eventually
from conftest import World, member, model

pytestmark = pytest.mark.ray
SHARD = {"shard": {"rules": [{"match": "w"}]}}


@pytest.fixture
def nodes(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two nodes with disks of their own."""
    names = ("weights-a", "weights-b")
    for name in names:
        ray_cluster.add(names=[name], env={"FLEETCTL_CACHE_DIR": str(tmp_path / name)})
    yield names
    for name in names:
        ray_cluster.remove(name=name)


def indexed_model(world: World, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A model of one small tensor in a folder, and the lines for the fleet file."""
    origin = tmp_path / "origin"
    origin.mkdir()
    header = b'{"w":{"dtype":"U8","shape":[4,8],"data_offsets":[0,32]}}'
    (origin / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(range(32)))
    weights: dict[str, Any] = yaml.safe_load(world.run("weights", "index", str(origin)).stdout)["weights"]
    return origin, weights


def sources(plan: dict[str, Any], rank: int) -> list[tuple[str, str | None]]:
    [action] = plan["actions"]
    return [(one["replica"], one["view"]) for one in action["members"][rank]["weights"]["sources"]]


def test_new_replicas_have_their_weights_from_those_that_run(
    world: World, nodes: tuple[str, str], tmp_path: Path
) -> None:
    origin, weights = indexed_model(world, tmp_path)
    here, there = nodes
    one = model("one", 1, member("--plain", node=here, gpus=0, weights=weights))
    world.write(one)
    [first] = world.apply_result()["outcomes"]
    assert (first["outcome"], first["weights"]["source"]) == ("ready", "origin"), first

    origin.rename(tmp_path / "away")
    ranks = [member("--plain", node=node, role=role, gpus=0, weights={**weights, "view": SHARD})
             for node, role in ((there, "Leader"), (here, "Worker"))]
    world.write(one, model("gang", 1, *ranks))
    assert [sources(world.plan(), rank) for rank in range(2)] == [[("one/0", None)], [("one/0", None)]]
    [gang] = [row for row in world.apply_result()["outcomes"] if row["model"] == "gang"]
    assert (gang["outcome"], gang["weights"]["source"]) == ("ready", "peer"), gang
    folder = Path(world.ask(gang)["FLEETCTL_MODEL_DIR"])
    assert (folder / "model.safetensors").read_bytes().endswith(bytes(range(16)))
    assert not (folder / "model.safetensors").read_bytes().endswith(bytes(range(32)))

    world.write(one, model("gang", 1, *ranks), model("twin", 1, *ranks))
    [(replica, view), *_] = sources(world.plan(), 0)
    assert (replica, view) == ("gang/0", folder.name)  # planner and node call the same part the same
    [twin] = [row for row in world.apply_result()["outcomes"] if row["model"] == "twin"]
    assert (twin["outcome"], twin["weights"]["source"], twin["weights"]["bytes"]) == ("ready", "disk", 0), twin


def test_weights_are_on_a_node_before_its_replica_and_go_when_no_file_names_them(
    world: World, nodes: tuple[str, str], tmp_path: Path
) -> None:
    origin, weights = indexed_model(world, tmp_path)
    here, there = nodes
    one = model("one", 1, member("--plain", node=here, gpus=0, weights=weights))
    world.write(one)
    assert world.apply_result()["outcomes"][0]["outcome"] == "ready"
    origin.rename(tmp_path / "away")

    fetched = world.run("prefetch", "one", "-f", world.file, "--node", there, "--format", "json")
    assert fetched.returncode == 0, fetched.stderr
    [row] = json.loads(fetched.stdout)["rows"]
    assert (row["node"], row["fetched"]["source"], row["fetched"]["bytes"] > 0) == (there, "peer", True)
    world.write(one, model("two", 1, member("--plain", node=there, gpus=0, weights=weights)))
    [two] = [row for row in world.apply_result()["outcomes"] if row["model"] == "two"]
    assert (two["outcome"], two["weights"]["source"], two["weights"]["bytes"]) == ("ready", "disk", 0), two

    assert world.run("evict", "two/0", "--yes").returncode == 0
    artifact = weights["index"]
    files = {name: tmp_path / name / artifact / "files" for name in nodes}
    world.write(model("three", 0, member("--plain", gpus=0)))
    # without the replica's own word, so that its use of the files alone protects them
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetctl.cli.prune.named_weights", lambda *_: [])
        eventually(lambda: removed(world)[there], "the evicted replica's processes have ended")
    assert {name: path.exists() for name, path in files.items()} == {here: True, there: False}


def removed(world: World) -> dict[str, bool]:
    """Prune the nodes of this test, and return which have lost something; what is in use stays, and is said to be."""
    done = world.run("prune", "-f", world.file, "--nodes", "fleet.io/node in (weights-a, weights-b)", "--yes",
                     "--format", "json")
    assert done.returncode == 0, done.stderr
    found = {node["node"]: node["artifacts"] for node in json.loads(done.stdout)["nodes"]}
    assert [one["used"] for one in found["weights-a"]] == [True]
    return {name: any(one["removed"] for one in rows) for name, rows in found.items()}
