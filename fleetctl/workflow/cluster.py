"""Reading the cluster; `contexts.py` chooses it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.documents.fleet import Cluster
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.selector import LabelSelector
from fleetctl.errors import FleetctlError, InventoryError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.workflow.invocation import Invocation, Where

if TYPE_CHECKING:
    from fleetctl.inventory.dashboard import InventorySource
    from fleetctl.planner.questions.scenario import Scenario


def fleet_of(invocation: Invocation, files: Sequence[str] | None) -> ResolvedFleet | None:
    """Return the fleet in the files; None without files. Raises FleetFileError when they have problems."""
    if not files:
        return None
    from fleetctl.fleetfile.load import load_fleet  # loads YAML

    return load_fleet(files, stdin=invocation.stdin)


def cluster_of(fleet: ResolvedFleet | None) -> Cluster:
    """Return the fleet's `spec.cluster`; the defaults without a fleet."""
    return fleet.cluster if fleet else Cluster()


def with_cold_selectors(source: InventorySource, fleet: ResolvedFleet | None) -> InventorySource:
    """Return a source that also reads the weights on the disks of the nodes that the fleet's `cold` selects."""
    cold = tuple(model.cold for model in fleet.models if model.cold is not None) if fleet else ()
    return source if not cold or isinstance(source, Snapshot) else replace(source, cold=cold)


def inventory_source(invocation: Invocation, where: Where, cluster: Cluster) -> AbstractContextManager[InventorySource]:
    """Return a context manager for the source of the inventory: the document of --inventory, or the cluster."""
    if where.inventory:
        return nullcontext(Snapshot(where.inventory, stdin=invocation.stdin))
    from fleetctl.workflow.dashboard import live_source  # the client, which a document does not need

    return live_source(invocation, where, cluster, or_inventory=True)


def read_from(invocation: Invocation, where: Where, fleet: ResolvedFleet | None, *, ages: bool = False) -> Inventory:
    """Return the inventory that the flags and the fleet point to; it may be incomplete."""
    with inventory_source(invocation, where, cluster_of(fleet)) as source:
        return read(invocation, with_cold_selectors(source, fleet), ages=ages)


def read(invocation: Invocation, source: InventorySource, *, ages: bool = False) -> Inventory:
    """Read the inventory of the source while a message shows it; `ages` as for `Live.read`."""
    with invocation.working("reading the inventory" if isinstance(source, Snapshot) else "reading the cluster"):
        return source.read(ages=ages)


def read_scenario(
    invocation: Invocation, files: Sequence[str] | None, where: Where, adopt_from: str | None = None,
    selector: LabelSelector | None = None,
) -> Scenario:
    """Return the fleet and the inventory for a question; warnings of the inventory go to standard error.

    `selector` = the labels of the models to plan.
    """
    from fleetctl.planner.questions.scenario import NO_FLEET, Scenario  # NumPy

    fleet = fleet_of(invocation, files)
    seen = read_from(invocation, where, fleet)
    for warning in seen.warnings:
        invocation.say("warning", warning)
    return Scenario(fleet or NO_FLEET, seen, adopt_from, selector)


def absent(seen: Inventory, message: str, hint: str) -> FleetctlError:
    """Return the error for something not found; in an incomplete inventory it may still exist."""
    if seen.complete:
        return FleetctlError(message, hint=hint)
    problems = "; ".join(seen.warnings) or "the document gives no reason"
    return InventoryError(f"{message} in the part of the inventory that could be read: {problems}",
                          hint="`fleetctl inventory` shows what could be read")
