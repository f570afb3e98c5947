"""Fixtures of this folder: a simulated cluster, and a client that does not wait between tries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_stand_in import ClusterStandIn, serve

from fleetctl.inventory.access import Access
from fleetctl.inventory.client import DashboardClient


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    with serve(ClusterStandIn()) as stand_in:
        yield stand_in


@pytest.fixture
def client(cluster: ClusterStandIn) -> Iterator[DashboardClient]:
    with DashboardClient(cluster.url, Access("a-token"), 20, sleep=lambda _: None) as dashboard:
        yield dashboard
