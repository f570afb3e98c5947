"""Writes YAML from data, with ruamel.yaml, in the layout of `fmt`: its output is a fixed point of `fmt`.

A value is a Piece with its comments. Text is unquoted only if every YAML reader takes it as this text; control
characters are escaped. Loads ruamel.yaml, so only `import` and `render` import this.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ruamel.yaml import YAML, events
from ruamel.yaml.emitter import RoundTripEmitter, ScalarAnalysis
from ruamel.yaml.error import CommentMark
from ruamel.yaml.tag import Tag
from ruamel.yaml.tokens import CommentToken

from fleetctl.documents.position import Path
from fleetctl.fleetfile.layout import key_ranks
from fleetctl.fleetfile.scalars import is_text_to_all

SEVERAL_LINES = 1 << 20
"""The width of a value that cannot be written on one line."""
_TEXT = Tag(suffix="tag:yaml.org,2002:str")


@dataclass(slots=True)
class Piece:
    """One value to write. `one_line` = a collection in brackets, and so are all collections in it.

    `above` = the comment lines above it, '' for a blank line; `note` = the comment after its first line. `content` is
    the text of a scalar; with `is_text` False, that of a number, a boolean or null. `style`: see `block_style`.
    `width` = about the number of characters on one line, without its own comments.
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
    out = io.StringIO()
    emitter = _Emitter(out)
    emitter.emit(events.StreamStartEvent())
    emitter.emit(events.DocumentStartEvent(explicit=False))
    _write(emitter.emit, root, (), 0)
    emitter.emit(events.DocumentEndEvent(explicit=False))
    emitter.emit(events.StreamEndEvent())
    return out.getvalue()


class _Emitter(RoundTripEmitter):
    """ruamel's emitter, for our layout: no text is broken into lines, and non-printable characters are escaped."""

    MAX_SIMPLE_KEY_LENGTH = 1000  # a longer key would be written as `? key`

    def __init__(self, out: io.StringIO) -> None:
        dumper = YAML()
        dumper.version = (1, 1)  # our readers, and most others, accept less unquoted text than YAML 1.2 allows
        super().__init__(out, width=SEVERAL_LINES, allow_unicode=True, dumper=dumper,
                         brace_single_entry_mapping_in_flow_sequence=True)
        self._analyses: dict[str, ScalarAnalysis] = {}

    def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
        """Cache the analysis: ruamel works character by character, and fleet files repeat many texts."""
        if scalar not in self._analyses:
            self._analyses[scalar] = super().analyze_scalar(scalar)
        return self._analyses[scalar]

    def write_plain(self, text: str, split: bool = True) -> None:  # noqa: ARG002 (ruamel's signature)
        """Write unquoted text, always one line here, at once instead of character by character."""
        self.write_indicator(text, True)

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        """Escape everything but ASCII in text with non-printable characters."""
        self.allow_unicode = text.isprintable()
        super().write_double_quoted(text, split)
        self.allow_unicode = True

    def write_literal(self, text: str, comment: object = None) -> None:
        """Write the note of a literal block after its `|`."""
        note = self.event.comment[0] if self.event.comment else None
        self.event.comment = None
        super().write_literal(text, f" {note.value}" if note else comment)


def _write(emit: Callable[[events.Event], None], piece: Piece, path: Path, column: int, above: Sequence[str] = (), *,
           inside: bool = False) -> None:
    """Write a piece whose entries begin in `column`. `above` = the comments of an item; `inside` = within brackets."""
    note = "" if inside else piece.note
    if isinstance(piece.content, str):
        emit(_scalar(piece, _comment(above, note, column - 2)))
        return
    flow = inside or piece.one_line or not piece.content
    # the note of a collection on one line belongs to its end event
    before, after = _comment(above, "" if flow else note, column - 2), _comment((), note if flow else "", 0)
    if isinstance(piece.content, dict):
        emit(events.MappingStartEvent(None, None, True, flow_style=flow, comment=before, nr_items=len(piece.content)))
        for key in piece.content if flow else _ordered(piece.content, path):
            value = piece.content[key]
            emit(_scalar(Piece(key), None if flow else _comment(value.above, "", column)))
            below = column if isinstance(value.content, list) else column + 2
            _write(emit, value, (*path, key), below, inside=flow)
        emit(events.MappingEndEvent(comment=after))
        return
    emit(events.SequenceStartEvent(None, None, True, flow_style=flow, comment=before))
    for number, item in enumerate(piece.content):
        lines = [] if flow else _hoisted(item, (*path, number))
        _write(emit, item, (*path, number), column + 2, lines, inside=flow)
    emit(events.SequenceEndEvent(comment=after))


def _ordered(content: dict[str, Piece], path: Path) -> list[str]:
    ranks = key_ranks(path)
    return sorted(content, key=lambda key: ranks.get(key, len(ranks)))


def _hoisted(item: Piece, path: Path) -> list[str]:
    """Return the comments above an item, including those of its first entry, which is on the line of the dash."""
    lines = list(item.above)
    if item.content and not item.one_line and not isinstance(item.content, str):
        if isinstance(item.content, dict):
            first = item.content[_ordered(item.content, path)[0]]
            lines += first.above
            first.above = ()
        else:
            lines += _hoisted(item.content[0], (*path, 0))
            item.content[0].above = ()
    return lines


def _scalar(piece: Piece, comment: Any) -> events.ScalarEvent:  # noqa: ANN401 (ruamel's list of comments)
    text = str(piece.content)
    style = piece.style if text.isprintable() or piece.style else '"'
    tag = Tag(suffix=piece.tag) if piece.tag else None if text else _TEXT
    implicit = (not piece.tag and (not piece.is_text or is_text_to_all(text)), not piece.tag, True)
    return events.ScalarEvent(None, tag, implicit, text, style=style, comment=comment)


def _comment(above: Sequence[str], note: str, column: int) -> list[Any] | None:
    """Return comments in ruamel's form: the trailing comment, and the lines above."""
    if not above and not note:
        return None
    lines = "".join(f"{' ' * column}{line}\n" if line else "\n" for line in above)
    return [_token(note) if note else None, [_token(lines)] if lines else None]


def _token(text: str) -> CommentToken:
    return CommentToken(text, CommentMark(0))
