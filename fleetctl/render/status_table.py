"""What runs, a row per replica: is it ready, where is it, where does it answer, whose is it; and what is outdated."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.inventory import Replica
from fleetctl.documents.plan import Drift
from fleetctl.documents.quantity import format_share
from fleetctl.render.drift_text import alike, drift_details
from fleetctl.render.replica_text import STYLES, node_text, replica_name, standing_text, status_word
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

HEADS = ("REPLICA", "STATUS", "NODES", "GPUS", "ADDRESS", "FLEET", "NOTE")


def render_status(
    replicas: Sequence[Replica], node_names: Mapping[str, str], dead_nodes: frozenset[str], console: Console,
    outdated: Sequence[Drift] = (), surplus: Collection[str] = (),
) -> None:
    """Print one row per replica, what differs for those that are `outdated`, and a line of totals.

    `surplus` = models of which more runs than wanted.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    notes = any(replica.error for replica in replicas)
    for head in HEADS if notes else HEADS[:-1]:
        table.add_column(head, overflow="fold", justify="right" if head == "GPUS" else "left")
    old = {(one.model, one.replica_id) for one in outdated}
    counts: dict[str, int] = {}
    for replica in replicas:
        word = status_word(replica, dead_nodes)
        counts[word] = counts.get(word, 0) + 1
        first = next((member for member in replica.members if member.port), None)
        is_old = (replica.model, replica.replica_id) in old
        table.add_row(
            Text(replica_name(replica.model, replica.replica_id, replica.foreign_id), "bold"),
            Text.assemble((standing_text(replica, dead_nodes), STYLES[word]),
                          (", outdated" if is_old else "", "yellow")),
            Text(node_text(replica, node_names)),
            format_share(sum(member.gpus for member in replica.members)),
            Text(visible(f"{first.address}:{first.port}") if first else "-"),
            Text(visible(replica.fleet or "(unmanaged)")),
            *([Text(visible(replica.error or ""), "dim")] if notes else []),
        )
    if replicas:
        print_trimmed(table, console)
        console.print()
    _print_outdated(outdated, surplus, console)
    told = ", ".join(f"{count} {word}" for word, count in counts.items()) or "none"
    told += f"; {len(outdated)} outdated" if outdated else ""
    print_trimmed(Text(f"Replicas: {told}", "bold"), console)


def _print_outdated(outdated: Sequence[Drift], surplus: Collection[str], console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if not outdated:
        return
    print_trimmed(Text(f"Outdated: {len(outdated)} (reported, never acted on)", "bold"), console)
    for replicas, drift in alike(outdated):
        print_trimmed(Padding(Text(f"{visible(replicas)}: {visible(drift.message)}"), (0, 0, 0, 2)), console)
        for text in drift_details(drift, surplus):
            print_trimmed(Padding(Text(visible(text)), (0, 0, 0, 4)), console)
    console.print()
