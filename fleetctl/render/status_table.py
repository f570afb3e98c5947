"""What runs, a row per replica: is it ready, where is it, where does it answer, whose is it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.inventory import Replica
from fleetctl.documents.quantity import format_share
from fleetctl.render.replica_text import STYLES, node_text, replica_name, status_word
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

def render_status(
    replicas: Sequence[Replica], node_names: Mapping[str, str], dead_nodes: frozenset[str], console: Console
) -> None:
    """Print one row per replica and a line of totals."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in ("REPLICA", "STATUS", "NODES", "GPUS", "ADDRESS", "FLEET", "NOTE"):
        table.add_column(head, overflow="fold", justify="right" if head == "GPUS" else "left")
    counts: dict[str, int] = {}
    for replica in replicas:
        word = status_word(replica, dead_nodes)
        counts[word] = counts.get(word, 0) + 1
        first = next((member for member in replica.members if member.port), None)
        table.add_row(
            Text(replica_name(replica.model, replica.replica_id, replica.foreign_id), "bold"),
            Text(word, STYLES[word]), Text(node_text(replica, node_names)),
            format_share(sum(member.gpus for member in replica.members)),
            Text(visible(f"{first.address}:{first.port}") if first else "-"),
            Text(visible(replica.fleet or "(unmanaged)")), Text(visible(replica.error or ""), "dim"),
        )
    if replicas:
        print_trimmed(table, console)
        console.print()
    told = ", ".join(f"{count} {word}" for word, count in counts.items()) or "none"
    print_trimmed(Text(f"Replicas: {told}", "bold"), console)
