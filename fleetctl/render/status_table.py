"""What runs, a row per replica: is it ready, where is it, where does it answer, whose is it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.inventory import Replica
from fleetctl.documents.quantity import format_share
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

WORDS = {
    "ALIVE": ("ready", "green"), "PENDING_CREATION": ("starting", "cyan"), "DEPENDENCIES_UNREADY": ("starting", "cyan"),
    "RESTARTING": ("restarting", "yellow"), "DEAD": ("dead", "red"),
}


def status_word(replica: Replica, dead_nodes: frozenset[str]) -> str:
    """Return ready, starting, restarting, lost or dead."""
    if any(member.node_id in dead_nodes for member in replica.members):
        return "lost"
    return WORDS[replica.state][0]


def render_status(
    replicas: Sequence[Replica], node_names: Mapping[str, str], dead_nodes: frozenset[str], console: Console
) -> None:
    """Print one row per replica and a line of totals."""
    from rich.table import Table
    from rich.text import Text

    styles = dict(WORDS.values()) | {"lost": "bold red"}
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in ("REPLICA", "STATUS", "NODES", "GPUS", "ADDRESS", "FLEET", "NOTE"):
        table.add_column(head, overflow="fold", justify="right" if head == "GPUS" else "left")
    counts: dict[str, int] = {}
    for replica in replicas:
        word = status_word(replica, dead_nodes)
        counts[word] = counts.get(word, 0) + 1
        nodes = dict.fromkeys(node_names.get(member.node_id or "", member.node_id or "?") for member in replica.members)
        first = next((member for member in replica.members if member.port), None)
        table.add_row(
            Text(replica_name(replica), "bold"), Text(word, styles[word]), Text(visible(", ".join(nodes)) or "-"),
            format_share(sum(member.gpus for member in replica.members)),
            Text(visible(f"{first.address}:{first.port}") if first else "-"),
            Text(visible(replica.fleet or "(unmanaged)")), Text(visible(replica.error or ""), "dim"),
        )
    if replicas:
        print_trimmed(table, console)
        console.print()
    told = ", ".join(f"{count} {word}" for word, count in counts.items()) or "none"
    print_trimmed(Text(f"Replicas: {told}", "bold"), console)


def replica_name(replica: Replica) -> str:
    """Return `model/id`, or the actor's own name where it is not in our scheme."""
    if replica.replica_id is None:
        return visible(replica.foreign_id or replica.model)
    return visible(f"{replica.model}/{replica.replica_id}")
