"""One Ray for all tests here, and a namespace for each test.

Beside its head it has three nodes with two simulated GPUs, a disk for weights and a little of Ray's memory each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import RayCluster, eventually, running_cluster
from e2e_world import NODE_MEMORY, World

from fleetctl.apply import follow

follow.FIRST_S = 0.5  # each look is work for the dashboard, and no agent begins within a second


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
    """A fleet of the test's own; afterwards everything of it goes, and nothing may be left of it."""
    made = World(ray_cluster, tmp_path)
    try:
        yield made
    finally:
        ray_cluster.sweep(namespaces=[made.fleet])
    eventually(lambda: not made.engines(), "no process of an engine is left")
    eventually(lambda: not [name for name in ray_cluster.groups() if made.fleet in name], "no placement group is left")
    eventually(lambda: all(ray_cluster.is_free(node=name) for name in disks), "Ray has back what actors held")
