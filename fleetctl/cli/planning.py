"""Plan a fleet on the inventory the flags point to, with the facts that only this machine knows: git, time, version."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory
    from fleetctl.documents.plan import Plan
    from fleetctl.planner.options import PlanFacts, PlanOptions
    from fleetctl.spec.resolved import ResolvedFleet


def plan_fleet(
    fleet: ResolvedFleet, options: PlanOptions, *, inventory: str | None, address: str | None, namespace: str | None
) -> Plan:
    """Read the inventory the flags point to and plan on it.

    Raises InventoryError when it could not be read whole, UsageError when --target or --exclude name no model.
    """
    from fleetctl.cli.connect import inventory_source, resolve_namespace
    from fleetctl.inventory.read import read_inventory
    from fleetctl.planner.plan import make_plan

    with closing(inventory_source(inventory, address, namespace, fleet.cluster)) as source:
        seen = read_inventory(source)
    facts = _facts(fleet, seen, resolve_namespace(namespace, os.environ, fleet.cluster))
    made = make_plan(fleet, seen, options, facts)
    _warn(seen)
    return made


def expiry(observed_at: str) -> str | None:
    """Return when a plan made at `observed_at` (RFC 3339) expires: a day later; None where that is no time."""
    from datetime import timedelta

    from fleetctl.documents.base import as_datetime

    try:
        return (as_datetime(observed_at) + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):  # the latter for the last day there is
        return None


def _facts(fleet: ResolvedFleet, inventory: Inventory, namespace: str) -> PlanFacts:
    from fleetctl.cli.git import git_facts
    from fleetctl.planner.options import PlanFacts
    from fleetctl.version import __version__

    return PlanFacts(
        tool_version=__version__,
        git=git_facts([source.path for source in fleet.files], os.environ),
        expires_at=expiry(inventory.observed_at),
        namespace=namespace,
        address=inventory.cluster.address,
    )


def _warn(inventory: Inventory) -> None:
    if inventory.warnings:
        from fleetctl.cli.console import say

        for warning in inventory.warnings:
            say("warning", warning)
