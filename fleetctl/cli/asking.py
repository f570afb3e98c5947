"""Reads what a question is asked of: the fleet files, where there are any, and the inventory the flags point to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory
    from fleetctl.fleetfile.resolved import ResolvedFleet
    from fleetctl.planner.questions.world import World


def read_world(
    files: Sequence[str] | None, *, inventory: str | None, address: str | None, namespace: str | None,
    adopt_from: str | None = None,
) -> World:
    """Return the world to ask; warnings of the inventory go to standard error.

    Raises FleetFileError for files with problems, InventoryError for an inventory that cannot be read at all.
    """
    from fleetctl.cli.connect import fleet_of, refuse_two_readers
    from fleetctl.cli.console import say
    from fleetctl.planner.questions.world import NO_FLEET, World

    refuse_two_readers(list(files or ()), inventory)
    fleet = fleet_of(files)
    seen = _read(fleet, inventory=inventory, address=address, namespace=namespace)
    for warning in seen.warnings:
        say("warning", warning)
    return World(fleet or NO_FLEET, seen, adopt_from)


def _read(
    fleet: ResolvedFleet | None, *, inventory: str | None, address: str | None, namespace: str | None
) -> Inventory:
    from fleetctl.cli.connect import inventory_source
    from fleetctl.documents.fleet import Cluster
    from fleetctl.inventory.read import read_inventory

    cluster = fleet.cluster if fleet else Cluster()
    with closing(inventory_source(inventory, address, namespace, cluster)) as source:
        return read_inventory(source)
