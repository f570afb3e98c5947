"""Compile caches on a real Ray: what a member has compiled, the same member of the next replica finds on its node.

Each node sees its disk at the same path, as on machines of a fleet: the path is part of a cache's key, so two paths by
two variables would be two caches. That takes a mount for each node: the right to mount of root, or of a user namespace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster import RayCluster, eventually
from e2e_world import NODE_MEMORY, World, member, model

pytestmark = pytest.mark.ray

VARIABLE = "E2E_CACHE_DIR"
NODES = ("far", "away", "remote", "distant")
OFFERED = "are offered to other members"


@pytest.fixture(scope="module")
def machines(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Nodes with disks of their own at one path; yields where each node's is for the test."""
    folder = tmp_path_factory.mktemp("caches")
    disk, backing = folder / "disk", folder / "machines"
    try:
        ray_cluster.add(names=list(NODES), memory=NODE_MEMORY, own={str(disk): str(backing)},
                        env={"FLEETCTL_CACHE_DIR": str(disk)})
    except RuntimeError as error:
        if "no mounts of its own" in str(error):
            pytest.skip("mounts of its own take root, or a user namespace")
        raise
    yield {name: backing / name for name in NODES}
    for name in NODES:
        ray_cluster.remove_if_there(name=name)


def on(*nodes: str, role: str | None = None) -> dict[str, Any]:
    """A member that compiles, on one of these nodes."""
    one = member("--plain", "--compiles", VARIABLE, node=f"in({', '.join(nodes)})", role=role, gpus=0)
    one["engine"].update(caches=[VARIABLE], version=["echo", "e2e 1.0"])
    return one


def started(world: World, wanted: dict[str, Any], replicas: int) -> list[dict[str, Any]]:
    """Apply a model with so many replicas; return what each member of the newest one's engines says of itself."""
    world.write({**wanted, "replicas": replicas})
    rows = world.apply_result()["outcomes"]
    assert [row["outcome"] for row in rows] == ["ready"], rows
    return engines_of(world, max(world.replicas(), key=lambda row: int(row["replicaId"])))


def engines_of(world: World, replica: dict[str, Any]) -> list[dict[str, Any]]:
    """What each member's engine says of itself; `source` = how fleetctl says that the member got its cache."""
    assert all(each["caches"].get("trouble") is None for each in replica["members"]), replica["members"]
    return [{**eventually(lambda each=each: answered(world, each), "each engine responds"),
             "source": each["caches"].get("source")} for each in replica["members"]]


def answered(world: World, each: dict[str, Any]) -> dict[str, Any] | None:
    """What an engine says of itself, or nothing yet: a worker may still start when its leader is ready."""
    with contextlib.suppress(httpx.TransportError):
        return world.ask({"address": f"{each['address']}:{each['port']}"})
    return None


def offered(world: World, replica: str, members: int = 1) -> None:
    eventually(lambda: world.run("logs", replica).stdout.count(OFFERED) == members, f"each member of {replica} offers")


def kernels(machines: dict[str, Path], engine: dict[str, Any]) -> dict[str, bytes]:
    """The content of an engine's cache, on the disk of its node; no two compilations make the same."""
    below_disk = Path(engine[VARIABLE]).parts[-5:]  # caches/NAME/NUMBER/files/VARIABLE
    folder = machines[engine["FLEETCTL_NODE"]].joinpath(*below_disk)
    found = {path.name: path.read_bytes() for path in folder.rglob("kernel-*.so")}
    assert sorted(found) == [f"kernel-{number}.so" for number in range(4)]
    return found


def test_the_second_replica_does_not_compile(world: World, machines: dict[str, Path]) -> None:
    anywhere = model("m", 1, on("far", "away"))
    [first] = started(world, anywhere, 1)
    assert first["E2E_COMPILED"] == "compiled"
    offered(world, "m/0")
    [second] = started(world, anywhere, 2)
    assert second["FLEETCTL_NODE"] != first["FLEETCTL_NODE"]
    assert (second["E2E_COMPILED"], second["source"]) == ("found", "peer")
    assert second[VARIABLE] == first[VARIABLE]
    assert kernels(machines, second) == kernels(machines, first)


def test_each_rank_of_a_gang_finds_what_the_same_rank_has_compiled(world: World, machines: dict[str, Path]) -> None:
    gang = model("m", 1, on(*NODES, role="Leader"), on(*NODES, role="Worker"), placement={"spread": "fleet.io/node"})
    first = started(world, gang, 1)
    assert [engine["E2E_COMPILED"] for engine in first] == ["compiled", "compiled"]
    offered(world, "m/0", members=2)
    second = started(world, gang, 2)
    assert {engine["FLEETCTL_NODE"] for engine in (*first, *second)} == set(NODES)
    assert [(engine["FLEETCTL_RANK"], engine["E2E_COMPILED"], engine["source"]) for engine in second] == [
        ("0", "found", "peer"), ("1", "found", "peer")]
    leader, worker = (kernels(machines, engine) for engine in first)
    assert leader != worker
    assert [kernels(machines, engine) for engine in second] == [leader, worker]

    # restarted whole, each rank finds on its own node's disk what it has compiled there
    assert world.run("restart", "m/0", "-f", world.file, "--yes").returncode == 0
    [replica] = [row for row in world.replicas() if row["replicaId"] == 0]
    again = engines_of(world, replica)
    assert [engine["FLEETCTL_NODE"] for engine in again] == [engine["FLEETCTL_NODE"] for engine in first]
    assert [(engine["FLEETCTL_RANK"], engine["E2E_COMPILED"], engine["source"]) for engine in again] == [
        ("0", "found", "disk"), ("1", "found", "disk")]
    assert [kernels(machines, engine) for engine in again] == [leader, worker]


def test_copies_on_one_node_have_folders_of_their_own(world: World, machines: dict[str, Path]) -> None:
    """They start side by side, so both compile; in the next replica the one with the same number finds each."""
    pair = model("m", 1, on("far", "away"), placement={"sameLabel": {"label": "fleet.io/node", "scope": "replica"}})
    pair["workers"][0]["copies"] = 2
    first = started(world, pair, 1)
    assert len({engine["FLEETCTL_NODE"] for engine in first}) == 1
    assert [engine["E2E_COMPILED"] for engine in first] == ["compiled", "compiled"]
    offered(world, "m/0", members=2)
    made = {engine[VARIABLE]: kernels(machines, engine) for engine in first}
    assert sorted(Path(folder).parts[-3] for folder in made) == ["0", "1"]
    second = started(world, pair, 2)
    assert {engine["FLEETCTL_NODE"] for engine in (*first, *second)} == {"far", "away"}
    assert [(engine["E2E_COMPILED"], engine["source"]) for engine in second] == [("found", "peer")] * 2
    assert {engine[VARIABLE]: kernels(machines, engine) for engine in second} == made
