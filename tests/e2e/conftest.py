"""One Ray for all tests here, and a namespace for each test.

Besides its head it has three nodes, each with two simulated GPUs, a disk for weights and a little memory for Ray to
grant.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import RayCluster, eventually, running_cluster
from e2e_world import NODE_MEMORY, World

from fleetctl.apply import follow

follow.FIRST_S = 0.5  # each query is work for the dashboard, and no agent starts within a second


@pytest.fixture(scope="session")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The disk of each node."""
    folder = tmp_path_factory.mktemp("disks")
    return {name: folder / name for name in "abc"}


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory, disks: dict[str, Path]) -> Iterator[RayCluster]:
    with running_cluster(tmp_path_factory.mktemp("ray")) as cluster:
        cluster.add(names=[*disks], memory=NODE_MEMORY, disks=str(disks["a"].parent))
        yield cluster


@pytest.fixture
def world(ray_cluster: RayCluster, disks: dict[str, Path], tmp_path: Path) -> Iterator[World]:
    """A fleet of the test's own; afterwards all its actors are killed, and nothing may be left."""
    world = World(ray_cluster, tmp_path)
    try:
        yield world
    finally:
        ray_cluster.sweep(namespaces=[world.fleet])
    eventually(lambda: not world.engines(), "no process of an engine is left")
    eventually(lambda: not [name for name in ray_cluster.groups() if world.fleet in name], "no placement group is left")
    eventually(lambda: all(ray_cluster.is_free(node=name) for name in disks), "Ray has back what actors held")
