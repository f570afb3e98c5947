"""A report on a terminal: its heading, its tables, its notes, and its conclusion.

A table is a grid, or a title with a line per row. Everything from a file or a cluster is shown as plain text, never as
markup or terminal commands. Colors only repeat what signs and words say.

A row of a grid whose texts all fit is laid out here; rich wraps the others. Rich's own layout takes a millisecond per
row, and a fleet has thousands of rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TextIO

from rich.cells import cell_len, chop_cells
from rich.console import Console, Group, JustifyMethod, OverflowMethod, RenderableType
from rich.containers import Lines
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from fleetctl.documents.quantity import count_of, grouped, some
from fleetctl.render.replica_text import replica_ranges
from fleetctl.render.report.model import COUNT_TONES, SEE_BELOW, Cell, Column, Report, Table, count_tone, text_tone
from fleetctl.render.visible import print_trimmed, visible

NAMES_SHOWN = 20
"""The most replicas named in a row that several replicas share."""

COUNTED_SHOWN = 20
"""A counted table with at most this many rows is still listed."""

STYLES = {"good": "green", "bad": "red", "warn": "yellow", "soft": "dim", "calm": "cyan"}
SIDES = {"- ": "red", "+ ": "green"}
"""The colors of old and new values."""

_LABEL = re.compile(r"[\w ]{0,12} {2}(?=\S)")
"""The label of a heading's line, as in `label    text`."""
Row = tuple[Cell, ...]
_PART = re.compile(r"[^-/_.:\s]*(?:/\d+,?(?!\S)|[-/_.:\s]?)")
"""The pieces of a name too long for its column, which may wrap between them; a replica's number is not split off."""
GridRow = tuple[Mapping[int, Text], Text]
"""The texts by the index of their column, and the note below one of them; empty if there is none."""
GAP = 2
"""Blanks between two columns."""
NOTE_INDENT = 2
WIDE = 110
"""The width from which a name has at most half of it, if other columns need the rest."""
PROSE_WIDTH = 16
"""The least width of a column of sentences, unless all are shorter."""


def plain_console(out: TextIO, width: int) -> Console:
    """Return a console that writes text without color, markup or commands, as into a file."""
    return Console(file=out, width=width, no_color=True, color_system=None, force_terminal=False, highlight=False,
                   markup=False, emoji=False)


def print_report(report: Report, console: Console) -> None:
    """Print the report."""
    for line in report_lines(report, console.width):
        print_trimmed(line, console)


def report_lines(report: Report, width: int) -> Iterator[RenderableType]:
    """Yield the lines of the report, with a blank line between its parts."""
    heading = list[RenderableType]()
    for line in map(visible, report.heading):
        if label := _LABEL.match(line):  # the text after a label wraps in its own column
            grid = RichTable.grid()
            grid.add_column(width=label.end())
            grid.add_column(overflow="fold")
            grid.add_row(Text(label[0]), Text(line[label.end():]))
        heading.append(grid if label else Text(line))
    parts: list[list[RenderableType]] = [heading]
    shown = (table for table in report.tables if "terminal" in table.readers)
    for _, group in groupby(shown, key=lambda table: table.key):
        tables = list(group)
        parts.append(list(_lines(tables[0], width) if tables[0].line else _grid(tables, width)))
    conclusion = [Text(visible(report.conclusion), "bold")] if report.conclusion else []
    parts.append([*(Text(visible(note)) for note in report.notes), *conclusion])
    for number, part in enumerate(part for part in parts if part):
        yield from [Text()] if number else []
        yield from part


def _lines(table: Table, width: int) -> Iterator[RenderableType]:
    """Yield the title and a line per row; numbers include their column title, as `2 replicas`.

    Below are the texts of cells with several lines, without the first text if it is in the row's line.
    """
    counted = f": {len(table.rows)} ({table.meaning})" if table.meaning else ""
    yield Text(_signed(visible(table.title) + counted, width), "bold")
    if table.note:
        yield _indented(table.note, 2)
    rows = list(zip(table.signs or ("",) * len(table.rows), table.rows, strict=True))
    if table.columns[0].key == "replica":  # replicas with otherwise equal rows share one, as `m/0-2`
        alike = grouped(((sign, tuple(others)), str(name)) for sign, (name, *others) in rows)
        rows = [(sign, (some(replica_ranges(names), NAMES_SHOWN), *others)) for (sign, others), names in alike.items()]
    for sign, row in rows[:table.limit]:
        cells = list(zip(table.columns, row, strict=True))
        texts = {column.key: cell if isinstance(cell, str) else next(iter(cell), "") for column, cell in cells}
        texts |= {column.key: count_of(int(texts[column.key]), column.title.removesuffix("s"))
                  for column in table.columns if column.numeric}
        head = Text(_signed(visible(f"{sign} {table.line.format_map(texts)}".lstrip()), width - 2))
        head.stylize(STYLES.get(text_tone(sign), ""), 0, len(sign))
        yield Padding(head, (0, 0, 0, 2))
        for column, cell in cells:
            below = () if isinstance(cell, str) else cell[1:] if f"{{{column.key}}}" in table.line else cell
            yield from (_indented(text, 4, SIDES.get(text[:2], "")) for text in below)
    yield from _more(len(rows), table.limit, indent=2)


def _signed(text: str, width: int) -> str:
    """Split a name after a sign if it is wider than the line; rich would leave the sign on a line of its own."""
    sign, _, rest = text.partition(" ")
    name, available = rest.partition(" ")[0], width - 2
    if len(sign) > 1 or available < 1 or cell_len(name) <= available:
        return text
    start = f"{sign} {chop_cells(name, available)[0]}"
    return f"{start}\n{text[len(start):]}"


def _grid(tables: Sequence[Table], width: int) -> Iterator[RenderableType]:
    """Yield one grid for several tables with the same columns, and the number of omitted rows."""
    counted = [table for table in tables if table.counted and len(table.rows) > COUNTED_SHOWN]
    rows = [row for table in tables if table not in counted for row in table.rows]
    limit = tables[0].limit
    if tables[0].note:
        yield Text(visible(tables[0].note), "bold")
    if rows:
        yield from _grid_of(rows[:limit], tables[0], width)
    yield from _more(len(rows), limit)
    for table in counted:
        yield Text(f"= {len(table.rows)} {table.title} (--format json lists them)", "dim")


def _grid_of(rows: Sequence[Row], table: Table, width: int) -> Iterator[RenderableType]:
    """Yield the grid. Columns that do not fit, first `beside` ones, then numbers, go below the widest other column."""
    shown = [(index, column) for index, column in enumerate(table.columns)
             if column.terminal == "always" or (column.terminal != "never" and any(row[index] for row in rows))]
    texts = {index: [column.title, *(visible(line) for cell in (row[index] for row in rows)
                                     for line in ([cell] if isinstance(cell, str) else cell))]
             for index, column in shown}
    lowest = {index: _lowest_widths(column, texts[index]) for index, column in shown}
    least, narrow = ({index: widths[number] for index, widths in lowest.items()} for number in (0, 1))
    if width >= WIDE:  # one long name wraps, rather than take the columns beside it from every row
        least |= {index: min(least[index], width // 2) for index, column in shown if column.name}
    kept, below = shown, list[int]()
    for index in [index for index, column in reversed(shown) if column.terminal == "beside"]:
        if width < table.beside_from or not _fit([least[other] for other, _ in kept], width):
            kept, below = [column for column in kept if column[0] != index], [index, *below]
    for index in [index for index, column in reversed(kept) if column.numeric]:
        if not _fit([narrow[other] for other, _ in kept], width):
            kept, below = [column for column in kept if column[0] != index], [index, *below]
    under = max((not column.unbroken, least[index], index) for index, column in kept if not column.numeric)[2]
    notes = [_note(row, table, below) for row in rows]
    full = {index: max(map(cell_len, texts[index])) for index, _ in kept}
    widths = _widths(full, least, narrow, under, notes, width)
    grid: list[GridRow] = [({index: Text(column.title.upper(), "dim") for index, column in kept}, Text())]
    grid += [(dict(_texts(row, kept)), Text(note, "dim")) for row, note in zip(rows, notes, strict=True)]
    for fits, group in groupby(grid, key=lambda row: _fits(row, widths, under)):
        if fits:
            yield Segments(part for row in group for part in _line(row, kept, widths, under))
        else:
            yield _wrapped(group, kept, widths, under)


def _note(row: Row, table: Table, below: Sequence[int]) -> str:
    """Return the cells that are below others: a number is followed by its title, and a zero is omitted."""
    cells = {column.key: cell for column, cell in zip(table.columns, row, strict=True)}
    redundant = table.redundant.format_map(cells).split("; ") if table.redundant else []
    shown = []
    for index in below:
        column, text = table.columns[index], str(row[index])
        if column.numeric and column.terminal != "beside":
            text = f"{text} {column.title}" if text not in ("", "0") else ""
        if redundant:
            parts = text.split("; ")
            text = "; ".join(part for part in parts if part not in redundant and not part.endswith(SEE_BELOW))
        shown += [visible(text)] if text else []
    return ", ".join(shown)


def _texts(row: Row, columns: Sequence[tuple[int, Column]]) -> Iterator[tuple[int, Text]]:
    """Yield the index of the column and the text of each cell.

    The first name is the subject of the row; if it is indented, the row is a part of the row above. Only the sign has a
    color, as a whole colored line may be hard to read. An empty cell shows a dash, except in the last column and in
    parts.
    """
    sign = str(row[0]) if columns[0][1].key == "sign" else ""
    name = next((index for index, column in columns if column.name and column.key != "sign"), None)
    is_part = name is not None and str(row[name]).startswith("  ")
    last = columns[-1][0]
    for index, column in columns:
        if index == name:
            yield index, Text(visible(str(row[index])), "dim" if is_part or sign == "=" else "bold")
            continue
        cell = row[index]
        if not cell and not is_part and (index != last or column.numeric):
            yield index, Text("-")
            continue
        text = "\n".join(map(visible, [cell] if isinstance(cell, str) else cell))
        if column.numeric and text.isdecimal():
            tone = count_tone(column.key, int(text))
            yield index, Text("-" if tone == "zero" and column.key in COUNT_TONES else text, STYLES.get(tone, ""))
        else:
            yield index, Text(text, "dim" if column.terminal == "beside" else STYLES.get(text_tone(text), ""))


def _more(count: int, limit: int | None, *, indent: int = 0) -> Iterator[RenderableType]:
    if limit is not None and count > limit:
        yield _indented(f"and {count - limit} more (--format json lists them)", indent, "dim")


def _indented(text: str, columns: int, style: str = "") -> RenderableType:
    return Padding(Text(visible(text), style), (0, 0, 0, columns))


def _fits(row: GridRow, widths: Mapping[int, int], under: int) -> bool:
    """Return whether every text of a row fits on one line of its column."""
    texts, note = row
    return all("\n" not in texts[index].plain and cell_len(texts[index].plain) <= width
               and (index != under or not note or cell_len(note.plain) + NOTE_INDENT <= width)
               for index, width in widths.items()) and bool(widths)


def _line(row: GridRow, columns: Sequence[tuple[int, Column]], widths: Mapping[int, int],
          under: int) -> Iterator[Segment]:
    """Yield the line of a row, and the line of its note. Adjacent texts without a style are one segment."""
    texts, note = row
    plain, at, note_at = "", 0, 0
    for index, column in columns:
        text, width = texts[index], widths[index]
        padding = " " * (width - cell_len(text.plain))
        plain += padding if column.numeric else ""
        if text.style:
            if plain:
                yield Segment(plain)
            yield Segment(text.plain, Style.parse(str(text.style)))
            plain = ""
        else:
            plain += text.plain
        plain += " " * GAP if column.numeric else padding + " " * GAP
        if index == under:
            note_at = at + NOTE_INDENT
        at += width + GAP
    yield Segment(plain)
    yield Segment.line()
    if note:
        yield Segment(" " * note_at)
        yield Segment(note.plain, Style.parse(str(note.style)))
        yield Segment.line()


def _wrapped(rows: Iterable[GridRow], columns: Sequence[tuple[int, Column]], widths: Mapping[int, int],
             under: int) -> RichTable:
    grid = RichTable(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=False)
    for index, column in columns:
        grid.add_column(justify="right" if column.numeric else "left", overflow="fold", no_wrap=column.unbroken,
                        width=widths.get(index))
    for texts, note in rows:
        cells = [(index, _NameText.of(texts[index])) for index, _ in columns]
        below = Padding(_NameText.of(note), (0, 0, 0, NOTE_INDENT))
        grid.add_row(*(Group(cell, below) if note and index == under else cell for index, cell in cells))
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


def _lowest_widths(column: Column, texts: Sequence[str]) -> tuple[int, int]:
    """Return the least width at which no name wraps and prose is readable, and the least one if names may wrap.

    Prose still has room for its longest word then.
    """
    widest = max(map(cell_len, texts))
    if column.unbroken and not column.name:
        return widest, widest
    least = min(widest, PROSE_WIDTH)
    if column.name:
        least = max(cell_len(name) for text in texts for name in text.replace(", ", ",\n").split("\n"))
    if column.unbroken:
        return least, least
    words = (cell_len(word) for text in texts for word in text.split())
    return least, min(least, PROSE_WIDTH, PROSE_WIDTH if column.name else max(words, default=0))


def _fit(widths: Collection[int], width: int) -> bool:
    """Return whether columns of these widths fit side by side."""
    return sum(widths) + GAP * (len(widths) - 1) <= width


def _widths(
    full: Mapping[int, int], least: Mapping[int, int], narrow: Mapping[int, int], under: int, notes: Sequence[str],
    width: int,
) -> dict[int, int]:
    """Return the width of each column of `full`, by index; `notes` are below the texts of the column `under`.

    The columns furthest above their least width shrink first. Empty if even the `narrow` widths do not fit; rich then
    wraps the columns.
    """
    widths = {**full, under: max(full[under], *(cell_len(note) + NOTE_INDENT for note in notes))}
    word = max(cell_len(word) + NOTE_INDENT for note in notes for word in note.split() or [""])
    for lowest in (least, narrow):
        for lowest_under in (max(lowest[under], word), lowest[under]):
            floor = {index: lowest[index] for index in full} | {under: lowest_under}
            if not _fit(floor.values(), width):
                continue
            excess = sum(widths.values()) + GAP * (len(widths) - 1) - width
            for index in sorted(widths, key=lambda index: floor[index] - widths[index]):
                cut = max(0, min(excess, widths[index] - floor[index]))
                widths[index] -= cut
                excess -= cut
            return widths
    return {}
