"""Which cluster, and how to read it.

The flag, the environment, the named context, the fleet file or the saved plan, the current context; see `contexts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.documents.fleet import Cluster
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.label_selector import LabelSelector
from fleetctl.errors import InventoryError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.access import find_access, without_token
from fleetctl.inventory.address import dashboard_url
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.read import InventorySource, Live, Snapshot, read_inventory
from fleetctl.workflow.contexts import context_for, named_context, variables_of
from fleetctl.workflow.invocation import ADDRESS_VARIABLE, NAMESPACE_VARIABLE, Invocation, Where

if TYPE_CHECKING:
    from fleetctl.planner.questions.scenario import Scenario


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
    otherwise = "; or read a file: --inventory FILE" if or_inventory else ""
    raise InventoryError(
        "no cluster address",
        hint=f"give --address http://ray-head:8265 or --context NAME, or set {ADDRESS_VARIABLE}, or "
        f"spec.cluster.address in the fleet file{otherwise}",
    )


def given_address(invocation: Invocation, flag: str | None) -> str | None:
    """Return the address that the person gives: by --address, FLEETCTL_ADDRESS, or the name of a context."""
    address = flag or invocation.environ.get(ADDRESS_VARIABLE)
    return address or ((chosen := named_context(invocation)) and chosen.context.address) or None


def resolve_namespace(invocation: Invocation, where: Where, cluster: Cluster) -> str:
    """Return the Ray namespace of the replicas.

    --namespace, FLEETCTL_NAMESPACE, the named context, spec.cluster.namespace, the current context.
    """
    if given := where.namespace or invocation.environ.get(NAMESPACE_VARIABLE):
        return given
    chosen = context_for(invocation, where.address, cluster.address)
    counts = chosen and (chosen.named or "namespace" not in cluster.model_fields_set)
    return (chosen.context.namespace if chosen and counts else None) or cluster.namespace


def open_dashboard(
    invocation: Invocation, address: str | None, written: str | None, *, or_inventory: bool = False
) -> DashboardClient:
    """Return a client for the cluster's dashboard; see `resolve_address`. It says on standard error when it waits.

    Token, headers and client certificate go only to an address that --address, FLEETCTL_ADDRESS or a context names, or
    to this machine: `written` comes from a file, and its author may not own the token. Raises InventoryError for an
    address, a token, a header or a certificate that cannot be used.
    """
    chosen, environ = context_for(invocation, address, written), invocation.environ
    if chosen:
        environ = {**environ, **variables_of(chosen, environ)}
    elif invocation.context:
        by = "--address" if address else ADDRESS_VARIABLE
        invocation.say("warning", f"context {invocation.context} is not used: {by} names a cluster, and wins")
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
    return Live(client, invocation.now(), resolve_namespace(invocation, where, cluster))


def asking_about(source: InventorySource, fleet: ResolvedFleet | None) -> InventorySource:
    """Return a source that is also asked which weights are on the disks of the nodes that the fleet names."""
    cold = tuple(model.cold for model in fleet.models if model.cold is not None) if fleet else ()
    return replace(source, cold=cold) if cold and isinstance(source, Live) else source


def inventory_source(invocation: Invocation, where: Where, cluster: Cluster) -> InventorySource:
    """Return the source of the inventory: the document of --inventory, or else the cluster. The caller closes it."""
    if where.inventory:
        return Snapshot(where.inventory, stdin=invocation.stdin)
    return live_source(invocation, where, cluster)


def read_from(
    invocation: Invocation, where: Where, fleet: ResolvedFleet | None, *, ages: bool = False
) -> Inventory:
    """Return the inventory that the flags and the fleet point to; it may be incomplete."""
    with closing(inventory_source(invocation, where, cluster_of(fleet))) as source:
        return read(invocation, asking_about(source, fleet), ages=ages)


def read(invocation: Invocation, source: InventorySource, *, ages: bool = False) -> Inventory:
    """Return the inventory of the source, and show that it is being read; `ages` as for `read_inventory`."""
    with invocation.working("reading the cluster" if isinstance(source, Live) else "reading the inventory"):
        return read_inventory(source, ages=ages)


def read_scenario(
    invocation: Invocation, files: Sequence[str] | None, where: Where, adopt_from: str | None = None,
    selector: LabelSelector | None = None,
) -> Scenario:
    """Return the fleet and the inventory that a question is about; warnings of the inventory go to standard error.

    `selector` = the labels of the models to plan.
    """
    from fleetctl.planner.questions.scenario import NO_FLEET, Scenario  # NumPy

    fleet = fleet_of(invocation, files)
    seen = read_from(invocation, where, fleet)
    for warning in seen.warnings:
        invocation.say("warning", warning)
    return Scenario(fleet or NO_FLEET, seen, adopt_from, selector)
