"""A cluster of one node, and a watcher of a fleet file on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, serve
from small_watcher import watcher_of

from fleetctl.watch.watcher import Watcher


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    stand_in = ClusterStandIn()
    stand_in.add_node("node-a")
    with serve(stand_in):
        yield stand_in


@pytest.fixture
def watcher(cluster: ClusterStandIn, tmp_path: Path) -> Watcher:
    return watcher_of(cluster, tmp_path / "fleet.yaml")
