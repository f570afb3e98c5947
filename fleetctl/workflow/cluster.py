"""Which cluster: the flag, then the environment, then the fleet file or the saved plan; and how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from fleetctl.documents.fleet import Cluster
from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.access import find_access, without_token
from fleetctl.inventory.address import dashboard_url
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.read import InventorySource, Live, Snapshot, read_inventory
from fleetctl.workflow.invocation import ADDRESS_VARIABLE, NAMESPACE_VARIABLE, Invocation, Where

if TYPE_CHECKING:
    from fleetctl.planner.questions.world import World


def fleet_of(invocation: Invocation, files: Sequence[str] | None) -> ResolvedFleet | None:
    """Return the fleet in the files; None where no file is given. Raises FleetFileError when they have problems."""
    if not files:
        return None
    from fleetctl.fleetfile.load import load_fleet  # YAML: without files it is not needed

    return load_fleet(files, stdin=invocation.stdin)


def cluster_of(fleet: ResolvedFleet | None) -> Cluster:
    """Return what the fleet says about its cluster; the defaults without a fleet."""
    return fleet.cluster if fleet else Cluster()


def resolve_address(
    flag: str | None, environ: Mapping[str, str], written: str | None, *, or_inventory: bool = False
) -> str:
    """Return the cluster's address: --address, FLEETCTL_ADDRESS, or what the fleet or the plan says.

    Raises InventoryError, with the ways to give an address, when there is none; `or_inventory` = --inventory is one.
    """
    address = flag or environ.get(ADDRESS_VARIABLE) or written
    if address:
        return address
    raise InventoryError(
        "no cluster address",
        hint=f"give --address http://ray-head:8265, or set {ADDRESS_VARIABLE}, or spec.cluster.address in the fleet "
        f"file{'; --inventory FILE reads a saved inventory instead' if or_inventory else ''}",
    )


def resolve_namespace(flag: str | None, environ: Mapping[str, str], cluster: Cluster) -> str:
    """Return the Ray namespace of the replicas: --namespace, FLEETCTL_NAMESPACE, spec.cluster.namespace."""
    return flag or environ.get(NAMESPACE_VARIABLE) or cluster.namespace


def open_dashboard(
    invocation: Invocation, address: str | None, written: str | None, *, or_inventory: bool = False
) -> DashboardClient:
    """Return a client for the cluster's dashboard; see `resolve_address`. It says on standard error when it waits.

    Token, headers and client certificate go only to an address that --address or FLEETCTL_ADDRESS names, or to this
    machine: `written` comes from a file, and its author may not own the token. Raises InventoryError for an address, a
    token, a header or a certificate that cannot be used.
    """
    environ = invocation.environ
    named = resolve_address(address, environ, written, or_inventory=or_inventory)
    given = bool(address or environ.get(ADDRESS_VARIABLE))
    access = find_access(environ, invocation.home).only_for_given(named, given=given)
    url = dashboard_url(named, without_token(environ) if access.withheld else environ,
                        on_waiting=lambda: invocation.say("note", f"waiting for {named} to answer"))
    return DashboardClient(url, access, on_waiting=lambda: invocation.say("note", f"waiting for {url} to answer"),
                           interrupts=invocation.interrupts)


def live_source(invocation: Invocation, where: Where, cluster: Cluster, *, or_inventory: bool = True) -> Live:
    """Return the cluster as the source of the inventory. The caller closes it."""
    client = open_dashboard(invocation, where.address, cluster.address, or_inventory=or_inventory)
    return Live(client, invocation.now(), resolve_namespace(where.namespace, invocation.environ, cluster))


def inventory_source(invocation: Invocation, where: Where, cluster: Cluster) -> InventorySource:
    """Return the source of the inventory: the document of --inventory, or else the cluster. The caller closes it."""
    if where.inventory:
        return Snapshot(where.inventory, stdin=invocation.stdin)
    return live_source(invocation, where, cluster)


def read_from(invocation: Invocation, where: Where, fleet: ResolvedFleet | None) -> Inventory:
    """Return the inventory that the flags and the fleet point to; it may be incomplete."""
    with closing(inventory_source(invocation, where, cluster_of(fleet))) as source:
        return read(invocation, source)


def read(invocation: Invocation, source: InventorySource) -> Inventory:
    """Return the inventory of the source, and show that it is being read."""
    with invocation.working("reading the cluster" if isinstance(source, Live) else "reading the inventory"):
        return read_inventory(source)


def read_world(
    invocation: Invocation, files: Sequence[str] | None, where: Where, adopt_from: str | None = None
) -> World:
    """Return the fleet and the inventory that a question is about; warnings of the inventory go to standard error."""
    from fleetctl.planner.questions.world import NO_FLEET, World  # NumPy

    fleet = fleet_of(invocation, files)
    seen = read_from(invocation, where, fleet)
    for warning in seen.warnings:
        invocation.say("warning", warning)
    return World(fleet or NO_FLEET, seen, adopt_from)
