"""The layout of a YAML text: its block collections, their entries, and the comments of each; and writing it.

Scalars, aliases and flow collections are leaves and kept as written. A comment above an entry or at the end of its line
belongs to the entry. A comment at the end of a block, with the block's indentation, belongs to the block.
A layout is written with two spaces per level, lists in the column of their key, and known keys in the order of the
schema.

YAML is written from data in the same layout, so it is a fixed point of `fmt`: a value is a Piece with its comments.
Text is unquoted only if every YAML reader takes it as this text; control characters are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel
from yaml.emitter import Emitter

from fleetctl.documents.plain_yaml import is_text_to_all
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
# the longest part of a model comes last
_LAST = ("variants", "workers")


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


SEVERAL_LINES = 1 << 20
"""The width of a value that cannot be written on one line."""
_LONGEST_KEY = 1000
"""YAML's readers take at most 1024 characters, quotes included, for a key without `?`."""
_NOT_PLAIN = re.compile(r"---|\.\.\.|[#,\[\]{}&*!|>'\"%@` ]|[?:-](?: |$)|.*(?::(?: |$)| #| $)")
"""Text that has a meaning in YAML without quotes; in brackets also what the next pattern matches."""
_NOT_IN_BRACKETS = re.compile(r":|.*[,\[\]{}?]")
_ESCAPES: Any = Emitter.ESCAPE_REPLACEMENTS


@dataclass(slots=True)
class Piece:
    """One value to write. `one_line` = a collection in brackets, and so are all collections in it.

    `above` = the comment lines above it, '' for a blank line; `note` = the comment after its first line. `content` is
    the text of a scalar; with `is_text` False, that of a number, a boolean or null. `style`: see `block_style`; with
    `>` the text has the line ends of its folded lines. `width` = about the number of characters on one line, without
    its own comments.
    """

    content: dict[str, Piece] | list[Piece] | str
    above: Sequence[str] = ()
    note: str = ""
    one_line: bool = False
    is_text: bool = True
    style: Literal["|", ">", '"'] | None = None
    tag: str | None = None
    width: int = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.content, str):
            quotes = 2 if self.is_text and not is_text_to_all(self.content) else 0
            self.width = SEVERAL_LINES if self.style in ("|", ">") else len(self.content) + quotes
        elif isinstance(self.content, dict):
            self.width = sum(len(key) + 4 + piece.width_inside for key, piece in self.content.items()) or 2
        else:
            self.width = sum(2 + piece.width_inside for piece in self.content) or 2

    @property
    def width_inside(self) -> int:
        """The width inside a collection, which cannot be on one line if there are comments in it."""
        return SEVERAL_LINES if self.above else self.width


def block_style(text: str) -> Literal["|"] | None:
    """Return `|` for multi-line text that a literal block shows unchanged; None if quotes are better."""
    lines = text.removesuffix("\n").split("\n")
    shown = all(line.isprintable() and line == line.rstrip() for line in lines)
    return "|" if shown and len(lines) > 1 and lines[0][:1] not in ("", " ") and lines[-1] else None


def write_yaml(root: Piece) -> str:
    """Return a document as text; a `note` is written as is, after a blank."""
    return write_layout([Page(root=entry_of(None, root).value)], sort=True)


def entry_of(key: str | None, piece: Piece) -> Entry:
    """Return a value to be written under a key, or as an item."""
    written = None if key is None else f"{'? ' if len(key) > _LONGEST_KEY else ''}{_scalar(Piece(key))}"
    entry = Entry(written, key or "", list(piece.above), f" {piece.note}" if piece.note else "")
    if isinstance(piece.content, str) and piece.style in ("|", ">"):
        lines = piece.content.removesuffix("\n").split("\n")
        header = f"{piece.style}{'' if piece.content.endswith(chr(10)) else '-'}{entry.note}"
        entry.note = ""  # it is in the header: after the last line it would be part of the text
        entry.value = Leaf("\n".join([header, *(" " * STEP + line if line else "" for line in lines)]), literal=True)
    elif piece.one_line or not piece.content or isinstance(piece.content, str):
        entry.value = Leaf(_on_one_line(piece))
    elif isinstance(piece.content, dict):
        entry.value = Block("mapping", 0, entries=[entry_of(*item) for item in piece.content.items()])
    else:
        entry.value = Block("sequence", 0, entries=[entry_of(None, item) for item in piece.content])
    return entry


def _on_one_line(piece: Piece, *, inside: bool = False) -> str:
    """Return a value without comments, its collections in brackets; `inside` = within brackets."""
    if isinstance(piece.content, dict):
        pairs = (f"{_scalar(Piece(key), inside=True)}: {_on_one_line(value, inside=True)}"
                 for key, value in piece.content.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(piece.content, list):
        return f"[{', '.join(_on_one_line(item, inside=True) for item in piece.content)}]"
    return _scalar(piece, inside=inside)


def _scalar(piece: Piece, *, inside: bool = False) -> str:
    text = str(piece.content)
    shown = text.isprintable()
    if not piece.is_text:
        return text
    if shown and not piece.style:
        if is_text_to_all(text) and not _NOT_PLAIN.match(text) and not (inside and _NOT_IN_BRACKETS.match(text)):
            return text
        if "'" not in text:
            return f"'{text}'"
    escaped = "".join(char if (shown or " " <= char <= "~") and char not in '"\\' else _escape(char) for char in text)
    return f'{piece.tag or ""} "{escaped}"'.lstrip(" ")


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return f"\\{_ESCAPES[char]}"
    return next(f"\\{kind}{ord(char):0{digits}X}" for kind, digits in (("x", 2), ("u", 4), ("U", 8))
                if ord(char) < 1 << 4 * digits)
