"""How wide the columns of a grid are on a terminal: no name breaks as long as there is room for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len

from fleetctl.render.report.model import UNBROKEN, Cell, Column
from fleetctl.render.visible import visible

GAP = 2
"""Blanks between two columns."""

NOTE_INDENT = 2

PROSE_WIDTH = 16
"""A column of sentences is at least so wide, or as wide as its longest."""


def column_texts(column: Column, cells: Iterable[Cell]) -> list[str]:
    """Return what is shown in a column: its title, and every line of its cells."""
    lines = (text for cell in cells for text in ([cell] if isinstance(cell, str) else cell))
    return [column.title, *map(visible, lines)]


def least_width(column: Column, texts: Sequence[str]) -> int:
    """Return how wide a column must be so that no name of it breaks, and prose has room."""
    if column.name:
        return max(cell_len(name) for text in texts for name in text.replace(", ", ",\n").split("\n"))
    widest = max(map(cell_len, texts))
    return widest if column.numeric or column.key in UNBROKEN else min(widest, PROSE_WIDTH)


def narrow_width(column: Column, texts: Sequence[str]) -> int:
    """Return how wide a column must be where names have to break: prose has room for its longest word."""
    least = least_width(column, texts)
    if column.numeric or column.key in UNBROKEN:
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
