"""The floor of `cold` on a real Ray: nodes that lack weights fetch them, and Ray lists what they have then."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster import RayCluster
from conftest import World, member, model

pytestmark = pytest.mark.ray


@pytest.fixture
def disks(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Two nodes with disks of their own."""
    found = {name: tmp_path / name for name in ("floor-a", "floor-b")}
    for name, disk in found.items():
        ray_cluster.add(names=[name], env={"FLEETCTL_CACHE_DIR": str(disk)})
    yield found
    for name in found:
        ray_cluster.remove(name=name)


def test_every_node_has_the_weights_without_a_replica_there(
    world: World, disks: dict[str, Path], tmp_path: Path
) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    (origin / "config.json").write_text("{}")
    weights = yaml.safe_load(world.run("weights", "index", str(origin)).stdout)["weights"]
    meant = {"nodes": {"fleet.io/node": f"in({', '.join(disks)})"}}
    world.write(model("one", 1, member("--plain", node="floor-a", gpus=0, weights=weights), cold=meant))
    plan = world.plan()
    assert [node["node"] for node in plan["prefetches"][0]["nodes"]] == [*disks]
    rows = world.apply_result()["outcomes"]
    assert {(row["outcome"], row.get("level"), *row["nodes"]) for row in rows} == {
        ("ready", None, "floor-a"), ("ready", "COLD", "floor-a"), ("ready", "COLD", "floor-b")}
    assert all((disk / weights["index"] / "files" / "config.json").exists() for disk in disks.values())
    plan = world.plan()
    assert (plan["exitCode"], plan.get("prefetches"), plan["formatVersion"]) == (0, None, "1.0")

    shutil.rmtree(origin)
    world.write(model("one", 1, member("--plain", node="floor-a", gpus=0, weights={**weights, "index": "f" * 64}),
                      cold=meant))
    rows = [row for row in world.apply_result()["outcomes"] if row.get("level") == "COLD"]
    assert [(row["outcome"], row["code"]) for row in rows] == [("failed", "WEIGHTS_FAILED")] * 2
