"""`fleetctl evict MODEL/ID`: the explicit verb that takes one replica away. Asks first; apply never comes here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.inventory import FleetFilesOption
from fleetctl.cli.options import AddressOption, LockTimeoutOption, NamespaceOption, YesOption
from fleetctl.cli.replica_argument import ReplicaArgument, parse_replica

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory, Replica

EPILOG = epilog(
    examples=["fleetctl evict openai-community/gpt2/2", "fleetctl evict openai-community/gpt2/2 --yes"],
    exit_codes="0 gone, 1 error, or there is no such replica of ours, 5 an apply is running, 64 usage",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evict", epilog=EPILOG)(evict)


def evict(
    replica: ReplicaArgument,
    files: FleetFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    yes: YesOption = False,
    lock_timeout: LockTimeoutOption = 0,
) -> int:
    """End one replica for good, and only that one.

    Requests in flight are cut off. If the fleet file still wants it, the next apply starts a new one.
    """
    import os

    from fleetctl.apply.evict import run_evict
    from fleetctl.cli.connect import now_text, open_dashboard, read_stdin, resolve_namespace
    from fleetctl.cli.console import confirm, say, write_result
    from fleetctl.cli.who import new_job_id, who
    from fleetctl.inventory.read import Live, read_inventory

    model, replica_id = parse_replica(replica)
    cluster = None
    if files:
        from fleetctl.spec.load import load_fleet

        cluster = load_fleet(files, stdin=read_stdin).cluster
    client, space = open_dashboard(address, cluster), resolve_namespace(namespace, os.environ, cluster)
    seen = read_inventory(Live(client, now_text(), space))
    found = _ours(seen, model, replica_id, replica)
    if not confirm(f"End {replica} ({_describe(found, seen)})?", yes=yes):
        say("note", "nothing was done")
        return 1
    said = run_evict(client, found.fleet or "", space, (model, replica_id), new_job_id("evict"), who(), lock_timeout)
    write_result(said + "\n")
    return 0


def _ours(seen: Inventory, model: str, replica_id: int, name: str) -> Replica:
    """Return the managed replica of that name; raises FleetctlError when there is none or it is not ours to end."""
    from fleetctl.errors import FleetctlError

    for replica in seen.replicas:
        if replica.model == model and replica.replica_id == replica_id:
            if replica.fleet is None:
                raise FleetctlError(f"{name} carries no fleet's mark: fleetctl did not start it and does not end it")
            return replica
    raise FleetctlError(f"there is no {name}", hint="`fleetctl status` lists what runs")


def _describe(replica: Replica, seen: Inventory) -> str:
    names = {node.id: node.name for node in seen.nodes}
    nodes = dict.fromkeys(names.get(member.node_id or "", "?") for member in replica.members)
    return f"fleet {replica.fleet}, {replica.state}, on {', '.join(nodes) or 'no node'}"
