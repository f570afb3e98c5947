"""The N-1 table for a person: what the loss of each node alone would cost; nodes with one answer share a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.quantity import count_of
from fleetctl.documents.what_if import LostModel, NodeLoss
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible
from fleetctl.render.words import BESIDE_FROM, some, with_note

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ROWS_SHOWN, NAMES_SHOWN, MODELS_SHOWN = 60, 4, 3


def print_each_node(losses: Sequence[NodeLoss], console: Console) -> None:
    """Print the table and what it comes to."""
    from rich.text import Text

    print_trimmed(Text("If one node is lost, with the plan applied", "bold"), console)
    holding = [loss for loss in losses if loss.models]
    if holding:
        print_trimmed(_table(holding[:ROWS_SHOWN], beside=console.width >= BESIDE_FROM), console)
    if len(holding) > ROWS_SHOWN:
        print_trimmed(Text(f"and {len(holding) - ROWS_SHOWN} more rows (--format json lists them)", "dim"), console)
    console.print()
    for line in _sentences(losses):
        print_trimmed(Text(line, "bold"), console)


def _table(losses: Sequence[NodeLoss], *, beside: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("NODE", overflow="fold")
    if beside:
        table.add_column("KIND", overflow="fold")
    for head in ("LOST", "AGAIN", "NO PLACE"):
        table.add_column(head, justify="right", no_wrap=True)
    if beside:
        table.add_column("WITHOUT A PLACE", overflow="fold")
    for loss in losses:
        lost, again, missing = (_sum(loss, name) for name in ("lost", "replaced", "missing"))
        style = "red" if missing else ""
        names, numbers = Text(some(loss.nodes, NAMES_SHOWN), style), (str(lost), str(again), str(missing or "-"))
        if beside:
            table.add_row(names, Text(visible(loss.hardware)), *numbers, Text(_without(loss)))
        else:
            table.add_row(with_note(names, _without(loss)), *numbers)
    return table


def _without(loss: NodeLoss) -> str:
    found = [model for model in loss.models if model.missing]
    if not found:
        surplus = _sum(loss, "surplus")
        return f"{surplus} beyond the target" if surplus else ""
    shown = "; ".join(_model(model) for model in found[:MODELS_SHOWN])
    rest = len(found) - MODELS_SHOWN
    return f"{shown}; and {count_of(rest, 'model')} more" if rest > 0 else shown


def _model(model: LostModel) -> str:
    return f"{model.missing} of {visible(model.model)}" + (f" ({model.code})" if model.code else "")


def _sentences(losses: Sequence[NodeLoss]) -> list[str]:
    nodes = sum(len(loss.nodes) for loss in losses)
    grave = sum(len(loss.nodes) for loss in losses if _sum(loss, "missing"))
    idle = sum(len(loss.nodes) for loss in losses if not loss.models)
    lines = [f"{count_of(idle, 'node')} hold{'s' if idle == 1 else ''} nothing of this fleet"] if idle else []
    if not nodes:
        lines.append("There is no node to lose")
    elif grave:
        lines.append(f"{grave} of {count_of(nodes, 'node')} cannot be lost without leaving something without a place")
    else:
        lines.append(f"Any one of the {count_of(nodes, 'node')} can be lost, and everything finds a place again")
    return lines


def _sum(loss: NodeLoss, name: str) -> int:
    return sum(getattr(model, name) for model in loss.models)
