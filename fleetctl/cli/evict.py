"""`fleetctl evict MODEL/ID`: the explicit verb that ends one replica. Asks first; apply never uses it."""

from __future__ import annotations

import os
from contextlib import closing

from fleetctl.apply.evict import run_evict
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import confirm, say, write_result
from fleetctl.cli.identity import new_job_id, starter
from fleetctl.cli.process import this_invocation
from fleetctl.cli.replica_argument import ReplicaArgument, absent, parse_replica
from fleetctl.documents.inventory import Inventory, Replica, dead_node_ids
from fleetctl.errors import FleetctlError, PolicyRefused
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.policy import policy_at, protecting
from fleetctl.render.replica_text import node_text, status_word
from fleetctl.render.visible import visible
from fleetctl.workflow.cluster import cluster_of, fleet_of, live_source, read
from fleetctl.workflow.invocation import Where

EPILOG = epilog(
    "fleetctl evict openai-community/gpt2/2",
    "fleetctl evict openai-community/gpt2/2 --yes",
    exit_codes="0 gone, 1 error, or there is no such replica of ours, 4 protected by the fleet's policy, 5 an "
               "apply is running, 64 usage")
app = command_app()


@app.command(epilog=EPILOG)
def evict(
    replica: ReplicaArgument,
    files: flags.ClusterFiles = None,
    address: flags.Address = None,
    namespace: flags.Namespace = None,
    yes: flags.Yes = False,
    lock_timeout: flags.LockTimeout = 0,
) -> int:
    """End one replica permanently, and no other.

    Requests in flight are cut off. If the fleet file still wants it, the next apply starts a new one.
    """
    model, replica_id = parse_replica(replica)
    invocation = this_invocation()
    fleet = fleet_of(invocation, files)
    _refuse_protected(fleet, model, replica)
    where = Where(None, address, namespace)
    with closing(live_source(invocation, where, cluster_of(fleet), or_inventory=False)) as source:
        seen = read(invocation, source)
        found = _ours(seen, model, replica_id, replica)
        if not confirm(f"End {replica} ({_describe(found, seen)})?", yes=yes):
            say("note", "nothing was done")
            return 1
        job = new_job_id("evict")
        with invocation.working(f"ending {replica}"):
            message = run_evict(source.client, found.fleet or "", source.namespace, (model, replica_id), job,
                                starter(os.environ), lock_timeout)
    write_result(message + "\n")
    return 0


def _refuse_protected(fleet: ResolvedFleet | None, model: str, name: str) -> None:
    """Raise PolicyRefused when the fleet file that was given protects the model."""
    pattern = protecting(fleet.policy.protected_models, model) if fleet else None
    if fleet and pattern is not None:
        raise PolicyRefused(f"{name} stays: {policy_at(fleet, 'protectedModels', pattern)} protects it",
                            hint="no flag lifts this; change spec.policy in a review of its own")


def _ours(seen: Inventory, model: str, replica_id: int, name: str) -> Replica:
    """Return the managed replica of that name.

    Raises FleetctlError when there is none or no fleet started it, InventoryError when the inventory is incomplete.
    """
    for replica in seen.replicas:
        if replica.model == model and replica.replica_id == replica_id:
            if replica.fleet is None:
                raise FleetctlError(f"{name} has no fleet's mark: fleetctl did not start it and does not end it")
            return replica
    raise absent(seen, f"there is no {name}", hint="`fleetctl status` lists what runs")


def _describe(replica: Replica, seen: Inventory) -> str:
    nodes = node_text(replica, {node.id: node.name for node in seen.nodes})
    return f"fleet {visible(replica.fleet or '')}, {status_word(replica, dead_node_ids(seen))}, on {nodes}"
