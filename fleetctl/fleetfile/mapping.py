"""Lists and mappings under construction. Reports duplicate keys and keys that are not text; applies merge keys."""

from __future__ import annotations

from collections.abc import Callable

from fleetctl.fleetfile.nodes import Children, Entry, Node
from fleetctl.fleetfile.text import SourceText

DUPLICATE_KEY = "FL010"

Note = Callable[..., None]
"""Reports a problem: code, offset, message, and optionally `allowed` and `suggestion`."""


class OpenList:
    """A list under construction."""

    def __init__(self, at: int, anchor: str | None) -> None:
        self.items: list[Entry] = []
        self.node = Node(at, [], self.items)
        self.anchor = anchor

    def add(self, node: Node, at: int) -> None:
        """Append an item; `at` is the offset of the item, or of the alias to it."""
        self.items.append((at, at, node))
        self.node.value.append(node.value)

    def close(self) -> Node:
        """Return the list."""
        return self.node


class OpenMapping:
    """A mapping under construction; keys and values are added in turn."""

    def __init__(self, at: int, anchor: str | None, source: SourceText, note: Note) -> None:
        self.entries: Children = {}
        self.node = Node(at, {}, self.entries)
        self.anchor = anchor
        self._source = source
        self._note = note
        self._key: tuple[Node, int] | None = None
        self._merges: list[Children] = []
        self._merged_at = -1

    def add(self, node: Node, at: int) -> None:
        """Add a key, or the value of the key added before."""
        if self._key is None:
            self._key = (node, at)
            return
        key, key_at = self._key
        self._key = None
        if key.plain and key.raw == "<<":
            self._merge(node, key_at)
            return
        name = self._name(key, key_at)
        if name is None:
            return
        if name in self.entries:
            self._duplicate(name, self.entries[name][0], key_at)
            return
        self.entries[name] = (key_at, at, node)
        self.node.value[name] = node.value

    @property
    def open_key(self) -> str | None:
        """The key whose value comes next."""
        return self._key[0].raw if self._key else None

    def close(self) -> Node:
        """Return the mapping with its merge keys applied: its own keys win, then the earlier source."""
        for merged in self._merges:
            for name, (_, _, node) in merged.items():
                if name not in self.entries:
                    self.entries[name] = (self._merged_at, self._merged_at, node)
                    self.node.value[name] = node.value
        return self.node

    def _name(self, key: Node, at: int) -> str | None:
        if isinstance(key.value, str):
            return key.value
        if key.children is not None:
            self._note("FL011", at, "a list or mapping is used as a key", allowed="text")
            return None
        self._note("FL011", at, f"the key {key.raw or 'null'} is not text", allowed="text", suggestion=f'"{key.raw}"')
        return key.raw

    def _duplicate(self, name: str, first: int, at: int) -> None:
        line, column = self._source.position(first)
        self._note(DUPLICATE_KEY, at, f'duplicate key "{name}"; the first is at {line}:{column}')

    def _merge(self, node: Node, at: int) -> None:
        if self._merged_at >= 0:
            self._duplicate("<<", self._merged_at, at)
        self._merged_at = at
        sources = [entry[2] for entry in node.children] if isinstance(node.children, list) else [node]
        mappings = [source.children for source in sources if isinstance(source.children, dict)]
        if len(mappings) < len(sources):
            self._note("FL015", at, "<< merges only mappings", allowed="<<: *a or <<: [*a, *b], aliases of mappings")
        self._merges.extend(mappings)


OpenCollection = OpenList | OpenMapping
"""A collection whose end has not been read yet."""
