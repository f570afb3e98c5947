"""Which cluster: the flag, then the environment, then the fleet file or the saved plan; and how to read it.

Environment, home folder and clock enter the program here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import InventoryError, UsageError

if TYPE_CHECKING:
    from fleetctl.documents.fleet import Cluster
    from fleetctl.fleetfile.resolved import ResolvedFleet
    from fleetctl.inventory.client import DashboardClient
    from fleetctl.inventory.read import InventorySource, Live

ADDRESS_VARIABLE = "FLEETCTL_ADDRESS"
NAMESPACE_VARIABLE = "FLEETCTL_NAMESPACE"


def fleet_of(files: Sequence[str] | None) -> ResolvedFleet | None:
    """Return the fleet in the files; None where no file is given. Raises FleetFileError when they have problems."""
    if not files:
        return None
    from fleetctl.fleetfile.load import load_fleet

    return load_fleet(files, stdin=read_stdin)


def cluster_of(files: Sequence[str] | None) -> Cluster:
    """Return what the fleet files say about the cluster, and the defaults where no file is given; see `fleet_of`."""
    from fleetctl.documents.fleet import Cluster

    fleet = fleet_of(files)
    return fleet.cluster if fleet else Cluster()


def resolve_address(
    flag: str | None, environ: Mapping[str, str], written: str | None, *, or_inventory: bool = False
) -> str:
    """Return the cluster's address as a person gave it: --address, FLEETCTL_ADDRESS, what the fleet or the plan says.

    Raises InventoryError, naming the ways to give one, when there is none; `or_inventory` = --inventory is one.
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


def open_dashboard(address: str | None, written: str | None, *, or_inventory: bool = False) -> DashboardClient:
    """Return a client for the cluster's dashboard; see `resolve_address`. It says on standard error when it waits.

    Token, headers and client certificate go only to an address that --address or FLEETCTL_ADDRESS names, or that stays
    on this machine: `written` is what a file says, and who wrote that may not be who owns the token. Raises
    InventoryError for an address, a token, a header or a certificate that cannot be used.
    """
    from fleetctl.cli import signals
    from fleetctl.inventory.access import find_access, without_token
    from fleetctl.inventory.address import dashboard_url
    from fleetctl.inventory.client import DashboardClient

    named = resolve_address(address, os.environ, written, or_inventory=or_inventory)
    given = bool(address or os.environ.get(ADDRESS_VARIABLE))
    access = find_access(os.environ, home_folder()).only_for_given(named, given=given)
    environ = without_token(os.environ) if access.withheld else os.environ
    url = dashboard_url(named, environ, on_waiting=lambda: _say_waiting(named))
    return DashboardClient(url, access, on_waiting=lambda: _say_waiting(url), interrupts=lambda: signals.received)


def _say_waiting(address: str) -> None:
    from fleetctl.cli.console import say

    say("note", f"waiting for {address} to answer")


def inventory_source(
    inventory: str | None, address: str | None, namespace: str | None, cluster: Cluster
) -> InventorySource:
    """Return where to read the inventory: the document `--inventory` names, or else the cluster. To be closed."""
    from fleetctl.inventory.read import Snapshot

    if inventory:
        return Snapshot(inventory, stdin=read_stdin)
    return live_source(address, namespace, cluster)


def live_source(address: str | None, namespace: str | None, cluster: Cluster) -> Live:
    """Return the cluster as where to read the inventory. To be closed."""
    from fleetctl.inventory.read import Live

    client = open_dashboard(address, cluster.address, or_inventory=True)
    return Live(client, now_text(), resolve_namespace(namespace, os.environ, cluster))


def refuse_two_readers(files: list[str], inventory: str | None) -> None:
    """Raise UsageError when standard input is to be read as more than one thing."""
    if [*files, inventory].count("-") > 1:
        raise UsageError("standard input can be read only once", hint="give `-` once, to --file or to --inventory")


def read_stdin() -> bytes:
    """Return all of standard input."""
    return sys.stdin.buffer.read()


def now_text() -> str:
    """Return the time now: RFC 3339, UTC, whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def home_folder() -> Path:
    """Return the home folder; one that does not exist where the user has none."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises in a container without a passwd entry
