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
    from fleetctl.inventory.engine_log import EngineLog

EPILOG = epilog(
    examples=["fleetctl logs openai-community/gpt2/0", "fleetctl logs Qwen/Qwen3-Coder-480B/0 --rank 1 --tail 50"],
    exit_codes="0 shown, 1 error, or there is no such log, 64 usage",
)

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
    from fleetctl.inventory.read import Live, read_inventory

    model, replica_id = parse_replica(replica)
    cluster = cluster_of(files)
    space = resolve_namespace(namespace, os.environ, cluster)
    with open_dashboard(address, cluster.address) as client:
        seen = read_inventory(Live(client, now_text(), space))
        found = [log for log in _find(client, seen, space, model, replica_id)
                 if group in (None, log.group) and copy in (None, log.copy_index) and rank in (None, log.rank)]
        shown = _show(client, found, tail)
    if not shown:
        raise absent(seen, f"there is no log of {replica}", hint="`fleetctl status` lists what runs")
    return 0


def _find(
    client: DashboardClient, seen: Inventory, namespace: str, model: str, replica_id: int
) -> list[EngineLog]:
    from fleetctl.inventory.engine_log import logs_of, search_logs

    return logs_of(seen, namespace, model, replica_id) or list(
        search_logs(client, seen, namespace, model, replica_id))


def _show(client: DashboardClient, found: list[EngineLog], tail: int) -> bool:
    """Print each log, headed by its member where there are several; returns whether anything was there."""
    from fleetctl.cli.console import write_result
    from fleetctl.inventory.engine_log import read_log

    texts = [(log.label, read_log(client, log, tail)) for log in found]
    # raylets that share a host serve the same file
    distinct = list(dict.fromkeys((label, text) for label, text in texts if text is not None))
    for label, text in distinct:
        if len(distinct) > 1:
            write_result(f"==> {label} <==\n")
        write_result(text if text.endswith("\n") or not text else text + "\n")
    return bool(distinct)
