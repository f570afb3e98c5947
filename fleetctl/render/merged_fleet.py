"""A merged fleet as JSON or YAML, with the origin of each value. The YAML is laid out like `fmt`, origins at line ends.

A value on one line stays on one line. Secrets are masked with a tag that fleet files may not contain, so that a masked
fleet cannot be loaded by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleetctl.collector import collector_paused
from fleetctl.documents.answers import RenderedFleet
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.mask import masked
from fleetctl.documents.position import FleetSource, Path, path_text
from fleetctl.fleetfile.compose import MASKED_TAG
from fleetctl.fleetfile.layout import Piece, block_style, write_yaml
from fleetctl.fleetfile.nodes import ChildNode, Document, Node
from fleetctl.fleetfile.sources import SourceText
from fleetctl.render.visible import visible

MASKED_NOTE = "# Values of env are masked, as are secrets in arguments: this cannot be loaded; --show-env prints them."
MAX_ONE_LINE = 100
MAX_ALIGNED = 72
"""Origins are aligned behind lines up to this length; a longer line has its origin right after it."""

_BEFORE_ORIGIN = "\0"  # never occurs in YAML
_BRACKET = re.compile(r"(?:&\S+\s+)?[\[{]")


def render_fleet_yaml(document: Document, *, origins: bool, show_env: bool) -> str:
    """Return the text of a merged document; `origins` appends `# file:line` to each line."""
    with collector_paused():
        writer = _Writer(document.value if show_env else masked(document.value))
        text = write_yaml(writer.piece(_Placed(document.root, document.source, document.root.at, ())))
    lines = [line.partition(f" {_BEFORE_ORIGIN}") for line in text.split("\n")[:-1]]
    if writer.masked:
        lines.insert(0, (MASKED_NOTE, "", ""))
    column = max(len(line) for line, _, origin in lines if origin and len(line) <= MAX_ALIGNED)
    return "".join(f"{line:{column}}  # {origin}\n" if origins and origin else f"{line}\n" for line, _, origin in lines)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A value of the fleet: its file, its offset in the file, and its path."""

    node: Node
    source: SourceText
    at: int
    path: Path

    @property
    def origin(self) -> str:
        return f"{_BEFORE_ORIGIN}{visible(self.source.file)}:{self.source.position(self.at)[0]}"

    @property
    def is_flow(self) -> bool:
        """Whether a collection is written in brackets; a merged one has the place of the last file merged in."""
        return bool(_BRACKET.match(self.source.text, self.node.at))

    def entries(self) -> Iterator[tuple[str | int, int, _Placed]]:
        """Yield the key or index, the key's offset and the value of each entry."""
        for part, (key_at, at, node) in _entries(self.node):
            yield part, key_at, _Placed(node, self.node.source_of(part, self.source), at, (*self.path, part))


class _Writer:
    """Turns values into pieces of YAML. `shown` = the fleet, or masked; `masked` is set once a value was masked."""

    def __init__(self, shown: object) -> None:
        self.shown = shown
        self.masked = False

    def piece(self, placed: _Placed, key_at: int | None = None) -> Piece:
        """Return the YAML of a value, with its origin after its first line; `key_at` is the offset of its key."""
        if placed.node.children is None:
            return self.scalar(placed)
        below = {str(part): self.piece(value, key_at) for part, key_at, value in placed.entries()}
        piece = Piece(below if isinstance(placed.node.children, dict) else list(below.values()))
        if not below or (self.is_one_line(placed) and piece.width <= MAX_ONE_LINE):
            piece.one_line = True
            piece.note = placed.origin
        elif key_at is not None and isinstance(placed.path[-1], str):
            # not for a list item: the line of its dash shows the first entry, with the entry's origin
            piece.note = replace(placed, at=key_at).origin
        return piece

    def is_one_line(self, placed: _Placed) -> bool:
        """Return whether a value is a scalar, or a collection in brackets whose values all come from its line."""
        return placed.node.children is None or (placed.is_flow and all(
            value.origin == placed.origin and self.is_one_line(value) for _, _, value in placed.entries()))

    def scalar(self, placed: _Placed) -> Piece:
        """Return the YAML of a scalar, or what is shown instead."""
        value: Any = placed.node.value
        shown: Any = self.shown
        for part in placed.path:
            shown = shown[part]
        if shown != value:
            self.masked = True
            return Piece(str(shown), note=placed.origin, style='"', tag=MASKED_TAG)
        if isinstance(value, str):
            return Piece(value, note=placed.origin, style=block_style(value))
        return Piece("null" if value is None else placed.node.raw, note=placed.origin, is_text=False)


def render_fleet_json(document: Document, files: Sequence[FleetSource], *, show_env: bool) -> str:
    """Return the RenderedFleet of a merged document."""
    fleet: dict[str, Any] = document.value
    shown: Any = fleet if show_env else masked(fleet)
    origins = {path_text(path): document.position(path) for path in _values(document.root, ())}
    return indented_json(RenderedFleet(files=list(files), masked=shown != fleet, fleet=shown, origins=origins))


def _values(node: Node, path: Path) -> Iterator[Path]:
    """Yield the path of every scalar and of every empty collection."""
    if not node.children:
        yield path
    for part, (_, _, value) in _entries(node):
        yield from _values(value, (*path, part))


def _entries(node: Node) -> Iterable[tuple[str | int, ChildNode]]:
    return node.children.items() if isinstance(node.children, dict) else enumerate(node.children or ())
