"""What-if for a person: what was supposed, each model before and after, what would go where, what finds no place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.documents.quantity import count_of
from fleetctl.documents.what_if import Counts, ModelChange, WhatIf
from fleetctl.render.each_node_table import print_each_node
from fleetctl.render.place_text import ids_text, place_text
from fleetctl.render.plan_sections import Line
from fleetctl.render.remedy_text import remedy_lines
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible
from fleetctl.render.words import BESIDE_FROM, asked_of, some, with_note

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SIGNS = {"loseNode": "-", "cordon": "x", "addNode": "+", "scale": "~"}
PLACED_SHOWN, BLOCKED_SHOWN = 40, 20


def render_what_if(answer: WhatIf, console: Console) -> None:
    """Print the answer."""
    from rich.text import Text

    print_trimmed(Text(f"What if: {asked_of(answer.fleet, answer.inventory)}; nothing of this is done"), console)
    for change in answer.changes:
        print_trimmed(Text(f"  {SIGNS[change.op]} {visible(change.message)}"), console)
    if answer.changes:
        _print_models(answer, console)
        _print_lines("Would create", _placed(answer), console)
        _print_lines("No place for", _blocked(answer), console)
        console.print()
        for line in _summary(answer):
            print_trimmed(Text(line, "bold"), console)
    if answer.each_node is not None:
        console.print()
        print_each_node(answer.each_node, console)


def _print_models(answer: WhatIf, console: Console) -> None:
    from rich.text import Text

    moved = [row for row in answer.models if row.before != row.after]
    console.print()
    if moved:
        print_trimmed(_table(moved, beside=console.width >= BESIDE_FROM), console)
    same = len(answer.models) - len(moved)
    if same:
        print_trimmed(Text(f"= {count_of(same, 'model')} as today", "dim"), console)


def _table(rows: list[ModelChange], *, beside: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("MODEL", overflow="fold")
    for head in ("WANTED", "LIVE", "CREATE", "BLOCKED"):
        table.add_column(head, justify="right", no_wrap=True)
    if beside:
        table.add_column("LOST", overflow="fold")
    for row in rows:
        style = "red" if row.after.blocked > row.before.blocked else "green"
        cells = [_step(getattr(row.before, name), getattr(row.after, name)) for name in Counts.model_fields]
        key = Text(visible(row.key), style)
        if beside:
            table.add_row(key, *cells, Text(_fate(row) or "-"))
        else:
            table.add_row(with_note(key, f"lost {_fate(row)}" if row.lost else ""), *cells)
    return table


def _step(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} -> {after}"


def _fate(row: ModelChange) -> str:
    """Say what becomes of the lost replicas of one model."""
    if not row.lost:
        return ""
    parts = [f"{row.replaced} placed again" if row.replaced else "", f"{row.missing} without a place" if row.missing
             else "", f"{row.surplus} beyond the target" if row.surplus else ""]
    return f"{row.lost}: {', '.join(part for part in parts if part)}"


def _placed(answer: WhatIf) -> list[Line]:
    together: dict[tuple[str, str], list[int]] = {}
    for one in answer.created:
        together.setdefault((one.model, place_text(one.members)), []).append(one.replica_id)
    lines = [Line(f"+ {visible(model)}/{ids_text(ids)}: {place}{' (each)' if len(ids) > 1 else ''}", "green")
             for (model, place), ids in together.items()]
    return _cut(lines, PLACED_SHOWN)


def _blocked(answer: WhatIf) -> list[Line]:
    lines: list[Line] = []
    for blocked in answer.blocked[:BLOCKED_SHOWN]:
        replicas = count_of(blocked.replicas, "replica")
        lines.append(Line(f"! {visible(blocked.model)}: {replicas}, {blocked.code}", "red"))
        lines.append(Line(visible(blocked.message), indent=4))
        lines += [Line(text, "dim", 4) for text in remedy_lines(blocked)]
    rest = len(answer.blocked) - BLOCKED_SHOWN
    if rest > 0:
        lines.append(Line(f"and {count_of(rest, 'model')} more (--format json lists them)", "dim"))
    return lines


def _cut(lines: list[Line], most: int) -> list[Line]:
    rest = len(lines) - most
    return lines if rest <= 0 else [*lines[:most], Line(f"and {rest} more (--format json lists them)", "dim")]


def _print_lines(title: str, lines: list[Line], console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if not lines:
        return
    console.print()
    print_trimmed(Text(title, "bold"), console)
    for line in lines:
        print_trimmed(Padding(Text(line.text, line.style), (0, 0, 0, line.indent)), console)


def _summary(answer: WhatIf) -> list[str]:
    lines = []
    if answer.unmanaged_lost:
        lines.append(f"Not this fleet's, and gone with the nodes: {some(answer.unmanaged_lost)}")
    lost = sum(row.lost for row in answer.models)
    if lost:
        again, surplus, missing = (sum(getattr(row, name) for row in answer.models)
                                   for name in ("replaced", "surplus", "missing"))
        beyond = f", {surplus} beyond the target" if surplus else ""
        lines.append(f"Lost: {count_of(lost, 'replica')}; {again} placed again, {missing} without a place{beyond}")
    before, after = answer.before, answer.after
    lines.append(f"Today: {_counts(before)}. Then: {_counts(after)}")
    return lines


def _counts(counts: Counts) -> str:
    return f"{counts.live} live, {counts.create} to create, {counts.blocked} blocked"
