"""The layout of a YAML text: its block collections, their entries, and the comments of each.

Scalars, aliases and flow collections are leaves and kept as written. A comment above an entry or at the end of its line
belongs to the entry. A comment at the end of a block, with the block's indentation, belongs to the block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

_GAP_LINE = re.compile(r"(?P<space>[ \t]*)(?P<marks>(?:[-:](?:[ \t]+|$))*)(?P<comment>#.*)?")


class UnknownLayoutError(ValueError):
    """Between two values there is something other than comments and plain YAML punctuation."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"unknown layout at {offset}")
        self.offset = offset


@dataclass(slots=True)
class Leaf:
    """A value kept as written; `literal` = a block scalar, whose leading spaces are content."""

    text: str
    literal: bool = False


@dataclass(slots=True)
class Entry:
    """A key with its value, or an item. `lead` = the comment lines above ('' = blank), `note` = a trailing comment."""

    key: str | None
    name: str
    lead: list[str] = field(default_factory=list)
    note: str = ""
    value: Leaf | Block = field(default_factory=lambda: Leaf(""))


@dataclass(slots=True)
class Block:
    """A block collection that begins in `column`. `properties` = its anchor; `tail` = the comments at its end."""

    kind: Literal["mapping", "sequence"]
    column: int
    properties: str = ""
    entries: list[Entry] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Page:
    """One document of a text: the lines above its `---`, whether there is one (`explicit`), and its content."""

    above: list[str] = field(default_factory=list)
    explicit: bool = False
    note: str = ""
    header: list[str] = field(default_factory=list)
    root: Leaf | Block = field(default_factory=lambda: Leaf(""))
    tail: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GapLine:
    """One line between two values: the column and text of its comment, or '' for a blank line."""

    column: int
    text: str


def split_gap(gap: str, offset: int) -> tuple[str, list[GapLine]]:
    """Split the text between two values into the trailing comment of the first, and the lines after it.

    Raises UnknownLayoutError if the text holds anything but comments and the indicators `-` and `:`.
    """
    first, *rest = gap.split("\n")
    lines = []
    at = offset + len(first) + 1
    for number, line in enumerate(rest):
        match = _matched(line, at)
        last = number == len(rest) - 1
        if match["comment"]:
            lines.append(GapLine(match.start("comment"), match["comment"].rstrip()))
        elif not match["marks"] and not last:
            lines.append(GapLine(0, ""))
        at += len(line) + 1
    match = _matched(first, offset)
    spaces = len(match["marks"].lstrip("-:")) or len(match["space"])
    note = " " * max(1, spaces) + match["comment"].rstrip() if match["comment"] else ""
    return note, lines


def _matched(line: str, offset: int) -> re.Match[str]:
    match = _GAP_LINE.fullmatch(line)
    if match is None:
        raise UnknownLayoutError(offset)
    return match
