"""Compile caches with real vLLM on CPUs: the second replica, on another node, does not compile again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import RayCluster, eventually
from environment import MAKE_MODEL
from vllm_world import VllmWorld

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(1800)]

LAYERS = 24
NODES = ("far", "away")
CACHES = ["VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"]


@pytest.fixture(scope="module")
def machines(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two nodes, each of which sees a disk of its own at one path; yields where these disks are."""
    folder = tmp_path_factory.mktemp("machines")
    try:
        ray_cluster.add(names=list(NODES), cpus=8, own={str(folder / "disk"): str(folder / "backing")},
                        env={"FLEETCTL_CACHE_DIR": str(folder / "disk")})
    except RuntimeError as error:
        if "no mounts of its own" in str(error):
            pytest.skip("mounts of its own take root")
        raise
    yield folder / "backing"
    for name in NODES:
        ray_cluster.remove_if_there(name=name)


def forget_pages() -> None:
    """Drop what the kernel keeps in memory of files."""
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")


@pytest.fixture(scope="module")
def deep(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model of many layers, for which there is something to compile."""
    folder = str(tmp_path_factory.mktemp("deep"))
    subprocess.run([environment / "venv" / "bin" / "python", "-c",
                    MAKE_MODEL.replace("num_hidden_layers=1", f"num_hidden_layers={LAYERS}"), folder, "1", "64"],
                   check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    return folder


def compiling(world: VllmWorld, replicas: int, model: str) -> dict[str, Any]:
    """A model whose engine compiles; each replica is on a node of its own.

    vLLM 0.32 cannot load what it compiles ahead of time for CPUs: it says so and compiles
    again, with caches and without.
    """
    one = world.member(model=model, VLLM_USE_AOT_COMPILE="0")
    one["engine"]["args"].remove("--enforce-eager")
    one["engine"]["caches"] = CACHES
    one["nodeSelector"] = {"fleet.io/node": f"in({', '.join(NODES)})"}
    return {**world.model("compiles", one), "replicas": replicas, "placement": {"spread": "ray.io/node-id"}}


def started(world: VllmWorld, model: str, replicas: int, replica: int, what: str) -> tuple[float, str]:
    """Start one more replica with no page of a file in memory; return its seconds to ready, and its caches' source."""
    forget_pages()
    rows = world.apply(compiling(world, replicas, model))
    assert all(row["outcome"] == "ready" for row in rows.values()), rows
    [found] = [one for one in world.world.replicas() if one["replicaId"] == replica]
    seconds = max(world.world.inventory()["starts"], key=lambda start: str(start["at"]))["seconds"]
    caches = found["members"][0]["caches"]
    print(json.dumps({"measured": what, "seconds": seconds, "caches": caches, "load": os.getloadavg()[0]}))
    assert "trouble" not in caches, caches
    return float(seconds), str(caches["source"])


def test_the_second_replica_starts_as_if_its_caches_lay_on_its_node(
    world: VllmWorld, machines: Path, deep: str
) -> None:
    first, source = started(world, deep, 1, 0, "replica 1, which compiles, to ready")
    assert source == ""
    eventually(lambda: "are offered to other members" in world.log("compiles/0"), "it offers", timeout_s=120)
    print([line for line in world.log("compiles/0").splitlines() if "caches: " in line])
    second, source = started(world, deep, 2, 1, "replica 2, on another node, to ready")
    assert source == "peer"
    assert world.ask("compiles")
    done = world.world.run("evict", "compiles/1", "--yes")
    assert done.returncode == 0, done.stderr
    warm, source = started(world, deep, 2, 1, "replica 2 again, its caches on its node, to ready")
    assert source == "disk"
    print(json.dumps({"second / warm": round(second / warm, 2), "second / first": round(second / first, 2),
                      "files": sum(path.is_file() for path in machines.rglob("*"))}))
    assert second <= 1.2 * warm
    assert second < 0.7 * first
