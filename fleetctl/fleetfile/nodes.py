"""A composed YAML document: plain values, and for each value its file, its offset and the offset of its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.documents.position import Path, Position
from fleetctl.fleetfile.text import SourceText
from fleetctl.problem import Problem

Value = Any
"""A YAML value: dict with text keys, list, text, number, boolean or None."""


@dataclass(slots=True, eq=False)
class Node:
    """One value. `raw` = the text of a scalar as written, without quotes; `plain` = it has no quotes.

    `children` = the entries of a mapping by key, or of a list; None for a scalar. `size` = the number of nodes of the
    value, counting each alias in full, and a long text as several.
    """

    at: int
    value: Value
    children: Children | list[Entry] | None = None
    raw: str = ""
    plain: bool = False
    size: int = 1

    def entry(self, part: str | int) -> Entry | None:
        """Return the entry under a key or index, or None."""
        if isinstance(self.children, dict) and isinstance(part, str):
            return self.children.get(part)
        if isinstance(self.children, list) and isinstance(part, int) and part < len(self.children):
            return self.children[part]
        return None

    def child(self, part: str | int) -> Node | None:
        """Return the value under a key or index, or None."""
        entry = self.entry(part)
        return entry[2] if entry else None

    def source_of(self, part: str | int, own: SourceText) -> SourceText:  # noqa: ARG002  MergedNode overrides this
        """Return the file of an entry; `own` is the file of this node."""
        return own


Entry = tuple[int, int, Node]
"""The offset of the key, the offset of the value (or of its alias or merge key), and the value."""

Children = dict[str, Entry]


@dataclass(slots=True, eq=False)
class MergedNode(Node):
    """A collection whose entries come from several files; `sources` = the file of each entry, by key or index."""

    sources: Mapping[Any, SourceText] = field(default_factory=dict)

    def source_of(self, part: str | int, own: SourceText) -> SourceText:  # noqa: ARG002  every entry has its own
        """Return the file of an entry."""
        return self.sources[part]


def size_of(node: Node | None) -> int:
    """Return the number of values in a node; `size` is not set for a merged node."""
    if not isinstance(node, MergedNode):
        return node.size if node else 0
    children = node.children.values() if isinstance(node.children, dict) else node.children or ()
    return 1 + sum(size_of(child) for *_, child in children)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document. If it is merged from several files, `source` is the last of them; each value has its own."""

    source: SourceText
    root: Node

    @property
    def value(self) -> Value:
        """The document as dicts, lists and scalars."""
        return self.root.value

    def node(self, path: Path) -> Node | None:
        """Return the node at a path, or None if there is none."""
        node: Node | None = self.root
        for part in path:
            node = node.child(part) if node else None
        return node

    def locate(self, path: Path, *, key: bool = False) -> tuple[SourceText, int]:
        """Return the file of the value at `path`, and the offset of the value, or of its key, in that file.

        If the value is missing, return those of the nearest key above it.
        """
        source, node, at, value_at = self.source, self.root, self.root.at, self.root.at
        for part in path:
            entry = node.entry(part)
            if entry is None:
                return source, at
            source = node.source_of(part, source)
            at, value_at, node = entry
        return source, at if key else value_at

    def place(self, path: Path, *, key: bool = False) -> Position:
        """Return the position of the value at `path`, or of its key; see `locate`."""
        source, offset = self.locate(path, key=key)
        line, column = source.position(offset)
        return Position(file=source.file, line=line, column=column)

    def problem(
        self, code: str, path: Path, message: str, *, key: bool = False, allowed: str | None = None,
        suggestion: str | None = None, secret: bool = False,
    ) -> Problem:
        """Make a problem at a path: at its value, or with `key` at its key; `secret` hides the source line."""
        source, offset = self.locate(path, key=key)
        return source.problem(code, offset, message, path=path, allowed=allowed, suggestion=suggestion,
                              secret=secret or "env" in path or path[-1:] == ("http",))
