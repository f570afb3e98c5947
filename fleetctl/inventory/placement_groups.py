"""Placement groups from the state API: what their bundles hold on which node.

Ray keeps 10,000 groups on this list, removed ones too, so it is read only where Ray gives no sums of what is in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.inventory.claims import Claim, read_claim
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.state_api import Listing, Row, list_rows


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """One placement group that is not removed. `held` has one entry per bundle that Ray has put on a node."""

    group_id: str
    name: str
    state: str
    held: tuple[tuple[str, Claim], ...]


def list_placement_groups(client: DashboardClient) -> Listing[PlacementGroup]:
    """Return the groups that hold or await something; Ray keeps removed ones on its list."""
    return list_rows(client, "placement_groups", read_placement_group, where=("state", "!=", "REMOVED"))


def read_placement_group(row: Row) -> PlacementGroup | None:
    """Return the group of one row, or None for a removed one."""
    state = str(row.get("state"))
    if state == "REMOVED":
        return None
    return PlacementGroup(str(row.get("placement_group_id")), str(row.get("name") or ""), state, tuple(_held(row)))


def _held(row: Row) -> Iterator[tuple[str, Claim]]:
    bundles = row.get("bundles")
    for bundle in bundles if isinstance(bundles, list) else []:
        if isinstance(bundle, dict) and isinstance(node_id := bundle.get("node_id"), str) and node_id:
            yield node_id, read_claim(bundle.get("unit_resources"))
