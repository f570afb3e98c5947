"""YAML written from data, by ruamel.yaml, in the layout of `fmt`: what it writes is a fixed point of `fmt`.

A value comes as a Piece, with its comments. Text is plain only where every reader takes it for that text, and control
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
from fleetctl.fleetfile.scalars import is_text_to_all
from fleetctl.fleetfile.write_layout import key_ranks

SEVERAL_LINES = 1 << 20
"""The width of what does not go on one line."""
_TEXT = Tag(suffix="tag:yaml.org,2002:str")


@dataclass(slots=True)
class Piece:
    """One value to write. A collection is on one line where `one_line` says so, or where it is in one that is.

    `above`: the comment lines above it, '' = a blank line; `note`: the comment behind its first line. Of a scalar,
    `content` is its text; `is_text` False: a number, a boolean or null, as it is written; `style`: see `block_style`.
    `width` is about the number of characters it takes on one line, without its own comments.
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
        """The width in a collection: one with comments inside is never on one line."""
        return SEVERAL_LINES if self.above else self.width


def block_style(text: str) -> Literal["|"] | None:
    """Return `|` for text of several lines that a literal block shows as it is; None where quotes are better."""
    lines = text.removesuffix("\n").split("\n")
    shown = all(line.isprintable() and line == line.rstrip() for line in lines)
    return "|" if shown and len(lines) > 1 and lines[0][:1] not in ("", " ") and lines[-1] else None


def write_yaml(root: Piece) -> str:
    """Return a document as text; a `note` is written as it is, behind a blank."""
    out = io.StringIO()
    emitter = _Emitter(out)
    emitter.emit(events.StreamStartEvent())
    emitter.emit(events.DocumentStartEvent(explicit=False))
    _write(emitter.emit, root, (), 0)
    emitter.emit(events.DocumentEndEvent(explicit=False))
    emitter.emit(events.StreamEndEvent())
    return out.getvalue()


class _Emitter(RoundTripEmitter):
    """ruamel's, for our layout: no text is broken into lines, and characters that do not print are escaped."""

    MAX_SIMPLE_KEY_LENGTH = 1000  # a longer key would be written as `? key`

    def __init__(self, out: io.StringIO) -> None:
        dumper = YAML()
        dumper.version = (1, 1)  # our readers, and most others, know less of plain text than YAML 1.2 allows
        super().__init__(out, width=SEVERAL_LINES, allow_unicode=True, dumper=dumper,
                         brace_single_entry_mapping_in_flow_sequence=True)
        self._analyses: dict[str, ScalarAnalysis] = {}

    def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
        """Look at each text once: ruamel does so character by character, and a fleet repeats itself."""
        if scalar not in self._analyses:
            self._analyses[scalar] = super().analyze_scalar(scalar)
        return self._analyses[scalar]

    def write_plain(self, text: str, split: bool = True) -> None:  # noqa: ARG002 (as ruamel has it)
        """Write plain text, which is on one line here, at once instead of character by character."""
        self.write_indicator(text, True)

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        """Escape all characters but ASCII in text with characters that do not print."""
        self.allow_unicode = text.isprintable()
        super().write_double_quoted(text, split)
        self.allow_unicode = True

    def write_literal(self, text: str, comment: object = None) -> None:
        """Write the note of a literal block behind its `|`."""
        note = self.event.comment[0] if self.event.comment else None
        self.event.comment = None
        super().write_literal(text, f" {note.value}" if note else comment)


def _write(emit: Callable[[events.Event], None], piece: Piece, path: Path, column: int, above: Sequence[str] = (), *,
           inside: bool = False) -> None:
    """Write a piece whose entries begin in a column; `above` is set for an item, `inside`: in one on one line."""
    note = "" if inside else piece.note
    if isinstance(piece.content, str):
        emit(_scalar(piece, _comment(above, note, column - 2)))
        return
    flow = inside or piece.one_line or not piece.content
    # the note of a collection on one line comes with its end
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
    """Return the comments above an item. Those of its first entry, on the line of the dash, are moved there."""
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
    """Return comments as ruamel keeps them: the one behind, and those above."""
    if not above and not note:
        return None
    lines = "".join(f"{' ' * column}{line}\n" if line else "\n" for line in above)
    return [_token(note) if note else None, [_token(lines)] if lines else None]


def _token(text: str) -> CommentToken:
    return CommentToken(text, CommentMark(0))
