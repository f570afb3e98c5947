"""The lines of a grid on a terminal. A row whose texts all fit is laid out here; rich wraps the others.

Rich's own layout takes a millisecond per row, and a fleet has thousands of rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod, OverflowMethod, RenderableType
from rich.containers import Lines
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from fleetctl.render.report.model import Cell, Column
from fleetctl.render.visible import visible

_PART = re.compile(r"[^-/_.:\s]*(?:/\d+,?(?!\S)|[-/_.:\s]?)")
"""The pieces of a name too long for its column, which may wrap between them; a replica's number is not split off."""
GridRow = tuple[Mapping[int, Text], Text]
"""The texts by column number, and the note below one of them; empty if there is none."""
GAP = 2
"""Blanks between two columns."""
NOTE_INDENT = 2
PROSE_WIDTH = 16
"""The least width of a column of sentences, unless all are shorter."""


@dataclass(frozen=True, slots=True)
class GridColumn:
    """One column; `place` is its key in a row's texts, `unbroken` = its texts do not wrap, `width` None = automatic."""

    place: int
    right: bool
    unbroken: bool
    width: int | None


def grid_lines(rows: Sequence[GridRow], columns: Sequence[GridColumn], under: int) -> Iterator[RenderableType]:
    """Yield the rows, the first of which has the titles; notes go below the text of the column `under`."""
    if any(column.width is None for column in columns):
        yield _wrapped(rows, columns, under)
        return
    for fits, group in groupby(rows, key=lambda row: _fits(row, columns, under)):
        if fits:
            yield Segments(part for row in group for part in _parts(row, columns, under))
        else:
            yield _wrapped(list(group), columns, under)


def _fits(row: GridRow, columns: Sequence[GridColumn], under: int) -> bool:
    texts, note = row
    return all("\n" not in texts[one.place].plain and cell_len(texts[one.place].plain) <= (one.width or 0)
               and (one.place != under or not note or cell_len(note.plain) + NOTE_INDENT <= (one.width or 0))
               for one in columns)


def _parts(row: GridRow, columns: Sequence[GridColumn], under: int) -> Iterator[Segment]:
    """Yield the line of a row, and the line of its note. Adjacent texts without a style are one segment."""
    texts, note = row
    plain, at, note_at = "", 0, 0
    for column in columns:
        text, width = texts[column.place], column.width or 0
        padding = " " * (width - cell_len(text.plain))
        plain += padding if column.right else ""
        if text.style:
            if plain:
                yield Segment(plain)
            yield Segment(text.plain, Style.parse(str(text.style)))
            plain = ""
        else:
            plain += text.plain
        plain += " " * GAP if column.right else padding + " " * GAP
        if column.place == under:
            note_at = at + NOTE_INDENT
        at += width + GAP
    yield Segment(plain)
    yield Segment.line()
    if note:
        yield Segment(" " * note_at)
        yield Segment(note.plain, Style.parse(str(note.style)))
        yield Segment.line()


def _wrapped(rows: Sequence[GridRow], columns: Sequence[GridColumn], under: int) -> Table:
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=False)
    for column in columns:
        grid.add_column(justify="right" if column.right else "left", overflow="fold", no_wrap=column.unbroken,
                        width=column.width)
    for texts, note in rows:
        cells = [(one, _NameText.of(texts[one.place])) for one in columns]
        below = Padding(_NameText.of(note), (0, 0, 0, NOTE_INDENT))
        grid.add_row(*(Group(cell, below) if note and one.place == under else cell for one, cell in cells))
    return grid


class _NameText(Text):
    """A text in which words too wide for a line wrap after `/`, `-` and other punctuation if possible."""

    @classmethod
    def of(cls, text: Text) -> _NameText:
        """Return a copy of a text that wraps this way."""
        copy = cls(style=text.style)
        copy.append_text(text)
        return copy

    def wrap(self, console: Console, width: int, *, justify: JustifyMethod | None = None,
             overflow: OverflowMethod | None = None, tab_size: int = 8, no_wrap: bool | None = None) -> Lines:
        """Return the lines; a part of a name that fits on one line is not split."""
        lines: Text = self
        if not no_wrap and any(cell_len(word) > width for word in self.plain.split()):
            lines = Text("\n").join(self.divide(self._ends(width)))
        return Text.wrap(lines, console, width, justify=justify, overflow=overflow, tab_size=tab_size, no_wrap=no_wrap)

    def _ends(self, width: int) -> list[int]:
        ends, used = list[int](), 0
        for part in _PART.finditer(self.plain):
            if used and used + cell_len(part[0].rstrip()) > width:
                ends.append(part.start())
                used = 0
            used = 0 if part[0].endswith("\n") else used + cell_len(part[0])
        return ends


def column_texts(column: Column, cells: Iterable[Cell]) -> list[str]:
    """Return the texts of a column: its title and every line of its cells."""
    lines = (text for cell in cells for text in ([cell] if isinstance(cell, str) else cell))
    return [column.title, *map(visible, lines)]


def least_width(column: Column, texts: Sequence[str]) -> int:
    """Return the least width at which no name wraps and prose is readable."""
    if column.name:
        return max(cell_len(name) for text in texts for name in text.replace(", ", ",\n").split("\n"))
    widest = max(map(cell_len, texts))
    return widest if column.unbroken else min(widest, PROSE_WIDTH)


def narrow_width(column: Column, texts: Sequence[str]) -> int:
    """Return the least width of a column if names may wrap: prose still has room for its longest word."""
    least = least_width(column, texts)
    if column.unbroken:
        return least
    words = (cell_len(word) for text in texts for word in text.split())
    return min(least, PROSE_WIDTH, PROSE_WIDTH if column.name else max(words, default=0))


def fit(widths: Iterable[int], width: int) -> bool:
    """Return whether columns of these widths fit side by side."""
    parts = list(widths)
    return sum(parts) + GAP * (len(parts) - 1) <= width


def widths_of(
    texts: Mapping[int, Sequence[str]], least: Mapping[int, int], narrow: Mapping[int, int], under: int,
    notes: Sequence[str], width: int,
) -> dict[int, int]:
    """Return the width of each column, by place; `notes` are below the texts of the column `under`.

    Empty if even the `narrow` widths do not fit; rich then wraps the columns.
    """
    full = {place: max(map(cell_len, lines)) for place, lines in texts.items()}
    full[under] = max(full[under], *(cell_len(note) + NOTE_INDENT for note in notes))
    word = max(cell_len(word) + NOTE_INDENT for note in notes for word in note.split() or [""])
    for floor in (_with_note(least, under, word), least, _with_note(narrow, under, word), narrow):
        if fit(floor.values(), width):
            return _shrunk(full, floor, width)
    return {}


def _with_note(widths: Mapping[int, int], under: int, word: int) -> Mapping[int, int]:
    return {**widths, under: max(widths[under], word)}


def _shrunk(full: Mapping[int, int], floor: Mapping[int, int], width: int) -> dict[int, int]:
    """Return the widths, reduced to fit: the columns furthest above their `floor` shrink first."""
    widths = dict(full)
    excess = sum(widths.values()) + GAP * (len(widths) - 1) - width
    for place in sorted(widths, key=lambda place: floor[place] - full[place]):
        cut = max(0, min(excess, full[place] - floor[place]))
        widths[place] -= cut
        excess -= cut
    return widths
