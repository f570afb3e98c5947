"""Two minutes of the drivers; `make chaos` and `make life` run as much of them as is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.life import Life
from tests.chaos.rounds import Driver
from tests.e2e.cluster import running_cluster

pytestmark = pytest.mark.ray
SECONDS = 40.0
"""A round that has begun is finished."""


def test_faults_lose_double_and_leak_nothing_and_one_apply_repairs_what_they_did(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        report = Driver(cluster, tmp_path, seed=1, say=print).run(faults=500, seconds=SECONDS)
    assert report.violations == []
    assert sum(report.faults.values()) >= 1, "on a busy machine one round may be all"


def test_verbs_and_faults_in_random_order_end_only_what_is_named_and_keep_what_is_promised(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        found = Life(cluster, tmp_path, seed=2, say=print).run(steps=15, seconds=SECONDS)
    assert found.violations == []
    assert sum(found.steps.values()) >= 1
