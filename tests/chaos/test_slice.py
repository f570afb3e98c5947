"""A minute of the chaos driver; `make chaos` runs as much of it as is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

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
