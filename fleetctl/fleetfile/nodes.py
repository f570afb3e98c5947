"""A composed YAML document: plain values, and for each value its file, its offset and the offset of its key.

The rules read documents through tolerant views, `Raw`: values of the wrong type read as missing, so a bad quantity in
one model does not hide a missing Leader in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.documents.position import Path, Position
from fleetctl.fleetfile.sources import SourceText
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
    children: Children | list[ChildNode] | None = None
    raw: str = ""
    plain: bool = False
    size: int = 1

    def entry(self, part: str | int) -> ChildNode | None:
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


ChildNode = tuple[int, int, Node]
"""The offset of the key, the offset of the value (or of its alias or merge key), and the value."""

Children = dict[str, ChildNode]


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

    def position(self, path: Path, *, key: bool = False) -> Position:
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


@dataclass(frozen=True, slots=True)
class Raw:
    """One mapping of a document, with the path that leads to it."""

    document: Document
    path: Path
    value: dict[str, Value]

    def get(self, key: str) -> Value:
        """Return the value of a key as written, or None."""
        return self.value.get(key)

    def text(self, key: str) -> str | None:
        """Return the value of a key if it is text, or None."""
        value = self.value.get(key)
        return value if isinstance(value, str) else None

    def child(self, key: str) -> Raw:
        """Return the mapping under a key, or an empty one."""
        value = self.value.get(key)
        return Raw(self.document, (*self.path, key), value if isinstance(value, dict) else {})

    def items(self, key: str) -> Iterator[Raw]:
        """Yield the mappings in the list under a key."""
        listed = self.value.get(key)
        return (Raw(self.document, (*self.path, key, index), item)
                for index, item in enumerate(listed if isinstance(listed, list) else ()) if isinstance(item, dict))

    def texts(self, key: str) -> Iterator[tuple[Path, str]]:
        """Yield the texts in the list under a key, each with its path."""
        listed = self.value.get(key)
        return (((*self.path, key, index), item)
                for index, item in enumerate(listed if isinstance(listed, list) else ()) if isinstance(item, str))

    def at(self, key: str | None = None) -> str:
        """Return `file:line:column` of this mapping or of one of its keys, for a problem at another place."""
        path = self.path if key is None else (*self.path, key)
        return str(self.document.position(path, key=key is not None))

    def problem(self, code: str, message: str, *, key: str | None = None, on_key: bool = False,
                allowed: str | None = None, suggestion: str | None = None) -> Problem:
        """Make a problem at this mapping, at the value of one of its keys, or at the key itself."""
        path = self.path if key is None else (*self.path, key)
        return self.document.problem(code, path, message, key=on_key, allowed=allowed, suggestion=suggestion)


def root(document: Document) -> Raw:
    """Return the whole document as a view."""
    return Raw(document, (), document.value if isinstance(document.value, dict) else {})


def models(document: Document) -> Iterator[Raw]:
    """Yield the models of one document."""
    return root(document).child("spec").items("models")


def alternatives(model: Raw) -> list[Raw]:
    """Return the ways to run a model, or a shape: itself, unless it only has variants, and its variants."""
    variants = list(model.items("variants"))
    return [*([] if variants and "workers" not in model.value else [model]), *variants]


def shapes_of(document: Document) -> Iterator[Raw]:
    """Yield the shapes of one document."""
    shapes = root(document).child("spec").child("shapes")
    return (shapes.child(name) for name, shape in shapes.value.items() if isinstance(shape, dict))


def repeated(views: Iterable[Raw], key: str) -> Iterator[tuple[Raw, Raw]]:
    """Yield each view whose text under `key` repeats an earlier one, after the first view with that text."""
    first: dict[str, Raw] = {}
    for view in views:
        text = view.text(key)
        if text is not None and text in first:
            yield first[text], view
        elif text is not None:
            first[text] = view
