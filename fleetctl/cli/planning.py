"""Plan a fleet on the inventory the flags point to, with the facts that only this machine knows: git, time, version."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.cli.outdated import Changes
    from fleetctl.documents.inventory import Inventory
    from fleetctl.documents.placement_map import PlacementMap
    from fleetctl.documents.plan import Plan
    from fleetctl.fleetfile.resolved import ResolvedFleet
    from fleetctl.inventory.read import InventorySource
    from fleetctl.inventory.sums import AgentView
    from fleetctl.planner.options import PlanFacts, PlanOptions

DEFAULT_EXPIRY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Where:
    """Where the inventory comes from, and how long a plan made on it holds: the flags, as they were given. Seconds."""

    inventory: str | None = None
    address: str | None = None
    namespace: str | None = None
    expires_s: float = DEFAULT_EXPIRY_S


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and everything it was made from; `changes` = what outdated replicas run differently, to be shown."""

    fleet: ResolvedFleet
    inventory: Inventory
    options: PlanOptions
    facts: PlanFacts
    plan: Plan
    changes: Changes = field(default_factory=dict)

    def picture(self) -> PlacementMap:
        """Return the placement map with the plan drawn in."""
        from fleetctl.planner.questions.occupancy import placement_map
        from fleetctl.planner.questions.world import World

        return placement_map(World(self.fleet, self.inventory, self.options.adopt_from), self.plan)


def plan_fleet(fleet: ResolvedFleet, options: PlanOptions, where: Where) -> Planned:
    """Read the inventory the flags point to and plan on it; warnings of the inventory go to standard error.

    Raises InventoryError when it could not be read whole, UsageError when --target or --exclude name no model.
    """
    from fleetctl.cli.connect import inventory_source

    with closing(inventory_source(where.inventory, where.address, where.namespace, fleet.cluster)) as source:
        planned = _plan_on(source, fleet, options, where)
        if planned.plan.blocked and _caught_up(source, planned.inventory):
            planned = _plan_on(source, fleet, options, where)
        planned = replace(planned, changes=_changes(source, planned))
    _warn(planned.inventory)
    return planned


def plan_around(fleet: ResolvedFleet, options: PlanOptions, where: Where, seen_by_agent: AgentView) -> Plan:
    """Plan on what the cluster says now, and on what an agent in it has seen of the nodes; warnings are left out."""
    from fleetctl.cli.connect import live_source

    with closing(live_source(where.address, where.namespace, fleet.cluster)) as source:
        return _plan_on(replace(source, agent=seen_by_agent), fleet, options, where).plan


def _plan_on(source: InventorySource, fleet: ResolvedFleet, options: PlanOptions, where: Where) -> Planned:
    from fleetctl.cli.connect import resolve_namespace
    from fleetctl.inventory.read import read_inventory
    from fleetctl.planner.plan import make_plan

    seen = read_inventory(source)
    facts = _facts(fleet, seen, resolve_namespace(where.namespace, os.environ, fleet.cluster), where.expires_s)
    return Planned(fleet, seen, options, facts, make_plan(fleet, seen, options, facts))


def _changes(source: InventorySource, planned: Planned) -> Changes:
    """Say what differs where replicas are outdated; a file does not tell."""
    from fleetctl.cli.outdated import look_up_changes
    from fleetctl.inventory.read import Live

    return look_up_changes(source.client, planned.fleet, planned.plan.drift) if isinstance(source, Live) else {}


def _caught_up(source: InventorySource, seen: Inventory) -> bool:
    """Return whether Ray's sums are newer now than the reading in which they blocked something; it waits for that."""
    from fleetctl.cli.console import say
    from fleetctl.inventory.catch_up import sums_caught_up
    from fleetctl.inventory.read import Live

    return isinstance(source, Live) and sums_caught_up(
        source.client, seen, lambda: say("note", "reading the cluster again: Ray's sums of what is in use are some "
                                                 "seconds old"))


def expiry(observed_at: str, after_s: float = DEFAULT_EXPIRY_S) -> str | None:
    """Return when a plan made at `observed_at` (RFC 3339) expires; None where that is no time."""
    from datetime import timedelta

    from fleetctl.documents.base import as_datetime

    try:
        return (as_datetime(observed_at) + timedelta(seconds=int(after_s))).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):  # the latter for the last day there is
        return None


def _facts(fleet: ResolvedFleet, inventory: Inventory, namespace: str, expires_s: float) -> PlanFacts:
    from fleetctl.cli.git import git_facts
    from fleetctl.planner.options import PlanFacts
    from fleetctl.version import __version__

    return PlanFacts(
        tool_version=__version__,
        git=git_facts([source.path for source in fleet.files], os.environ),
        expires_at=expiry(inventory.observed_at, expires_s),
        namespace=namespace,
        address=inventory.cluster.address,
    )


def _warn(inventory: Inventory) -> None:
    if inventory.warnings:
        from fleetctl.cli.console import say

        for warning in inventory.warnings:
            say("warning", warning)
