"""Read the inventory from wherever it comes: a live dashboard, or a snapshot file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.collector import collector_paused
from fleetctl.documents.inventory import Inventory
from fleetctl.inventory.agent_view import AgentView
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import read_dashboard
from fleetctl.inventory.snapshot import load_snapshot


@dataclass(frozen=True, slots=True)
class Live:
    """A running cluster. `observed_at` is now (RFC 3339, UTC); `namespace` is the Ray namespace of our replicas.

    `agent` = what an agent has just seen of the nodes.
    """

    client: DashboardClient
    observed_at: str
    namespace: str = "fleet"
    agent: AgentView | None = None

    def close(self) -> None:
        """Close the connections to the dashboard."""
        self.client.close()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An inventory document on disk; `-` is standard input, which `stdin` reads."""

    path: str
    stdin: Callable[[], bytes] | None = None

    def close(self) -> None:
        """Nothing stays open: a snapshot is read at once."""


InventorySource = Live | Snapshot


def read_inventory(where: InventorySource) -> Inventory:
    """Return the inventory; a read that was cut off, refused in part or cut short has `complete` false.

    Raises ClusterUnreachable or ClusterRefused when not even the nodes could be asked for, and DocumentError for a
    snapshot that cannot be read.
    """
    if isinstance(where, Snapshot):
        return load_snapshot(where.path, stdin=where.stdin)
    with collector_paused(lasting=True):
        return read_dashboard(where.client, observed_at=where.observed_at, namespace=where.namespace, agent=where.agent)
