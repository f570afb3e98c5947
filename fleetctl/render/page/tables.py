"""The tables of a report as HTML: rows the filter can find by subject, cells that stack on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetctl.render.page.markup import Markup, el, unbroken
from fleetctl.render.page.parts import fold, left_out
from fleetctl.render.report.model import UNBROKEN, Cell, Column, Table
from fleetctl.render.report.tones import count_tone, text_tone

ROWS_SHOWN = 2_000
"""More rows make a page slow, and no person reads them; the page says how many are left out."""

OPEN_UP_TO = 20
"""A folded table of at most so many rows is open from the start."""

SUBJECTS = ("key", "model", "replica", "replicas")
"""The columns with the subject of a row: a model, or replicas of one."""

NAMES = {"policy": "Policy", "effect": "This change", "difference": "Changes", "place": "Places"}
"""What a table is called in the contents, where its title is long."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page; `title` "" = it is not in the contents."""

    anchor: str
    title: str
    body: Markup


def table_parts(tables: Sequence[Table]) -> Iterator[Part]:
    """Yield a part of the page for every table that is for pages."""
    tables = [table for table in tables if "page" in table.readers]
    for number, table in enumerate(tables):
        again = any(other.key == table.key for other in tables[:number])
        anchor = f"{table.key}-{number}" if again else table.key
        if table.counted:
            yield Part(anchor, "", fold(f"{len(table.rows)} {table.title}", _note(table), _table(table),
                                        anchor=anchor, same=is_unchanged(table)))
        else:
            yield Part(anchor, NAMES.get(table.key, table.title), _section(table, anchor))


def is_unchanged(table: Table) -> bool:
    """Return whether a table is about what does not change: the models with nothing to do."""
    return table.counted and table.key == "model"


def _section(table: Table, anchor: str) -> Markup:
    heading = el("h2", table.heading)
    inside = (_note(table), _table(table)) if table.rows else (_note(table),)
    if not table.folded:
        return el("section", heading, *inside, id=anchor)
    count = el("span", str(len(table.rows)), class_="count")
    opened = len(table.rows) <= OPEN_UP_TO
    return el("section", el("details", el("summary", heading, count), *inside, open=opened), id=anchor)


def _note(table: Table) -> Markup | None:
    return el("p", table.note) if table.note else None


def _table(table: Table) -> Markup:
    kept = [place for place, column in enumerate(table.columns)
            if column.terminal != "filled" or any(row[place] for row in table.rows)]
    columns = [table.columns[place] for place in kept]
    subject = next((place for place, column in enumerate(columns) if column.key in SUBJECTS), None)
    heads = (_head(column) for column in columns)
    rows = (_row(tuple(row[place] for place in kept), columns, subject) for row in table.rows[:ROWS_SHOWN])
    return Markup(el("table", el("thead", el("tr", heads)), el("tbody", rows), class_=f"of-{table.key}")
                  + (left_out(len(table.rows) - ROWS_SHOWN, "row") or ""))


def _head(column: Column) -> Markup:
    kind = _kind(column)
    return el("th", column.title, scope="col", class_=kind) if column.title else el("td", class_=kind)


def _row(row: tuple[Cell, ...], columns: Sequence[Column], subject: int | None) -> Markup:
    """Return one row; `data-about` is the text the filter looks for."""
    about = "" if subject is None else row[subject]
    return el("tr", (_cell(cell, column) for cell, column in zip(row, columns, strict=True)),
              data_about=about if isinstance(about, str) else "")


def _cell(cell: Cell, column: Column) -> Markup:
    lines = [cell] if isinstance(cell, str) else cell
    content = (el("div", unbroken(line)) for line in lines) if len(lines) > 1 else map(unbroken, lines)
    first = lines[0] if lines else ""
    tone = count_tone(column.key, int(first)) if column.numeric and first.isdecimal() else text_tone(first)
    classes = " ".join(word for word in (_kind(column), tone) if word)
    return el("td", content, class_=classes or None, data_label=column.title if first else None)


def _kind(column: Column) -> str | None:
    if column.key == "sign" or column.key in UNBROKEN:
        return "sign" if column.key == "sign" else "code"
    return "number" if column.numeric else "name" if column.name else None
