"""`fleetctl logs MODEL/ID`: what a replica's engines wrote, while they start, while they run, and after their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import AddressOption, ClusterFilesOption, NamespaceOption
from fleetctl.cli.replica_argument import ReplicaArgument, absent, parse_replica

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory
    from fleetctl.inventory.client import DashboardClient
    from fleetctl.inventory.engine_log import LogRead, Search

EPILOG = epilog(
    examples=["fleetctl logs openai-community/gpt2/0", "fleetctl logs Qwen/Qwen3-Coder-480B/0 --rank 1 --tail 50"],
    exit_codes="0 shown, 1 error, something could not be read, or there is no such log, 64 usage",
)
SHOWN = 10

TailOption = Annotated[
    int, typer.Option("--tail", metavar="N", min=1, max=1_000_000, help="How many lines, from the end.")
]
GroupOption = Annotated[
    str | None, typer.Option("--group", metavar="NAME", show_default=False, help="Only this worker group.")
]
CopyOption = Annotated[int | None, typer.Option("--copy", metavar="N", show_default=False, help="Only this copy.")]
RankOption = Annotated[int | None, typer.Option("--rank", metavar="N", show_default=False, help="Only this rank.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("logs", epilog=EPILOG)(logs)


def logs(
    replica: ReplicaArgument,
    files: ClusterFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    tail: TailOption = 1000,
    group: GroupOption = None,
    copy: CopyOption = None,
    rank: RankOption = None,
) -> int:
    """Show what the engines of one replica wrote.

    Members come one after another. A replica that failed to start or was evicted keeps its log on its node as long as
    the cluster's session lives.
    """
    import os

    from fleetctl.cli.connect import cluster_of, now_text, open_dashboard, resolve_namespace
    from fleetctl.cli.console import say
    from fleetctl.errors import InventoryError
    from fleetctl.inventory.engine_log import read_log
    from fleetctl.inventory.read import Live, read_inventory

    model, replica_id = parse_replica(replica)
    cluster = cluster_of(files)
    space = resolve_namespace(namespace, os.environ, cluster)
    with open_dashboard(address, cluster.address) as client:
        seen = read_inventory(Live(client, now_text(), space))
        search = _find(client, seen, space, model, replica_id)
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
    from fleetctl.inventory.engine_log import Search, logs_of, search_logs

    listed = logs_of(seen, namespace, model, replica_id)
    return Search(tuple(listed)) if listed else search_logs(client, seen, namespace, model, replica_id)


def _show(found: list[LogRead]) -> bool:
    """Print each log, headed by its member where there are several; returns whether anything was there."""
    from fleetctl.cli.console import write_output_of_others, write_result
    from fleetctl.render.visible import visible

    # raylets that share a host serve the same file
    distinct = list(dict.fromkeys((one.log.label, one.data) for one in found if one.data is not None))
    for label, data in distinct:
        if len(distinct) > 1:
            write_result(f"==> {visible(label)} <==\n")
        write_output_of_others(data if data.endswith(b"\n") or not data else data + b"\n")
    return bool(distinct)


def _listed(failed: list[str]) -> list[str]:
    """Return what an error lists: a large cluster may fail in the same way on each node."""
    left_out = len(failed) - SHOWN
    return [*failed[:SHOWN], *([f"and {left_out} more"] if left_out > 0 else [])]
