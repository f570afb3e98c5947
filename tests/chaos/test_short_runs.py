"""Some rounds of each driver; `make chaos`, `make life` and `make loop` run as many as requested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.fault_kinds import SLOW
from tests.chaos.life import Life
from tests.chaos.loop import Loop
from tests.chaos.rounds import Driver
from tests.chaos.stages import KINDS, Stages
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
    """The nodes of the cluster; a driver adds missing nodes, and leaves working nodes."""
    return []


@pytest.mark.long
def test_verbs_and_faults_in_random_order_end_only_named_replicas_and_keep_enough_ready(
    cluster: RayCluster, nodes: list[str], tmp_path: Path
) -> None:
    found = Life(cluster, tmp_path, seed=3, log=print, nodes=nodes).run(steps=15, seconds=SECONDS)
    assert found.violations == []
    assert sum(found.steps.values()) >= 1


def test_after_faults_nothing_is_lost_duplicated_or_leaked_and_one_apply_repairs_the_fleet(
    cluster: RayCluster, nodes: list[str], tmp_path: Path
) -> None:
    driver = Driver(cluster, tmp_path, seed=1, log=print, nodes=nodes, without=SLOW)
    report = driver.run(faults=500, seconds=SECONDS)
    assert report.violations == []
    assert sum(report.faults.values()) >= 1, "on a busy machine there may be only one round"


@pytest.mark.long
def test_an_agent_that_waits_may_be_killed_at_any_stage(cluster: RayCluster, tmp_path: Path) -> None:
    found = Stages(cluster, tmp_path, log=print).run(KINDS, seconds=10 * SECONDS)
    assert found.violations == []
    assert sum(found.faults.values()) >= 1


@pytest.mark.long
def test_watches_that_are_killed_lose_and_double_nothing(cluster: RayCluster, tmp_path: Path) -> None:
    found = Loop(cluster, tmp_path, seed=6, log=print).run(kills=4, seconds=SECONDS)
    assert found.violations == []
    assert found.kills >= 1
