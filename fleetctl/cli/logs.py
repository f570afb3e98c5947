"""`fleetctl logs MODEL/ID`: what a replica's engines wrote, while they start, while they run, and after their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.inventory import FleetFilesOption
from fleetctl.cli.options import AddressOption, NamespaceOption
from fleetctl.cli.replica_argument import ReplicaArgument, parse_replica

if TYPE_CHECKING:
    from fleetctl.apply.engine_log import EngineLog
    from fleetctl.documents.fleet import Cluster
    from fleetctl.inventory.client import DashboardClient

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
    files: FleetFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    tail: TailOption = 1000,
    group: GroupOption = None,
    copy: CopyOption = None,
    rank: RankOption = None,
) -> int:
    """Show what the engines of one replica wrote, members one after another.

    A replica that failed to start or was evicted keeps its log on its node as long as the cluster's session lives.
    """
    import os

    from fleetctl.cli.connect import open_dashboard, resolve_namespace
    from fleetctl.errors import FleetctlError

    model, replica_id = parse_replica(replica)
    cluster = _cluster(files)
    client = open_dashboard(address, cluster)
    found = [log for log in _find(client, model, replica_id, resolve_namespace(namespace, os.environ, cluster))
             if group in (None, log.group) and copy in (None, log.copy_index) and rank in (None, log.rank)]
    if not _show(client, found, tail):
        raise FleetctlError(f"there is no log of {replica}", hint="`fleetctl status` lists what runs")
    return 0


def _cluster(files: list[str] | None) -> Cluster | None:
    if not files:
        return None
    from fleetctl.cli.connect import read_stdin
    from fleetctl.spec.load import load_fleet

    return load_fleet(files, stdin=read_stdin).cluster


def _find(client: DashboardClient, model: str, replica_id: int, namespace: str) -> list[EngineLog]:
    from fleetctl.apply.engine_log import logs_of, search_logs
    from fleetctl.cli.connect import now_text
    from fleetctl.inventory.read import Live, read_inventory

    seen = read_inventory(Live(client, now_text(), namespace))
    return logs_of(seen, namespace, model, replica_id) or list(
        search_logs(client, seen, namespace, model, replica_id))


def _show(client: DashboardClient, found: list[EngineLog], tail: int) -> bool:
    """Print each log, headed by its member where there are several; returns whether anything was there."""
    from fleetctl.apply.engine_log import read_log
    from fleetctl.cli.console import write_result

    texts = [(log.label, read_log(client, log, tail)) for log in found]
    # raylets that share a host serve the same file
    distinct = list(dict.fromkeys((label, text) for label, text in texts if text is not None))
    for label, text in distinct:
        if len(distinct) > 1:
            write_result(f"==> {label} <==\n")
        write_result(text if text.endswith("\n") or not text else text + "\n")
    return bool(distinct)
