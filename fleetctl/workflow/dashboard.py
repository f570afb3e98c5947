"""The dashboard of a command's cluster: its address, and the credentials for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from fleetctl.documents.fleet import Cluster
from fleetctl.errors import InventoryError
from fleetctl.inventory.access import dashboard_url, find_access, without_token
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.fetch import PLAIN_HTTP_VARIABLE, is_readable_by_others
from fleetctl.workflow.contexts import context_for, resolve_namespace, variables_of
from fleetctl.workflow.invocation import ADDRESS_VARIABLE, Invocation, Where


def resolve_address(
    flag: str | None, environ: Mapping[str, str], written: str | None, *, or_inventory: bool = False
) -> str:
    """Return the cluster's address: --address, FLEETCTL_ADDRESS (or that of the context), or that in the file or plan.

    Raises InventoryError, with the ways to give an address, if there is none; `or_inventory` = mention --inventory.
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


def open_dashboard(
    invocation: Invocation, address: str | None, written: str | None, *, or_inventory: bool = False
) -> DashboardClient:
    """Return a client for the cluster's dashboard; see `resolve_address`. Long waits are reported on standard error.

    Token, headers and client certificate go only to an address that --address, FLEETCTL_ADDRESS or a context names, or
    to this machine: `written` comes from a file, whose author may not own the token. Raises InventoryError for an
    unusable address, token, header or certificate.
    """
    chosen, environ = context_for(invocation, address, written), invocation.environ
    if chosen:
        environ = {**environ, **variables_of(chosen, environ)}
    elif invocation.context:
        invocation.say("warning", f"context {invocation.context} is not used: --address overrides it")
    named = resolve_address(address, environ, written, or_inventory=or_inventory)
    given = bool(address or environ.get(ADDRESS_VARIABLE))
    access = find_access(environ, invocation.home).only_for_given(named, given=given)
    url = dashboard_url(named, without_token(environ) if access.withheld else environ,
                        on_waiting=lambda: invocation.say("note", f"waiting for {named} to answer"))
    if access.secrets:
        warn_if_readable(invocation, url, access.secrets)
    return DashboardClient(url, access, on_waiting=lambda: invocation.say("note", f"waiting for {url} to answer"),
                           interrupts=invocation.interrupts, reads_only=invocation.reads_only)


def warn_if_readable(invocation: Invocation, url: str, secret: str) -> None:
    """Warn, once for each host, that `secret` crosses a network unencrypted on its way to `url`, if it does."""
    if not is_readable_by_others(url, invocation.environ.get(PLAIN_HTTP_VARIABLE, "")):
        return
    host = urlsplit(url).netloc.rpartition("@")[2]
    if host in invocation.warned:
        return
    invocation.warned.add(host)
    invocation.say("warning", f"sending {secret} to {host} over plain http: others on the network can read it")
    invocation.say("hint", "use an https:// address, which a proxy in front can have; if the network is trusted, list "
                           f"the host or its network in {PLAIN_HTTP_VARIABLE}")


@contextmanager
def live_source(
    invocation: Invocation, where: Where, cluster: Cluster, *, or_inventory: bool = False
) -> Iterator[Live]:
    """Yield the cluster as the source of the inventory; `or_inventory` as for `resolve_address`."""
    with open_dashboard(invocation, where.address, cluster.address, or_inventory=or_inventory) as client:
        yield Live(client, invocation.now, resolve_namespace(invocation, where, cluster))
