"""A running cluster as the source of an inventory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetctl.collector import collector_paused
from fleetctl.documents.inventory import Inventory
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.cold import with_cold
from fleetctl.inventory.dashboard import read_dashboard
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.inventory.sums import AgentView


@dataclass(frozen=True, slots=True)
class Live:
    """A running cluster. `observed_at` is now (RFC 3339, UTC); `namespace` is the Ray namespace of our replicas.

    `agent` = what an agent has just seen of the nodes; `cold` = selectors of nodes whose disks are asked about.
    """

    client: DashboardClient
    observed_at: str
    namespace: str = "fleet"
    agent: AgentView | None = None
    cold: Sequence[Mapping[str, str]] = ()

    def read(self, *, ages: bool = False) -> Inventory:
        """Return the inventory; a read that was cut off, refused in part or cut short has `complete` false.

        `ages` = also since when replicas are ready that were never restarted, which no plan needs.

        Raises ClusterUnreachable or ClusterRefused when the nodes cannot be requested.
        """
        with collector_paused(lasting=True):
            found = read_dashboard(self.client, observed_at=self.observed_at, namespace=self.namespace,
                                   agent=self.agent, ages=ages)
            return with_cold(self.client, found, self.cold) if self.cold else found

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the dashboard."""
        self.client.close()


InventorySource = Live | Snapshot
