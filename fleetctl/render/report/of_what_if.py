"""What-if as a report: the assumed changes, each model before and after, placements, and the loss of each node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.answers import Counts, LostModel, ModelChange, NodeLoss, WhatIf
from fleetctl.documents.quantity import count_of, first_few, some
from fleetctl.render.place_text import scope_text
from fleetctl.render.report.model import Column, Report, Table
from fleetctl.render.report.plan_tables import COUNTS, blocked_tables, growth_table, place_tables

SIGNS = {"loseNode": "-", "cordon": "x", "addNode": "+", "scale": "~"}
BESIDE_FROM = 76
LOSSES_SHOWN, NAMES_SHOWN, MODELS_SHOWN = 60, 4, 3

MODEL_ROW = (Column("sign", "", name=True), Column("model", "model", name=True), *COUNTS,
             Column("lost", "lost", terminal="beside"))
LOSS_ROW = (Column("node", "node", name=True), Column("hardware", "kind", terminal="beside"),
            Column("lostReplicas", "lost", numeric=True), Column("replaced", "re-placed", numeric=True),
            Column("missing", "unplaced", numeric=True), Column("without", "without a place", terminal="beside"))


def what_if_report(answer: WhatIf) -> Report:
    """Return the report of `what-if`."""
    changes = [f"  {SIGNS[change.op]} {change.message}" for change in answer.changes]
    tables = (_models(answer), *place_tables(answer.created), *blocked_tables(answer.blocked, "No place for"),
              growth_table(answer.growth))
    each, notes = answer.each_node, list(_notes(answer)) if answer.changes else []
    if each is not None:
        notes += _loss_notes(each)
    return Report(
        kind="answer",
        title="What if",
        heading=(f"What if: {scope_text(answer.fleet, answer.inventory)}; nothing is changed", *changes),
        tables=tuple(table for table in (*(tables if changes else ()), *([_losses(each)] if each else ()))
                     if table.rows),
        notes=tuple(notes[:-1]),
        conclusion=notes[-1] if notes else "")


def _models(answer: WhatIf) -> Table:
    rows = [("!" if row.after.blocked > row.before.blocked else "+", row.key,
             *(_step(getattr(row.before, one.key), getattr(row.after, one.key)) for one in COUNTS),
             _lost(row)) for row in answer.models if row.before != row.after]
    return Table("model", "Models", MODEL_ROW, tuple(rows), beside_from=BESIDE_FROM)


def _step(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} -> {after}"


def _lost(row: ModelChange) -> str:
    parts = [f"{count} {words}" for count, words in ((row.replaced, "placed again"), (row.missing, "without a place"),
                                                     (row.surplus, "beyond the target")) if count]
    return f"{row.lost} lost: {', '.join(parts)}" if row.lost else ""


def _notes(answer: WhatIf) -> Iterator[str]:
    same = sum(row.before == row.after for row in answer.models)
    if same:
        yield f"Not listed: {count_of(same, 'unchanged model')}"
    if answer.unmanaged_lost:
        yield f"Not this fleet's, but lost with the nodes: {some(answer.unmanaged_lost)}"
    lost, replaced, surplus, missing = (sum(getattr(row, name) for row in answer.models)
                                        for name in ("lost", "replaced", "surplus", "missing"))
    if lost:
        beyond = f", {surplus} beyond the target" if surplus else ""
        yield f"Lost: {count_of(lost, 'replica')}; {replaced} placed again, {missing} without a place{beyond}"
    yield f"Today: {_counts(answer.before)}. Then: {_counts(answer.after)}"


def _counts(counts: Counts) -> str:
    return (f"{counts.live} live, {counts.create} to create, {counts.blocked} blocked"
            + (f" ({counts.on_new_nodes} of them would run on new nodes)" if counts.on_new_nodes else ""))


def _losses(losses: Sequence[NodeLoss]) -> Table:
    """Return the cost of losing each node alone; nodes with the same cost share a row."""
    rows = [(some(loss.nodes, NAMES_SHOWN), loss.hardware,
             *(str(_sum(loss, name)) for name in ("lost", "replaced", "missing")), _without(loss))
            for loss in losses if loss.models]
    return Table("loss", "If one node is lost", LOSS_ROW, tuple(rows), beside_from=BESIDE_FROM, most=LOSSES_SHOWN,
                 note="If one node is lost, with the plan applied")


def _without(loss: NodeLoss) -> str:
    found = [f"{model.missing} of {model.model}{f' ({_why(model)})' if model.code else ''}"
             for model in loss.models if model.missing]
    if not found:
        surplus = _sum(loss, "surplus")
        return f"{surplus} beyond the target" if surplus else ""
    return "; ".join(first_few(found, MODELS_SHOWN))


def _why(model: LostModel) -> str:
    if not model.on_new_nodes:
        return str(model.code)
    some_of_them = f"{model.on_new_nodes} " if model.on_new_nodes < model.missing else ""
    return f"{model.code}; {some_of_them}would run on new nodes"


def _loss_notes(losses: Sequence[NodeLoss]) -> Iterator[str]:
    nodes = sum(len(loss.nodes) for loss in losses)
    critical = sum(len(loss.nodes) for loss in losses if _sum(loss, "missing"))
    unused = sum(len(loss.nodes) for loss in losses if not loss.models)
    if unused:
        yield f"{count_of(unused, 'node')} ha{'s' if unused == 1 else 've'} no replica of this fleet"
    if not nodes:
        yield "There are no nodes to lose"
    elif critical:
        yield f"{critical} of {count_of(nodes, 'node')} cannot be lost without leaving a replica without a place"
    else:
        yield f"Any one of the {count_of(nodes, 'node')} can be lost, and every replica can be placed again"


def _sum(loss: NodeLoss, name: str) -> int:
    return sum(getattr(model, name) for model in loss.models)
