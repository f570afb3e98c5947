"""Capacity for a person: a row per model or shape, then where the replicas would stand and what stops one more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.capacity import Capacity, CapacityRow, EqualNodes, Room
from fleetctl.documents.quantity import count_of
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible
from fleetctl.render.words import BESIDE_FROM, asked_of, some, with_note

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLACES_SHOWN = 6
"""Lines of `where` per model where there are several models; one alone is shown whole."""

DETAILS_SHOWN = 20
"""With more models than this only the table is shown."""


def render_capacity(answer: Capacity, console: Console) -> None:
    """Print the answer."""
    from rich.text import Text

    print_trimmed(Text(f"Capacity: {asked_of(answer.fleet, answer.inventory)}"), console)
    console.print()
    if not answer.rows:
        print_trimmed(Text("The fleet has no models; --shape asks for a shape of your own."), console)
        return
    print_trimmed(_table(answer, console.width), console)
    shown = answer.rows if len(answer.rows) <= DETAILS_SHOWN else ()
    for row in shown:
        _print_details(row, answer, console)
    if len(answer.rows) > 1:
        console.print()
        print_trimmed(Text("Each row stands for itself: they share the same room.", "dim"), console)
    if len(answer.rows) > DETAILS_SHOWN:
        print_trimmed(Text("--model MODEL says where, and what stops one more; --format json has it all.", "dim"),
                      console)


def _table(answer: Capacity, width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    planned, beside = answer.fleet is not None, width >= BESIDE_FROM
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("MODEL" if any(row.model for row in answer.rows) else "SHAPE", overflow="fold")
    if beside:
        table.add_column("ONE REPLICA TAKES", overflow="fold")
    for head in ("FITS NOW", *(["AFTER PLAN"] if planned else []), "AT MOST"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in answer.rows:
        last = row.after_plan or row.now
        numbers = [_number(row.now), *([_number(last)] if planned else []), str(last.at_most)]
        name, need = Text(_name(row), "bold"), visible(row.need)
        table.add_row(*((name, Text(need)) if beside else (with_note(name, need),)),
                      *(Text(text, "" if text != "0" else "yellow") for text in numbers))
    return table


def _name(row: CapacityRow) -> str:
    return visible(row.model or row.shape or "")


def _number(room: Room) -> str:
    return f"{room.fits}+" if room.capped else str(room.fits)


def _print_details(row: CapacityRow, answer: Capacity, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    room = row.after_plan or row.now
    console.print()
    print_trimmed(Text.assemble((_name(row), "bold"), f": {_sentence(row, room)}"), console)
    for line in _places(room.where, whole=len(answer.rows) == 1):
        print_trimmed(Padding(Text(line), (0, 0, 0, 2)), console)
    if room.capped:
        stops = f"counting stopped at {answer.limit}"
    else:
        stops = f"one more does not fit: {visible(room.message)} ({room.code})"
    print_trimmed(Padding(Text(stops, "dim"), (0, 0, 0, 2)), console)


def _sentence(row: CapacityRow, room: Room) -> str:
    planned = row.after_plan is not None
    beside = "" if not planned else f" beside the plan's {row.create} new" if row.create else " after the plan"
    if not room.at_most:
        return f"no more fit{beside} ({visible(room.method)})"
    if room.status == "optimal":
        proof = "and no placement holds more"
    elif room.capped:
        proof = "or more"
    else:
        proof = f"and no placement holds more than {room.at_most}"
    return f"{room.fits} more fit{'s' if room.fits == 1 else ''}{beside}, {proof} ({visible(room.method)})"


def _places(where: Sequence[EqualNodes], *, whole: bool) -> list[str]:
    cut = where if whole else where[:PLACES_SHOWN]
    lines = [_place(equal, whole=whole) for equal in cut]
    rest = sum(len(equal.nodes) for equal in where[len(cut):])
    return [*lines, *([f"and {count_of(rest, 'node')} more (--format json lists them)"] if rest else [])]


def _place(equal: EqualNodes, *, whole: bool) -> str:
    names = some(equal.nodes, 20 if whole else 5)
    nodes = f"{visible(equal.hardware)}: {names}"
    return f"{equal.members_each} on {nodes}" if len(equal.nodes) == 1 else \
        f"{equal.members_each} on each of {len(equal.nodes)} x {nodes}"
