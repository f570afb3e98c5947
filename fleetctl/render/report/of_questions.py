"""Answers of the planner as reports. Capacity: a row per model or shape, then where the replicas fit and what prevents
one more. What-if: the assumed changes, each model before and after, placements, and the loss of each node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.answers import Capacity, CapacityRow, Counts, EqualNodes, NodeLoss, PriceChange, Room, WhatIf
from fleetctl.documents.quantity import count_of, first_few, format_price, in_a_row, some
from fleetctl.render.replica_text import scope_text
from fleetctl.render.report.model import MODEL, WHY, Column, Report, Table
from fleetctl.render.report.of_blocked import blocked_tables
from fleetctl.render.report.of_plan import COUNTS, growth_table, place_tables, without_price

QUOTA = "QUOTA"
PLACES_SHOWN = 6
"""The most lines of `where` per model if there are several models; a single model is shown in full."""

DETAILS_SHOWN = 20
"""The most models for which more than the numbers is shown."""

BESIDE_FROM = 76
DETAIL_ROW = (MODEL, Column("sentence", "how many"), Column("where", "where"))
SIGNS = {"loseNode": "-", "cordon": "x", "addNode": "+", "scale": "~"}
LOSSES_SHOWN, NAMES_SHOWN, MODELS_SHOWN = 60, 4, 3
MODEL_ROW = (Column("sign", "", name=True), MODEL, *COUNTS,
             Column("lost", "lost", terminal="beside"))
LOSS_ROW = (Column("node", "node", name=True), Column("hardware", "kind", terminal="beside"),
            Column("lostReplicas", "lost", numeric=True), Column("replaced", "re-placed", numeric=True),
            Column("missing", "unplaced", numeric=True), Column("without", "without a place", terminal="beside"))
OTHER = Column("otherVariant", "as another variant", terminal="beside")


def capacity_report(answer: Capacity) -> Report:
    """Return the report of `capacity`."""
    rows = answer.rows
    # the details describe the room with new nodes, else after the plan, else now
    named = [(f"{row.model or row.shape or ''}{f' as {row.variant}' if row.variant else ''}", row,
              row.with_new_nodes or row.after_plan or row.now) for row in rows]
    name = "model" if any(row.model for row in rows) else "shape"
    columns = (
        Column(name, name, name=True), Column("need", "one replica takes", terminal="beside"),
        Column("now", "fits now", numeric=True),
        Column("afterPlan", "after plan", numeric=True, terminal="always" if answer.fleet is not None else "never"),
        Column("withNewNodes", "new nodes", numeric=True,
               terminal="always" if any(row.with_new_nodes for row in rows) else "never"),
        Column("atMost", "at most", numeric=True))
    numbers = [(key, row.need, _number(row.now), _number(row.after_plan or row.now), _number(last),
                "-" if last.capped else str(last.at_most))
               for key, row, last in named]
    tables = [Table("capacity", "Capacity", columns, tuple(numbers), beside_from=BESIDE_FROM)] if rows else []
    if 0 < len(rows) <= DETAILS_SHOWN:
        details = [(key, _sentence(row, last), tuple(_places(last, answer))) for key, row, last in named]
        tables.append(Table("where", "Where, and what prevents one more", DETAIL_ROW, tuple(details),
                            line="{model}: {sentence}"))
    notes = [] if rows else ["The fleet has no models; --shape counts a shape of your own."]
    if len(rows) > 1:
        notes.append("Each row is counted separately, but all rows share the same room."
                     + (" The first row of a model with variants is of all its variants together."
                        if any(row.variant for row in rows) else ""))
    if len(rows) > DETAILS_SHOWN:
        notes.append("--model MODEL shows where, and what prevents one more; --format json has everything.")
    return Report(
        kind="answer",
        title="Capacity",
        heading=(f"Capacity: {scope_text(answer.fleet, answer.inventory)}",),
        tables=tuple(tables),
        notes=tuple(notes),
        conclusion="")


def _number(room: Room) -> str:
    return f"{room.fits}+" if room.capped else str(room.fits)


def _sentence(row: CapacityRow, room: Room) -> str:
    context = ""
    if row.after_plan is not None:
        context = f" alongside the plan's {row.create} new" if row.create else " after the plan"
    if row.with_new_nodes:
        context += " with all new nodes that may be added"
    if not room.at_most:
        return f"a quota allows no more{context}" if room.code == QUOTA else f"no more fit{context}"
    if room.code == QUOTA:
        proof = "and a quota allows no more"
    elif room.status == "optimal":
        proof = "and no placement holds more"
    elif room.capped:
        proof = "or more"
    else:
        proof = f"and no placement holds more than {room.at_most}"
    return f"{room.fits} more fit{'s' if room.fits == 1 else ''}{context}, {proof}"


def _places(room: Room, answer: Capacity) -> Iterator[str]:
    in_full = len(answer.rows) == 1
    shown = room.where if in_full else room.where[:PLACES_SHOWN]
    gang = sum(equal.members_each * len(equal.nodes) for equal in room.where) > room.fits
    for equal in shown:
        many = "" if len(equal.nodes) == 1 else f"each of {len(equal.nodes)} x "
        count = count_of(equal.members_each, "member") if gang else str(equal.members_each)
        price = "" if equal.price is None else f", {format_price(equal.price)} an hour each"
        yield f"{count} on {many}{equal.hardware}: {some(equal.nodes, 20 if in_full else 5)}{price}"
    rest: Sequence[EqualNodes] = room.where[len(shown):]
    if rest:
        yield f"and {count_of(sum(len(equal.nodes) for equal in rest), 'more node')} (--format json lists them)"
    yield (f"counting stopped at {answer.limit}" if room.capped
           else f"one more {'is not allowed' if room.code == QUOTA else 'does not fit'}: {room.message} ({room.code})")


def what_if_report(answer: WhatIf) -> Report:
    """Return the report of `what-if`."""
    changes = [f"  {SIGNS[change.op]} {change.message}" for change in answer.changes]
    tables = (_models(answer), _other_variants(answer), *place_tables(answer.created),
              *blocked_tables(answer.blocked, "No place for"), growth_table(answer.growth))
    losses, notes = list[Table](), list(_notes(answer)) if answer.changes else []
    if (each := answer.each_node) is not None:
        notes += _loss_notes(each)
        # what the loss of each node alone costs; nodes with the same cost share a row
        others = [_as_others(loss) for loss in each if loss.models]
        columns = [*LOSS_ROW[:-1], *([OTHER] if any(others) else []), LOSS_ROW[-1]]
        rows = [(some(loss.nodes, NAMES_SHOWN), loss.hardware,
                 *(str(_sum(loss, name)) for name in ("lost", "replaced", "missing")),
                 *([other] if any(others) else []), _without(loss))
                for loss, other in zip((loss for loss in each if loss.models), others, strict=True)]
        losses.append(Table("loss", "If one node is lost", tuple(columns), tuple(rows), beside_from=BESIDE_FROM,
                            limit=LOSSES_SHOWN, note="If one node is lost, with the plan applied"))
    return Report(
        kind="answer",
        title="What if",
        heading=(f"What if: {scope_text(answer.fleet, answer.inventory)}; nothing is changed", *changes),
        tables=tuple(table for table in (*(tables if changes else ()), *losses) if table.rows),
        notes=tuple(notes[:-1]),
        conclusion=notes[-1] if notes else "")


def _models(answer: WhatIf) -> Table:
    rows = []
    for row in answer.models:
        if row.before == row.after:
            continue
        fates = [f"{count} {words}" for count, words in (
            (row.replaced, "placed again"), (row.missing, "without a place"), (row.surplus, "beyond the target"))
            if count]
        rows.append(("!" if row.after.blocked > row.before.blocked else "+", row.key,
                     *(_step(getattr(row.before, one.key), getattr(row.after, one.key)) for one in COUNTS),
                     f"{row.lost} lost: {', '.join(fates)}" if row.lost else ""))
    return Table("model", "Models", MODEL_ROW, tuple(rows), beside_from=BESIDE_FROM)


def _other_variants(answer: WhatIf) -> Table:
    """Return the models of which replicas would run as another variant than with today's plan."""
    rows = []
    for row in answer.models:
        gained = {one.name: one.after - one.before for one in row.variants if one.after > one.before}
        lost = {one.name: one.before - one.after for one in row.variants if one.after < one.before}
        if gained and (lost or row.lost):
            count = sum(gained.values())
            which = f"{count} of {row.after.live + row.after.create} would run"
            each = in_a_row([f"{number} as {name}" for name, number in gained.items()])
            instead = f", instead of {in_a_row(list(lost))}" if count <= sum(lost.values()) else ""
            rows.append((row.key, f"{which} as {next(iter(gained))}{instead}" if len(gained) == 1
                         else f"{which} as another variant: {each}{instead}"))
    return Table("variant", "Would run as another variant", (MODEL, WHY), tuple(rows), signs=("~",) * len(rows),
                 line="{model}: {message}", limit=LOSSES_SHOWN)


def _as_others(loss: NodeLoss) -> str:
    """Return how many of the lost replicas get a place as another variant: `2 of m as a100`."""
    found = [f"{one.replaced - one.lost} of {model.model} as {one.name}"
             for model in loss.models for one in model.variants if one.replaced > one.lost]
    return "; ".join(first_few(found, MODELS_SHOWN))


def _step(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} -> {after}"


def _notes(answer: WhatIf) -> Iterator[str]:
    same = sum(row.before == row.after and all(one.before == one.after for one in row.variants)
               for row in answer.models)
    if same:
        yield f"Not listed: {count_of(same, 'unchanged model')}"
    if answer.unmanaged_lost:
        yield f"Not this fleet's, but lost with the nodes: {some(answer.unmanaged_lost)}"
    lost, replaced, surplus, missing = (sum(getattr(row, name) for row in answer.models)
                                        for name in ("lost", "replaced", "surplus", "missing"))
    if lost:
        beyond = f", {surplus} beyond the target" if surplus else ""
        yield f"Lost: {count_of(lost, 'replica')}; {replaced} placed again, {missing} without a place{beyond}"
    if answer.price:
        yield f"Cost: {_price(answer.price)}"
    yield f"Today: {_counts(answer.before)}. Then: {_counts(answer.after)}"


def _price(price: PriceChange) -> str:
    """Return what the fleet costs after the changes and the plan, instead of what with the plan of today."""
    before, after = price.before.total, price.after.total
    left_out = without_price(price.before)
    if left_out != without_price(price.after):  # sums of different nodes have no difference
        return (f"{format_price(after)} an hour{without_price(price.after)}; before: {format_price(before)} an hour"
                f"{left_out}")
    difference = f"{format_price(abs(after - before))} {'more' if after > before else 'less'}"
    instead = f" instead of {format_price(before)}: {difference}" if before != after else ""
    return f"{format_price(after)} an hour{instead}{left_out}"


def _counts(counts: Counts) -> str:
    return (f"{counts.live} live, {counts.create} to create, {counts.blocked} blocked"
            + (f" ({counts.on_new_nodes} of them would run on new nodes)" if counts.on_new_nodes else ""))


def _without(loss: NodeLoss) -> str:
    found = []
    for model in loss.models:
        why = model.code or ""
        if model.code and model.on_new_nodes:
            some_of_them = f"{model.on_new_nodes} " if model.on_new_nodes < model.missing else ""
            why += f"; {some_of_them}would run on new nodes"
        found += [f"{model.missing} of {model.model}{f' ({why})' if why else ''}"] if model.missing else []
    if not found:
        surplus = _sum(loss, "surplus")
        return f"{surplus} beyond the target" if surplus else ""
    return "; ".join(first_few(found, MODELS_SHOWN))


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
