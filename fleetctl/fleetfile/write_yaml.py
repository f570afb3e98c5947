"""Writes YAML from data in the layout of `fmt`: its output is a fixed point of `fmt`.

A value is a Piece with its comments. Text is unquoted only if every YAML reader takes it as this text; control
characters are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from yaml.emitter import Emitter

from fleetctl.fleetfile.layout import STEP, Block, Entry, Leaf, Page, write_layout
from fleetctl.fleetfile.scalars import is_text_to_all

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
    return write_layout([Page(root=_entry(None, root).value)], sort=True)


def _entry(key: str | None, piece: Piece) -> Entry:
    """Return a value under a key, or an item."""
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
        entry.value = Block("mapping", 0, entries=[_entry(*item) for item in piece.content.items()])
    else:
        entry.value = Block("sequence", 0, entries=[_entry(None, item) for item in piece.content])
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
