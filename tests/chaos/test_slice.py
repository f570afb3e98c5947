"""A minute of the drivers, on one Ray; `make chaos` and `make life` run as much of them as is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.life import Life
from tests.chaos.rounds import Driver
from tests.e2e.cluster import RayCluster, running_cluster

pytestmark = pytest.mark.ray
SECONDS = 10.0
"""A step or round that has begun is finished."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with running_cluster(tmp_path_factory.mktemp("chaos")) as made:
        yield made


@pytest.fixture(scope="module")
def nodes() -> list[str]:
    """The nodes of the cluster; a driver adds what it lacks, and leaves what works."""
    return []


def test_verbs_and_faults_in_random_order_end_only_what_is_named_and_keep_what_is_promised(
    cluster: RayCluster, nodes: list[str], tmp_path: Path
) -> None:
    found = Life(cluster, tmp_path, seed=3, say=print, nodes=nodes).run(steps=15, seconds=SECONDS)
    assert found.violations == []
    assert sum(found.steps.values()) >= 1


def test_faults_lose_double_and_leak_nothing_and_one_apply_repairs_what_they_did(
    cluster: RayCluster, nodes: list[str], tmp_path: Path
) -> None:
    report = Driver(cluster, tmp_path, seed=1, say=print, nodes=nodes).run(faults=500, seconds=SECONDS)
    assert report.violations == []
    assert sum(report.faults.values()) >= 1, "on a busy machine one round may be all"
