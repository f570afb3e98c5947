"""Capacity as a report: a row per model or shape, then where the replicas fit and what prevents one more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.answers import Capacity, CapacityRow, EqualNodes, Room
from fleetctl.documents.quantity import count_of, some
from fleetctl.render.place_text import scope_text
from fleetctl.render.report.model import Column, Report, Table

PLACES_SHOWN = 6
"""The most lines of `where` per model if there are several models; a single model is shown in full."""

DETAILS_SHOWN = 20
"""The most models for which more than the numbers is shown."""

BESIDE_FROM = 76


def capacity_report(answer: Capacity) -> Report:
    """Return the report of `capacity`."""
    rows = answer.rows
    return Report(
        kind="answer",
        title="Capacity",
        heading=(f"Capacity: {scope_text(answer.fleet, answer.inventory)}",),
        tables=(_numbers(answer), *([_details(answer)] if len(rows) <= DETAILS_SHOWN else [])) if rows else (),
        notes=tuple(_notes(len(rows))),
        conclusion="")


def _notes(rows: int) -> Iterator[str]:
    if not rows:
        yield "The fleet has no models; --shape counts a shape of your own."
    if rows > 1:
        yield "Each row is counted separately, but all rows share the same room."
    if rows > DETAILS_SHOWN:
        yield "--model MODEL shows where, and what prevents one more; --format json has everything."


def _numbers(answer: Capacity) -> Table:
    planned, grows = answer.fleet is not None, any(row.with_new_nodes for row in answer.rows)
    name = "model" if any(row.model for row in answer.rows) else "shape"
    columns = (
        Column(name, name, name=True), Column("need", "one replica takes", terminal="beside"),
        Column("now", "fits now", numeric=True),
        Column("afterPlan", "after plan", numeric=True, terminal="always" if planned else "never"),
        Column("withNewNodes", "new nodes", numeric=True, terminal="always" if grows else "never"),
        Column("atMost", "at most", numeric=True))
    rows = [(_name(row), row.need, _number(row.now), _number(row.after_plan or row.now), _number(_last(row)),
             str(_last(row).at_most)) for row in answer.rows]
    return Table("capacity", "Capacity", columns, tuple(rows), beside_from=BESIDE_FROM)


def _details(answer: Capacity) -> Table:
    columns = (Column("model", "model", name=True), Column("sentence", "how many"), Column("where", "where"))
    rows = [(_name(row), _sentence(row, _last(row)), tuple(_places(_last(row), answer))) for row in answer.rows]
    return Table("where", "Where, and what prevents one more", columns, tuple(rows), line="{model}: {sentence}")


def _name(row: CapacityRow) -> str:
    return row.model or row.shape or ""


def _last(row: CapacityRow) -> Room:
    """Return the room that the details describe: with new nodes, else after the plan, else now."""
    return row.with_new_nodes or row.after_plan or row.now


def _number(room: Room) -> str:
    return f"{room.fits}+" if room.capped else str(room.fits)


def _sentence(row: CapacityRow, room: Room) -> str:
    context = ""
    if row.after_plan is not None:
        context = f" alongside the plan's {row.create} new" if row.create else " after the plan"
    if row.with_new_nodes:
        context += " with all new nodes that may be added"
    if not room.at_most:
        return f"no more fit{context}"
    if room.status == "optimal":
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
    yield from (_place(equal, names=20 if in_full else 5, gang=gang) for equal in shown)
    rest: Sequence[EqualNodes] = room.where[len(shown):]
    if rest:
        yield f"and {count_of(sum(len(equal.nodes) for equal in rest), 'more node')} (--format json lists them)"
    yield (f"counting stopped at {answer.limit}" if room.capped
           else f"one more does not fit: {room.message} ({room.code})")


def _place(equal: EqualNodes, *, names: int, gang: bool) -> str:
    many = "" if len(equal.nodes) == 1 else f"each of {len(equal.nodes)} x "
    count = count_of(equal.members_each, "member") if gang else str(equal.members_each)
    return f"{count} on {many}{equal.hardware}: {some(equal.nodes, names)}"
