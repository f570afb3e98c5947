"""A merged fleet as YAML, in the layout of `fmt`, with the file and line each line comes from behind it.

A collection that was on one line stays on one line. Values of engine environments are masked by a tag that no fleet
file may have, so a masked fleet cannot be loaded by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fleetctl.collector import collector_paused
from fleetctl.documents.mask import MASK
from fleetctl.fleetfile.compose import MASKED_TAG
from fleetctl.fleetfile.layout import Block, Entry, Leaf, Page
from fleetctl.fleetfile.nodes import Document, Node
from fleetctl.fleetfile.problems import Path
from fleetctl.fleetfile.text import SourceText
from fleetctl.fleetfile.write_layout import write_layout
from fleetctl.render.visible import visible
from fleetctl.render.yaml_scalar import block_text, scalar_text, text_scalar

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
        root = writer.block(_Placed(document.root, document.source, document.root.at, ()))
        page = Page(header=[MASKED_NOTE] if writer.masked else [], root=root)
        lines = [line.partition(_BEFORE_ORIGIN) for line in write_layout([page], sort=True).split("\n")[:-1]]
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
    """Turns values into the layout `fmt` writes; `masked` = a value was hidden."""

    def __init__(self, *, show_env: bool) -> None:
        self.show_env = show_env
        self.masked = False

    def block(self, placed: _Placed) -> Block:
        """Return a collection with each of its entries on a line of its own."""
        block = Block("mapping" if isinstance(placed.node.children, dict) else "sequence", 0)
        block.entries = [self.entry(part, key_at, below) for part, key_at, below in placed.entries()]
        return block

    def entry(self, part: str | int, key_at: int, placed: _Placed) -> Entry:
        key, name = (text_scalar(part), part) if isinstance(part, str) else (None, "")
        text = self.one_line(placed)
        if text is None or (placed.node.children and len(text) > MAX_ONE_LINE):
            # an item that is a block has its first entry, and that one's origin, on the line of its dash
            note = replace(placed, at=key_at).origin if key else ""
            return Entry(key, name, note=note, value=self.block(placed))
        lines = None if self.hides(placed) else block_text(placed.node.value)
        if lines is not None:
            header, _, body = lines.partition("\n")
            return Entry(key, name, value=Leaf(f"{header}{placed.origin}\n{body}", literal=True))
        return Entry(key, name, note=placed.origin, value=Leaf(text))

    def one_line(self, placed: _Placed) -> str | None:
        """Return a value for one line; None for a collection that was not written on one."""
        if placed.node.children is None:
            return self.scalar(placed)
        if not placed.is_flow:
            return None
        parts = []
        for part, _, below in placed.entries():
            text = self.one_line(below) if below.origin == placed.origin else None
            if text is None:
                return None
            parts.append(f"{text_scalar(part)}: {text}" if isinstance(part, str) else text)
        listed = ", ".join(parts)
        return f"{{{listed}}}" if isinstance(placed.node.children, dict) else f"[{listed}]"

    def scalar(self, placed: _Placed) -> str:
        if self.hides(placed):
            self.masked = True
            return f'{MASKED_TAG} "{MASK}"'
        return scalar_text(placed.node)

    def hides(self, placed: _Placed) -> bool:
        """Return whether a scalar is the value of an environment variable that must not be shown."""
        return not self.show_env and placed.path[-3:-1] == ("engine", "env")
