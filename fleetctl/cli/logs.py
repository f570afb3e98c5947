"""`fleetctl logs MODEL/ID`: the output of a replica's engines, as they start, as they run, and after their end."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import say, write_output_of_others, write_result
from fleetctl.cli.process import this_invocation
from fleetctl.cli.replica_argument import ReplicaArgument, absent, parse_replica
from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import LogRead, Search, logs_of, read_log, search_logs
from fleetctl.render.visible import visible
from fleetctl.workflow.cluster import cluster_of, fleet_of, live_source, read
from fleetctl.workflow.invocation import Where

EPILOG = epilog(
    "fleetctl logs openai-community/gpt2/0",
    "fleetctl logs Qwen/Qwen3-Coder-480B/0 --rank 1 --tail 50",
    exit_codes="0 shown, 1 error, something could not be read, or there is no such log, 64 usage")
SHOWN = 10

TailOption = Annotated[
    int, typer.Option("--tail", metavar="N", min=1, max=1_000_000, help="Show this many lines, from the end.")
]
GroupOption = Annotated[str | None, flags.option("--group", metavar="NAME", help="Only this worker group.")]
CopyOption = Annotated[int | None, flags.option("--copy", metavar="N", help="Only this copy.")]
RankOption = Annotated[int | None, flags.option("--rank", metavar="N", help="Only this rank.")]
app = command_app()


@app.command(epilog=EPILOG)
def logs(
    replica: ReplicaArgument,
    files: flags.ClusterFiles = None,
    address: flags.Address = None,
    namespace: flags.Namespace = None,
    tail: TailOption = 1000,
    group: GroupOption = None,
    copy: CopyOption = None,
    rank: RankOption = None,
) -> int:
    """Show the output of one replica's engines.

    Members are shown one after another. The log of a replica that failed to start or was evicted stays on its node as
    long as the cluster's session lives.
    """
    model, replica_id = parse_replica(replica)
    invocation = this_invocation()
    cluster = cluster_of(fleet_of(invocation, files))
    with closing(live_source(invocation, Where(None, address, namespace), cluster, or_inventory=False)) as source:
        client, seen = source.client, read(invocation, source)
        search = _find(client, seen, source.namespace, model, replica_id)
        chosen = [log for log in search.logs
                  if group in (None, log.group) and copy in (None, log.copy_index) and rank in (None, log.rank)]
        found = [read_log(client, log, tail) for log in chosen]
    failed = [*(f"node {failure}" for failure in search.failed),
              *(f"{one.log.label}: {failure}" for one in found for failure in one.failed)]
    if _show(found):
        for failure in _listed(failed):
            say("warning", f"not everything could be read: {failure}")
        return 1 if failed else 0
    if failed:
        raise InventoryError(f"the log of {replica} cannot be read: {'; '.join(_listed(failed))}",
                             hint="the dashboard asks an agent on each node for its logs; look at its own log there")
    raise absent(seen, f"there is no log of {replica}", hint="`fleetctl status` lists what runs")


def _find(client: DashboardClient, seen: Inventory, namespace: str, model: str, replica_id: int) -> Search:
    listed = logs_of(seen, namespace, model, replica_id)
    return Search(tuple(listed)) if listed else search_logs(client, seen, namespace, model, replica_id)


def _show(found: list[LogRead]) -> bool:
    """Print each log, headed by its member where there are several; return whether there is any."""
    # raylets that share a host serve the same file
    distinct = list(dict.fromkeys((one.log.label, one.data) for one in found if one.data is not None))
    for label, data in distinct:
        if len(distinct) > 1:
            write_result(f"==> {visible(label)} <==\n")
        write_output_of_others(data if data.endswith(b"\n") or not data else data + b"\n")
    return bool(distinct)


def _listed(failed: list[str]) -> list[str]:
    """Return the failures an error lists: a large cluster may fail in the same way on each node."""
    left_out = len(failed) - SHOWN
    return [*failed[:SHOWN], *([f"and {left_out} more"] if left_out > 0 else [])]
