"""`fleetctl evict`: the explicit verb that ends the named replicas. Asks first; apply never uses it."""

from __future__ import annotations

from shlex import quote
from typing import Annotated, Literal

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.explicit import DrainTime, Wanted, carry_out, refuse_protected
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.cli.replica_argument import ReplicaArguments, ReplicaId, absent, named_replicas
from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.errors import UsageError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.render.place_text import replica_name
from fleetctl.workflow.cluster import cluster_of, fleet_of, read
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.warm_budget import rooms_for

app = command_app(
    "fleetctl evict openai-community/gpt2/2",
    "fleetctl evict openai-community/gpt2/1 openai-community/gpt2/2 --drain 30s",
    "fleetctl evict openai-community/gpt2 --dry-run   # all its replicas",
    "fleetctl evict openai-community/gpt2/1 --to warm # keep the weights",
    "fleetctl evict --all -f fleets/prod.yaml         # all of the fleet",
    exit_codes="0 gone, 1 error, or no such replica of ours, 3 some are not gone, 4 protected by the fleet's "
               "policy, 5 another run holds the lock, 64 usage")

LEVELS: dict[str, Literal["WARM", "COLD"]] = {"warm": "WARM", "cold": "COLD"}


@app.command()
def evict(
    *,
    replicas: ReplicaArguments = None,
    replica_id: ReplicaId = None,
    every: Annotated[bool, typer.Option("--all", help="End all replicas of the fleet in -f.")] = False,
    files: flags.ClusterFiles = None,
    where: flags.Cluster,
    drain: DrainTime = 0,
    dry_run: flags.DryRun = False,
    yes: flags.Yes = False,
    to: Annotated[Literal["warm", "cold"] | None, typer.Option("--to", case_sensitive=False, help=(
        "Keep the weights: warm = in memory on the same nodes, as a WARM replica with the same id and without GPUs; "
        "cold = on the disks of the nodes."))] = None,
    lock_timeout: flags.LockTimeout = 0,
    output_format: flags.Format = "table",
) -> int:
    """End the named replicas, and no others.

    Returns once their engines are gone and their cards are free. Requests in flight are cut off unless they end within
    --drain. The next apply starts again what the fleet file still wants. With -f, models that its policy protects are
    refused. With --to, a replica that cannot go to that level stays as it is.
    """
    if replicas and every:
        raise UsageError("--all ends all replicas of a fleet, and takes no names",
                         hint=f"`fleetctl evict {quote(replicas[0])}` ends that replica, or all of that model")
    if bool(replicas) == every or (every and replica_id is not None):
        raise UsageError("name the replicas to end", hint="write MODEL/ID or MODEL, or --all -f FLEET")
    if every and not files:
        raise UsageError("--all needs -f FLEET, and ends the replicas of that fleet only")
    invocation = invocation_on_one_cluster(where.address)
    fleet = fleet_of(invocation, files)
    with live_source(invocation, where, cluster_of(fleet)) as source:
        seen = read(invocation, source)
        chosen = _all_of(seen, fleet) if every and fleet else named_replicas(
            seen, replicas or (), replica_id, fleet.name if fleet else None)
        refuse_protected(fleet, chosen)
        if to == "warm":
            for one in (one for one in chosen if one.level == "WARM"):
                say("note", f"{replica_name(one.model, one.replica_id)} is already WARM")
            chosen = [one for one in chosen if one.level == "HOT"]
            if not chosen:
                return 0
        rooms = rooms_for(seen, chosen, fleet.policies if fleet else ()) if to == "warm" else []
        level = LEVELS[to] if to else None
        wanted = Wanted("evict", f"Evict to {level}" if level else "End", yes, dry_run, output_format, lock_timeout,
                        drain, level=level, rooms=rooms)
        return carry_out(wanted, source, seen, chosen, fleet)


def _all_of(seen: Inventory, fleet: ResolvedFleet) -> list[Replica]:
    found = [replica for replica in seen.replicas if replica.fleet == fleet.name and replica.replica_id is not None]
    if not found:
        raise absent(seen, f"no replica of fleet {fleet.name} runs", hint="`fleetctl status` lists what runs")
    return found
