"""`fleetctl restart`: the explicit verb that restarts engines in place, one replica after another."""

from __future__ import annotations

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.explicit import Wanted, carry_out, refuse_protected
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.cli.replica_argument import ReplicaArguments, ReplicaId, named_replicas
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.workflow.cluster import cluster_of, fleet_of, read
from fleetctl.workflow.dashboard import live_source

app = command_app(
    "fleetctl restart openai-community/gpt2/2",
    "fleetctl restart openai-community/gpt2   # all its replicas",
    exit_codes="0 all are ready again, 1 error, or no such replica of ours, 3 some are not ready, 4 protected by the "
               "fleet's policy, 5 another restart runs, 64 usage")


@app.command()
def restart(
    *,
    replicas: ReplicaArguments = None,
    replica_id: ReplicaId = None,
    files: flags.ClusterFiles = None,
    where: flags.Cluster,
    dry_run: flags.DryRun = False,
    yes: flags.Yes = False,
    lock_timeout: flags.LockTimeout = 0,
    output_format: flags.Format = "table",
) -> int:
    """Restart engines in place, one replica after another.

    Id, nodes and spec stay; `fleetctl replace` changes the spec. Each replica is ready before the next is restarted;
    the first that does not become ready ends the command. A restart counts toward the limit of the model
    (`restart.max`); a replica with none left is refused. With -f, models that its policy protects are refused.
    """
    if not replicas:
        raise UsageError("name the replicas to restart", hint="write MODEL/ID or MODEL")
    invocation = invocation_on_one_cluster(where.address)
    fleet = fleet_of(invocation, files)
    with live_source(invocation, where, cluster_of(fleet)) as source:
        seen = read(invocation, source)
        named = named_replicas(seen, replicas, replica_id, fleet.name if fleet else None)
        chosen = [one for one in named if one.level == "HOT"]
        if not chosen:
            raise FleetctlError("a WARM replica has no engine", hint="the next apply promotes it if it is wanted")
        refuse_protected(fleet, chosen)
        wanted = Wanted("restart", "Restart", yes, dry_run, output_format, lock_timeout)
        return carry_out(wanted, source, seen, chosen, fleet)
