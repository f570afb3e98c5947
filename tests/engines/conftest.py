"""Real vLLM on a real Ray: `make test-engines` installs it and runs these tests; without it they are skipped."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "e2e"))

from cluster import RayCluster, eventually, running_cluster
from e2e_world import World
from vllm_world import VllmWorld


@pytest.fixture(scope="session")
def environment() -> Path:
    """The folder that environment.py has made."""
    folder = os.environ.get("FLEETCTL_TEST_ENGINES")
    if not folder:
        pytest.skip("`make test-engines` installs vLLM and runs these")
    return Path(folder)


@pytest.fixture(scope="session")
def ray_cluster(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with running_cluster(tmp_path_factory.mktemp("ray")) as cluster:
        cluster.add(names=["a", "b"], cpus=8, disks=str(tmp_path_factory.mktemp("disks")))
        yield cluster


@pytest.fixture(scope="module")
def world(ray_cluster: RayCluster, environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmWorld]:
    """The fleet of a module; afterwards all its actors are killed, and no process of an engine may be left."""
    folder = tmp_path_factory.mktemp("world")
    for name in ("one", "other", "wide"):
        shutil.copytree(environment / name, folder / name)
    world = VllmWorld(World(ray_cluster, folder), environment)
    try:
        yield world
    finally:
        ray_cluster.sweep(namespaces=[world.fleet])
    eventually(lambda: not world.engines(), "no process of an engine is left")
