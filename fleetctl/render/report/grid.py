"""The lines of a grid on a terminal. A row whose texts all fit is laid out here; the library breaks the others.

The library's own layout takes a millisecond a row, and a fleet has thousands.
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
"""What stays together in a name that is too long for its column; the number of a replica does not stand alone."""
GridRow = tuple[Mapping[int, Text], Text]
"""The texts by place, and the note that goes below one of them; empty = none."""
GAP = 2
"""Blanks between two columns."""
NOTE_INDENT = 2
PROSE_WIDTH = 16
"""A column of sentences is at least so wide, or as wide as its longest."""


@dataclass(frozen=True, slots=True)
class GridColumn:
    """One column; `place` = where a row has its text, `unbroken` = no text of it breaks, `width` None = as it comes."""

    place: int
    right: bool
    unbroken: bool
    width: int | None


def grid_lines(rows: Sequence[GridRow], columns: Sequence[GridColumn], under: int) -> Iterator[RenderableType]:
    """Yield the rows, the first of which has the titles; notes go below the text at the place `under`."""
    if any(column.width is None for column in columns):
        yield _broken(rows, columns, under)
        return
    for fits, alike in groupby(rows, key=lambda row: _fits(row, columns, under)):
        together = list(alike)
        yield Segments(part for row in together for part in _parts(row, columns, under)) if fits else _broken(
            together, columns, under)


def _fits(row: GridRow, columns: Sequence[GridColumn], under: int) -> bool:
    texts, note = row
    return all("\n" not in texts[one.place].plain and cell_len(texts[one.place].plain) <= (one.width or 0)
               and (one.place != under or not note or cell_len(note.plain) + NOTE_INDENT <= (one.width or 0))
               for one in columns)


def _parts(row: GridRow, columns: Sequence[GridColumn], under: int) -> Iterator[Segment]:
    """Yield the line of a row, and the line of its note. What has no style is one part with the blanks beside it."""
    texts, note = row
    plain, at, below = "", 0, 0
    for column in columns:
        text, width = texts[column.place], column.width or 0
        said, blanks = text.plain, " " * (width - cell_len(text.plain))
        plain += blanks if column.right else ""
        if text.style:
            yield from (Segment(plain), Segment(said, Style.parse(str(text.style)))) if plain else (
                Segment(said, Style.parse(str(text.style))),)
            plain = ""
        else:
            plain += said
        plain += " " * GAP if column.right else blanks + " " * GAP
        below = at + NOTE_INDENT if column.place == under else below
        at += width + GAP
    yield Segment(plain)
    yield Segment.line()
    if note:
        yield Segment(" " * below)
        yield Segment(note.plain, Style.parse(str(note.style)))
        yield Segment.line()


def _broken(rows: Sequence[GridRow], columns: Sequence[GridColumn], under: int) -> Table:
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=False)
    for column in columns:
        grid.add_column(justify="right" if column.right else "left", overflow="fold", no_wrap=column.unbroken,
                        width=column.width)
    for texts, note in rows:
        cells = [(one, _Words.of(texts[one.place])) for one in columns]
        below = Padding(_Words.of(note), (0, 0, 0, NOTE_INDENT))
        grid.add_row(*(Group(cell, below) if note and one.place == under else cell for one, cell in cells))
    return grid


class _Words(Text):
    """A text whose words, where they are too wide for a line, break behind `/`, `-` and such if they can."""

    @classmethod
    def of(cls, text: Text) -> _Words:
        """Return the text as one that breaks so."""
        words = cls(style=text.style)
        words.append_text(text)
        return words

    def wrap(self, console: Console, width: int, *, justify: JustifyMethod | None = None,
             overflow: OverflowMethod | None = None, tab_size: int = 8, no_wrap: bool | None = None) -> Lines:
        """Return its lines; each part of a name that fits in a line stays in one."""
        lines: Text = self
        if not no_wrap and any(cell_len(word) > width for word in self.plain.split()):
            lines = Text("\n").join(self.divide(self._ends(width)))
        return Text.wrap(lines, console, width, justify=justify, overflow=overflow, tab_size=tab_size, no_wrap=no_wrap)

    def _ends(self, width: int) -> list[int]:
        """Return where lines end."""
        ends, used = list[int](), 0
        for part in _PART.finditer(self.plain):
            if used and used + cell_len(part[0].rstrip()) > width:
                ends.append(part.start())
                used = 0
            used = 0 if part[0].endswith("\n") else used + cell_len(part[0])
        return ends


def column_texts(column: Column, cells: Iterable[Cell]) -> list[str]:
    """Return what is shown in a column: its title, and every line of its cells."""
    lines = (text for cell in cells for text in ([cell] if isinstance(cell, str) else cell))
    return [column.title, *map(visible, lines)]


def least_width(column: Column, texts: Sequence[str]) -> int:
    """Return how wide a column must be so that no name of it breaks, and prose has room."""
    if column.name:
        return max(cell_len(name) for text in texts for name in text.replace(", ", ",\n").split("\n"))
    widest = max(map(cell_len, texts))
    return widest if column.unbroken else min(widest, PROSE_WIDTH)


def narrow_width(column: Column, texts: Sequence[str]) -> int:
    """Return how wide a column must be where names have to break: prose has room for its longest word."""
    least = least_width(column, texts)
    if column.unbroken:
        return least
    words = (cell_len(word) for text in texts for word in text.split())
    return min(least, PROSE_WIDTH, PROSE_WIDTH if column.name else max(words, default=0))


def fit(widths: Iterable[int], width: int) -> bool:
    """Return whether columns of these widths fit beside each other."""
    parts = list(widths)
    return sum(parts) + GAP * (len(parts) - 1) <= width


def widths_of(
    texts: Mapping[int, Sequence[str]], least: Mapping[int, int], narrow: Mapping[int, int], under: int,
    notes: Sequence[str], width: int,
) -> dict[int, int]:
    """Return the width of each column, by place; `notes` are below the texts of the column at `under`.

    Empty where even the `narrow` widths do not fit: the columns then break as the library wants.
    """
    wished = {place: max(map(cell_len, lines)) for place, lines in texts.items()}
    wished[under] = max(wished[under], *(cell_len(note) + NOTE_INDENT for note in notes))
    word = max(cell_len(word) + NOTE_INDENT for note in notes for word in note.split() or [""])
    for floor in (_with(least, under, word), least, _with(narrow, under, word), narrow):
        if fit(floor.values(), width):
            return _shared_out(wished, floor, width)
    return {}


def _with(widths: Mapping[int, int], under: int, word: int) -> Mapping[int, int]:
    """Return the widths with room for a word of the notes."""
    return {**widths, under: max(widths[under], word)}


def _shared_out(wished: Mapping[int, int], floor: Mapping[int, int], width: int) -> dict[int, int]:
    """Return the widths as wished, or less where there is too little room: those that can give most give first."""
    widths = dict(wished)
    excess = sum(widths.values()) + GAP * (len(widths) - 1) - width
    for place in sorted(widths, key=lambda place: floor[place] - wished[place]):
        given = max(0, min(excess, wished[place] - floor[place]))
        widths[place] -= given
        excess -= given
    return widths
