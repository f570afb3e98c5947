"""Compile caches on a real Ray: the second replica, on another node, finds what the first has compiled.

Each node sees its disk at the same path, as on machines of a fleet: the path is part of a cache's key.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import RayCluster, eventually
from e2e_world import NODE_MEMORY, World, member, model

pytestmark = pytest.mark.ray

VARIABLE = "E2E_CACHE_DIR"
NODES = ("far", "away")


@pytest.fixture
def machines(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Two nodes with disks of their own at one path; yields where they are for the test."""
    disk, backing = tmp_path / "disk", tmp_path / "machines"
    try:
        ray_cluster.add(names=list(NODES), memory=NODE_MEMORY, own={str(disk): str(backing)},
                        env={"FLEETCTL_CACHE_DIR": str(disk)})
    except RuntimeError as error:
        if "no mounts of its own" in str(error):
            pytest.skip("mounts of its own take root")
        raise
    yield {name: backing / name for name in NODES}
    for name in NODES:
        ray_cluster.remove_if_there(name=name)


def on(node: str, role: str | None = None) -> dict[str, Any]:
    one = member("--plain", "--compiles", VARIABLE, node=node, role=role, gpus=0)
    one["engine"].update(caches=[VARIABLE], version=["echo", "e2e 1.0"])
    return one


def started(world: World, *models: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Apply, and return what the engine of each replica says of itself."""
    world.write(*models)
    rows = world.apply_result()["outcomes"]
    assert all(row["outcome"] == "ready" for row in rows), rows
    return {f"{row['model']}/{row['replicaId']}": world.ask(row) for row in rows}


def offered(world: World, replica: str) -> None:
    eventually(lambda: "are offered to other members" in world.run("logs", replica).stdout, f"{replica} offers")


def anywhere(replicas: int) -> dict[str, Any]:
    one = on("far")
    one["nodeSelector"] = {"fleet.io/node": f"in({', '.join(NODES)})"}
    return model("m", replicas, one)


def test_the_second_replica_does_not_compile(world: World, machines: dict[str, Path]) -> None:
    [first] = started(world, anywhere(1)).values()
    assert first["E2E_COMPILED"] == "compiled"
    offered(world, "m/0")
    second = started(world, anywhere(2))["m/1"]
    assert (second["FLEETCTL_NODE"] == first["FLEETCTL_NODE"], second["E2E_COMPILED"]) == (False, "found")
    assert second[VARIABLE] == first[VARIABLE]
    kept = {name: sorted(path.name for path in folder.rglob("kernel-*.so") if "caches" in path.parts)
            for name, folder in machines.items()}
    assert kept["far"] == kept["away"] == [f"kernel-{number}.so" for number in range(4)]
    [_, row] = sorted(world.replicas(), key=lambda one: one["replicaId"])
    assert (row["members"][0]["caches"]["source"], row["members"][0]["caches"].get("trouble")) == ("peer", None)
