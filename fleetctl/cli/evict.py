"""`fleetctl evict MODEL/ID`: the explicit verb that takes one replica away. Asks first; apply never comes here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import AddressOption, ClusterFilesOption, LockTimeoutOption, NamespaceOption, YesOption
from fleetctl.cli.replica_argument import ReplicaArgument, absent, parse_replica

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory, Replica
    from fleetctl.fleetfile.resolved import ResolvedFleet

EPILOG = epilog(
    examples=["fleetctl evict openai-community/gpt2/2", "fleetctl evict openai-community/gpt2/2 --yes"],
    exit_codes="0 gone, 1 error, or there is no such replica of ours, 4 protected by the fleet's policy,\n"
               "  5 an apply is running, 64 usage",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evict", epilog=EPILOG)(evict)


def evict(
    replica: ReplicaArgument,
    files: ClusterFilesOption = None,
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
    from fleetctl.cli.connect import fleet_of, now_text, open_dashboard, resolve_namespace
    from fleetctl.cli.console import confirm, say, write_result
    from fleetctl.cli.who import new_job_id, who
    from fleetctl.documents.fleet import Cluster
    from fleetctl.inventory.read import Live, read_inventory

    model, replica_id = parse_replica(replica)
    fleet = fleet_of(files)
    _refuse_protected(fleet, model, replica)
    cluster = fleet.cluster if fleet else Cluster()
    space = resolve_namespace(namespace, os.environ, cluster)
    with open_dashboard(address, cluster.address) as client:
        seen = read_inventory(Live(client, now_text(), space))
        found = _ours(seen, model, replica_id, replica)
        if not confirm(f"End {replica} ({_describe(found, seen)})?", yes=yes):
            say("note", "nothing was done")
            return 1
        job = new_job_id("evict")
        said = run_evict(client, found.fleet or "", space, (model, replica_id), job, who(), lock_timeout)
    write_result(said + "\n")
    return 0


def _refuse_protected(fleet: ResolvedFleet | None, model: str, name: str) -> None:
    """Raise PolicyRefused when the fleet file that was given protects the model."""
    from fleetctl.errors import PolicyRefused
    from fleetctl.planner.policy import policy_at, protecting

    pattern = protecting(fleet.policy.protected_models, model) if fleet else None
    if fleet and pattern is not None:
        raise PolicyRefused(f"{name} stays: {policy_at(fleet, 'protectedModels', pattern)} protects it",
                            hint="no flag lifts this; change spec.policy in a review of its own")


def _ours(seen: Inventory, model: str, replica_id: int, name: str) -> Replica:
    """Return the managed replica of that name.

    Raises FleetctlError when there is none or it is not ours to end, InventoryError when nobody knows.
    """
    from fleetctl.errors import FleetctlError

    for replica in seen.replicas:
        if replica.model == model and replica.replica_id == replica_id:
            if replica.fleet is None:
                raise FleetctlError(f"{name} carries no fleet's mark: fleetctl did not start it and does not end it")
            return replica
    raise absent(seen, f"there is no {name}", hint="`fleetctl status` lists what runs")


def _describe(replica: Replica, seen: Inventory) -> str:
    from fleetctl.documents.inventory import dead_node_ids
    from fleetctl.render.replica_text import node_text, status_word
    from fleetctl.render.visible import visible

    nodes = node_text(replica, {node.id: node.name for node in seen.nodes})
    return f"fleet {visible(replica.fleet or '')}, {status_word(replica, dead_node_ids(seen))}, on {nodes}"
