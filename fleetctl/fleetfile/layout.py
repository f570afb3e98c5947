"""The layout of a YAML text: its block collections, their entries, and the comments of each; and writing it.

Scalars, aliases and flow collections are leaves and kept as written. A comment above an entry or at the end of its line
belongs to the entry. A comment at the end of a block, with the block's indentation, belongs to the block.
A layout is written with two spaces per level, lists in the column of their key, and known keys in the order of the
schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel

from fleetctl.documents.position import Path
from fleetctl.fleetfile.keys import keys_of, model_at

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


STEP = 2
MERGE_KEY = "<<"
# `workers` is the longest part of a model, so it comes last
_LAST = ("workers",)


def write_layout(pages: list[Page], *, sort: bool) -> str:
    """Return the text of all documents; without `sort`, keys keep their order."""
    lines: list[str] = []
    for number, page in enumerate(pages):
        lines += _without_last_blanks(page.above) if number else page.above
        if page.explicit or number:
            lines.append("---" + page.note)
        lines += page.header
        if isinstance(page.root, Block):
            if sort:
                _sort(page.root, ())
            lines += [page.root.properties] if page.root.properties else []
            lines += _block(page.root, 0)
        elif page.root.text:
            lines += page.root.text.split("\n")
        lines += _without_last_blanks(page.tail)
    return "\n".join(_without_first_blanks(lines)) + "\n"


def _sort(block: Block, path: Path) -> None:
    """Put known keys in the order of the schema; keys of free maps keep theirs."""
    ranks = key_ranks(path) if block.kind == "mapping" else {}
    block.entries.sort(key=lambda entry: ranks.get(entry.name, len(ranks)))
    for number, entry in enumerate(block.entries):
        if isinstance(entry.value, Block):
            _sort(entry.value, (*path, number if entry.key is None else entry.name))


def key_ranks(path: Path) -> dict[str, int]:
    """Return the rank of each known key of the mapping at a path; empty if `fmt` does not order its keys."""
    model = model_at(path)
    return _ranks(model) if model else {}


@lru_cache(maxsize=64)
def _ranks(model: type[BaseModel]) -> dict[str, int]:
    known = [key for key in keys_of(model) if key not in _LAST] + list(_LAST)
    return {MERGE_KEY: -1, **{key: number for number, key in enumerate(known)}}


def _block(block: Block, indent: int) -> list[str]:
    margin = " " * indent
    lines: list[str] = []
    for number, entry in enumerate(block.entries):
        body = _item(block, entry, indent) if entry.key is None else _pair(block, entry, indent)
        lead = entry.lead if number else _without_first_blanks(entry.lead)
        lines += [margin + line if line else "" for line in lead] + body
    return lines + [margin + line if line else "" for line in block.tail]


def _pair(block: Block, entry: Entry, indent: int) -> list[str]:
    key, margin = str(entry.key), " " * indent
    colon = " :" if key.startswith("*") else f"\n{margin}:" if key.startswith("? ") else ":"
    head = f"{margin}{key}{colon}"
    value = entry.value
    if isinstance(value, Leaf):
        return _leaf(head, value, entry.note, block.column, indent)
    head += f" {value.properties}" if value.properties else ""
    return [head + entry.note, *_block(value, indent if value.kind == "sequence" else indent + STEP)]


def _item(block: Block, entry: Entry, indent: int) -> list[str]:
    """Return the lines of an item; a block value begins on the line of the dash."""
    dash = f"{' ' * indent}-"
    value = entry.value
    if isinstance(value, Leaf):
        return _leaf(dash, value, entry.note, block.column, indent)
    if value.properties:
        return [f"{dash} {value.properties}{entry.note}", *_block(value, indent + STEP)]
    if entry.note:
        entry.lead.append(entry.note.strip())
        entry.note = ""
    entry.lead += _hoisted(value)
    lines = _block(value, indent + STEP)
    return [f"{dash} {lines[0].lstrip(' ')}", *lines[1:]]


def _hoisted(block: Block) -> list[str]:
    """Remove and return the comments above a block's first entry, which moves to the line of the dash."""
    first = block.entries[0]
    lead, first.lead = [line for line in first.lead if line], []
    if first.key is None and isinstance(first.value, Block) and not first.value.properties:
        lead += _hoisted(first.value)
    return lead


def _leaf(head: str, leaf: Leaf, note: str, old: int, new: int) -> list[str]:
    """Return the lines of a leaf; all but the first shift from the old column of the block to the new one."""
    first, *rest = leaf.text.split("\n")
    least = 0 if leaf.literal else new + STEP
    *before, last = f"{head} {first}" if first else head, *(_moved(line, new - old, least) for line in rest)
    return [*before, last + note]


def _moved(line: str, by: int, least: int) -> str:
    text = line.lstrip(" ")
    return " " * max(least, len(line) - len(text) + by) + text if text else " " * max(0, len(line) + by) if line else ""


def _without_first_blanks(lines: list[str]) -> list[str]:
    return lines if not lines or lines[0] else _without_first_blanks(lines[1:])


def _without_last_blanks(lines: list[str]) -> list[str]:
    return lines if not lines or lines[-1] else _without_last_blanks(lines[:-1])
