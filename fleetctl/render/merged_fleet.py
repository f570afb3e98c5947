"""A merged fleet as JSON, with the place of each value; as YAML, in the layout of `fmt`, with it behind each line.

A value on one line stays on one line. Values of engine environments are masked by a tag that no fleet file may have,
so that a masked fleet cannot be loaded by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleetctl.collector import collector_paused
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.mask import MASK, is_secret, masked
from fleetctl.documents.position import FleetSource, Path, path_text
from fleetctl.documents.rendered_fleet import RenderedFleet
from fleetctl.fleetfile.compose import MASKED_TAG
from fleetctl.fleetfile.nodes import Document, Node
from fleetctl.fleetfile.text import SourceText
from fleetctl.fleetfile.write_yaml import Piece, block_style, write_yaml
from fleetctl.render.visible import visible

MASKED_NOTE = "# Values of env are masked, so this cannot be loaded; --show-env prints them."
MAX_ONE_LINE = 100
MAX_ALIGNED = 72
"""A longer line has its origin right behind it, and does not push the others to the right."""

_BEFORE_ORIGIN = "\0"  # no YAML text holds it
_BRACKET = re.compile(r"(?:&\S+\s+)?[\[{]")


def render_fleet_yaml(document: Document, *, origins: bool, show_env: bool) -> str:
    """Return the text of a merged document; `origins` adds `# file:line` behind each line."""
    with collector_paused():
        writer = _Writer(show_env=show_env)
        text = write_yaml(writer.piece(_Placed(document.root, document.source, document.root.at, ())))
    lines = [line.partition(f" {_BEFORE_ORIGIN}") for line in text.split("\n")[:-1]]
    if writer.masked:
        lines.insert(0, (MASKED_NOTE, "", ""))
    column = max(len(line) for line, _, origin in lines if origin and len(line) <= MAX_ALIGNED)
    return "".join(f"{line:{column}}  # {origin}\n" if origins and origin else f"{line}\n" for line, _, origin in lines)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A value of the fleet: its file, its offset there, and the path that leads to it."""

    node: Node
    source: SourceText
    at: int
    path: Path

    @property
    def origin(self) -> str:
        return f"{_BEFORE_ORIGIN}{visible(self.source.file)}:{self.source.position(self.at)[0]}"

    @property
    def is_flow(self) -> bool:
        """Whether a collection is written in brackets; a merged one has the place of its last part."""
        return bool(_BRACKET.match(self.source.text, self.node.at))

    def entries(self) -> Iterator[tuple[str | int, int, _Placed]]:
        """Yield each entry: its key or index, the offset of its key, its value."""
        children = self.node.children
        for part, (key_at, at, node) in children.items() if isinstance(children, dict) else enumerate(children or ()):
            yield part, key_at, _Placed(node, self.node.source_of(part, self.source), at, (*self.path, part))


class _Writer:
    """Turns values into pieces of YAML; `masked` = a value was hidden."""

    def __init__(self, *, show_env: bool) -> None:
        self.show_env = show_env
        self.masked = False

    def piece(self, placed: _Placed, key_at: int | None = None) -> Piece:
        """Return a value to write, its origin behind its first line; `key_at` is the offset of its key."""
        if placed.node.children is None:
            return self.scalar(placed)
        below = {str(part): self.piece(value, key_at) for part, key_at, value in placed.entries()}
        piece = Piece(below if isinstance(placed.node.children, dict) else list(below.values()))
        if not below or (self.is_one_line(placed) and piece.width <= MAX_ONE_LINE):
            piece.one_line = True
            piece.note = placed.origin
        elif key_at is not None and isinstance(placed.path[-1], str):
            # an item that is a block has its first entry, and that one's origin, on the line of its dash
            piece.note = replace(placed, at=key_at).origin
        return piece

    def is_one_line(self, placed: _Placed) -> bool:
        """Return whether a collection is written in brackets, and all of it comes from one line."""
        return placed.node.children is None or (placed.is_flow and all(
            value.origin == placed.origin and self.is_one_line(value) for _, _, value in placed.entries()))

    def scalar(self, placed: _Placed) -> Piece:
        """Return a scalar; a secret is masked, unless it is to be shown."""
        value = placed.node.value
        if not self.show_env and is_secret(placed.path):
            self.masked = True
            return Piece(MASK, note=placed.origin, style='"', tag=MASKED_TAG)
        if isinstance(value, str):
            return Piece(value, note=placed.origin, style=block_style(value))
        return Piece("null" if value is None else placed.node.raw, note=placed.origin, is_text=False)


def render_fleet_json(document: Document, files: Sequence[FleetSource], *, show_env: bool) -> str:
    """Return the RenderedFleet of a merged document."""
    fleet: dict[str, Any] = document.value
    shown: Any = fleet if show_env else masked(fleet)
    origins = {path_text(path): document.place(path) for path in _values(document.root, ())}
    return indented_json(RenderedFleet(files=list(files), masked=shown != fleet, fleet=shown, origins=origins))


def _values(node: Node, path: Path) -> Iterator[Path]:
    """Yield the path of every value that is no collection, and of every empty one."""
    if not node.children:
        yield path
        return
    entries = node.children.items() if isinstance(node.children, dict) else enumerate(node.children)
    for part, (_, _, value) in entries:
        yield from _values(value, (*path, part))
