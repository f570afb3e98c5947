"""How an apply ended, a row per replica: what is ready and where it answers, what is not and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.events import Outcome, ReplicaOutcome
from fleetctl.render.replica_text import replica_name
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"ready": "green", "starting": "cyan", "failed": "bold red", "blocked": "yellow", "skipped": "yellow"}
ORDER: tuple[Outcome, ...] = ("ready", "starting", "failed", "blocked", "skipped")


def render_outcomes(outcomes: Sequence[ReplicaOutcome], console: Console, *, interrupted: bool = False) -> None:
    """Print the table, then one line of totals."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=False)
    for head in ("REPLICA", "OUTCOME", "NODES", "ADDRESS", "TIME"):
        table.add_column(head, overflow="fold", justify="right" if head == "TIME" else "left")
    for row in outcomes:
        table.add_row(
            Text(_name(row), "bold"), Text(row.outcome, STYLES[row.outcome]),
            Text(visible(", ".join(row.nodes)) or "-"), Text(visible(row.address or "-")),
            "-" if row.seconds is None else f"{row.seconds:.1f}s",
        )
    if outcomes:
        print_trimmed(table, console)
    for row in outcomes:
        if row.message and (row.outcome != "ready" or row.code):
            _print_reason(row, console)
    if outcomes:
        console.print()
    print_trimmed(Text(totals(outcomes, interrupted=interrupted), "bold"), console)


def totals(outcomes: Sequence[ReplicaOutcome], *, interrupted: bool = False) -> str:
    """Return the counts in one line; it never counts a removal because there is none."""
    counts: Counter[str] = Counter()
    for row in outcomes:
        counts[row.outcome] += row.replicas
    parts = [f"{counts[kind]} {kind}" for kind in ORDER if counts[kind]]
    head = "Apply, interrupted" if interrupted else "Apply"
    return f"{head}: {', '.join(parts) if parts else 'nothing to do'}, 0 removed"


def _name(row: ReplicaOutcome) -> str:
    """Name the replica; several that have no ids yet are the model with their count."""
    return replica_name(row.model, row.replica_id) + (f" (x{row.replicas})" if row.replicas > 1 else "")


def _print_reason(row: ReplicaOutcome, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print()
    head = Text.assemble((_name(row), "bold"), f" {row.outcome}", f" ({row.code})" if row.code else "")
    print_trimmed(head, console)
    print_trimmed(Padding(Text(visible_lines(row.message)), (0, 0, 0, 2)), console)
