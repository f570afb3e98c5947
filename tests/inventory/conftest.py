"""Fixtures of this folder: a fake dashboard, and a reading of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fake_dashboard import FakeDashboard, serve

from fleetctl.documents.inventory import Inventory
from fleetctl.inventory.access import Access
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live

Read = Callable[..., Inventory]


@pytest.fixture
def dashboard() -> Iterator[FakeDashboard]:
    with serve() as fake:
        yield fake


@pytest.fixture
def read(dashboard: FakeDashboard) -> Read:
    """Read the fake dashboard, without waits between attempts."""

    def reading(namespace: str = "invfleet", timeout_s: float = 20, token: str | None = None) -> Inventory:
        with DashboardClient(dashboard.url, Access(token), timeout_s, sleep=lambda _: None) as client:
            return Live(client, lambda: "2026-03-04T12:00:00Z", namespace).read()

    return reading
