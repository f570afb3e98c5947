"""Reads a foreign document so that nothing in it can be dropped silently.

A Reading is a view of one value. Values that an importer reads through it are recorded as read, values it gives up as
lost, and `Record.close` reports all others. So a field that no importer knows is still reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, TypeVar

from fleetctl.documents.position import Path, Position, path_text
from fleetctl.fleetfile.nodes import Document, Node
from fleetctl.importers.draft import Draft, Kind, Loss

Value = TypeVar("Value", str, int, bool, dict[str, Any], list[Any])
_UNREAD = "the import does not know this field"
_LIMIT = 1 << 31
_WORDS = {str: "text", int: "a whole number", bool: "true or false", dict: "a mapping", list: "a list"}


@dataclass(slots=True)
class Record:
    """The parts of one document that were read, and those that were reported.

    `done` = the paths of values read or reported as a whole; `entered` = the paths of opened collections; `homes` = the
    model, and the path in it, that a part of the document became; `within` = the path of the text that holds this
    document, if it is a text in another document. `runtime` = the container runtime that starts images; None = they are
    lost. `image` = that of the Ray cluster in which a Serve config would run.
    """

    document: Document
    within: Path = ()
    runtime: str | None = None
    image: str | None = None
    losses: dict[tuple[Path, str], Loss] = field(default_factory=dict)
    done: set[Path] = field(default_factory=set)
    entered: set[Path] = field(default_factory=set)
    homes: dict[Path, tuple[str, Path]] = field(default_factory=dict)

    def report(self, path: Path, message: str, kind: Kind) -> None:
        """Add a loss at a path; the same loss is reported once."""
        model, home = self.home_of(path)
        place = self.document.position(path, key=True)
        loss = Loss(place, path_text((*self.within, *path)), message, kind, model, home)
        self.losses.setdefault((path, message), loss)

    def close(self) -> list[Loss]:
        """Report everything that no importer has read, and return all losses in the order of the document."""
        for path in _unread(self.document.root, (), self):
            self.report(path, _UNREAD, "lost")
        return sorted(self.losses.values(),
                      key=lambda loss: (loss.place.line, loss.place.column) if loss.place else (0, 0))

    def home_of(self, path: Path) -> tuple[str | None, Path]:
        """Return the home of a path: that of its nearest ancestor with one, or (None, ())."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.homes:
                return self.homes[path[:length]]
        return None, ()


@dataclass(frozen=True, slots=True)
class Reading:
    """A view of the value at `path`, for most methods a mapping; a missing or wrong value reads as an empty mapping."""

    record: Record
    node: Node | None
    path: Path = ()

    @property
    def value(self) -> Any:  # noqa: ANN401 (any YAML value)
        """The value itself; looking at it does not count as reading."""
        return self.node.value if self.node else None

    @property
    def place(self) -> Position:
        """Where the value is."""
        return self.record.document.position(self.path)

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping, as most methods expect."""
        return isinstance(self.value, dict)

    @property
    def names(self) -> list[str]:
        """The keys of the mapping; looking at them does not count as reading."""
        return list(self.value) if isinstance(self.value, dict) else []

    def __contains__(self, key: str) -> bool:
        return key in self.names

    def peek(self, *path: str) -> Any:  # noqa: ANN401 (any YAML value)
        """Return the value at a path of keys, or None; looking at it does not count as reading."""
        node = self.node
        for key in path:
            node = node.child(key) if node else None
        return node.value if node else None

    def written(self, key: str | int) -> str | None:
        """Return the scalar under a key as written, or None; looking at it does not count as reading."""
        node = self._below(key).node
        return node.raw if node and node.children is None and node.value is not None else None

    def at(self, path: Path) -> Reading:
        """Return a view of another place of the same document."""
        return Reading(self.record, self.record.document.node(path), path)

    def goes_to(self, model: str, home: Path = ()) -> Reading:
        """Set the home of this value, a path in a model, so that its losses are shown there."""
        self.record.homes.setdefault(self.path, (model, home))
        return self

    def leads_to(self, key: str, *steps: str) -> None:
        """Set the home of the value under a key: `steps` below the home of this value."""
        model, home = self.record.home_of(self.path)
        if model is not None:
            self.record.homes.setdefault((*self.path, key), (model, (*home, *steps)))

    def child(self, key: str) -> Reading:
        """Return the mapping under a key, and record that it was opened."""
        below = self._below(key)
        if self._typed(key, dict) is not None:
            self.record.entered.add(below.path)
        return below

    def items(self, key: str) -> list[Reading]:
        """Return the mappings in the list under a key, and record that they were opened; other items are reported."""
        entries = self.entries(key)
        for entry in entries:
            if not entry.is_mapping:
                entry.lose(None, f"not read: expected {_WORDS[dict]}")
        return [entry for entry in entries if entry.is_mapping]

    def entries(self, key: str) -> list[Reading]:
        """Return all items of the list under a key; mappings among them count as opened, other values do not."""
        listed, below = self._typed(key, list), self._below(key)
        if listed is None:
            return []
        readings = [below._below(index) for index in range(len(listed))]
        self.record.entered.update([below.path, *(reading.path for reading in readings if reading.is_mapping)])
        return readings

    def text(self, key: str) -> str | None:
        """Return the text under a key."""
        return self._take(key, str)

    def whole(self, key: str) -> int | None:
        """Return the whole number under a key."""
        return self._take(key, int)

    def natural(self, key: str) -> int | None:
        """Return the whole number under a key; a negative one, or one of 2^31 or more, is reported."""
        number = self.whole(key)
        if number is None or 0 <= number < _LIMIT:
            return number
        self.lose(key, f"not read: expected {_WORDS[int]} from 0 to {_LIMIT - 1}")
        return None

    def count(self, key: str, what: str, *, least: int = 0, most: float = inf, kind: Kind = "todo") -> int:
        """Return the number under a key; 1 if there is none, or, reported, if it is out of range."""
        number = self.whole(key)
        if number is None or least <= number <= most:
            return 1 if number is None else number
        self.note(key, f"not a valid number of {what}: 1 is used", kind)
        return 1

    def flag(self, key: str) -> bool | None:
        """Return the boolean under a key."""
        return self._take(key, bool)

    def amount(self, key: str) -> str | int | float | None:
        """Return a quantity as written: text, or a number."""
        value = self.peek(key)
        if isinstance(value, float) and not isfinite(value):
            self.lose(key, "not read: expected a finite number")
            return None
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            self.record.done.add((*self.path, key))
            return value
        return self.text(key)

    def texts(self, key: str) -> list[tuple[str, Path]]:
        """Return the texts in the list under a key, each with its path; other scalars are taken as written."""
        listed = self._typed(key, list)
        if listed is None:
            return []
        below = self._below(key)
        self.record.entered.add(below.path)
        return [(text, (*below.path, index)) for index in range(len(listed))
                if (text := below._scalar(index)) is not None]

    def pairs(self) -> dict[str, str]:
        """Return the texts in this mapping; other scalars are taken as written."""
        found = {name: self._scalar(name) for name in self.names}
        return {name: text for name, text in found.items() if text is not None}

    def scalar(self, key: str) -> str | None:
        """Return the scalar of any type under a key as written."""
        return self._scalar(key) if key in self else None

    def take(self) -> None:
        """Record this value, and everything in it, as read."""
        self.record.done.add(self.path)

    def skip(self, *keys: str) -> None:
        """Record keys as read that mean nothing for a fleet file."""
        self.record.done.update((*self.path, key) for key in keys if key in self)

    def lose(self, key: str | int | None, message: str, kind: Kind = "lost") -> None:
        """Report the value under a key, or this value, as lost with everything in it; a missing value is not a loss."""
        path = self.path if key is None else (*self.path, key)
        if (self.node if key is None else self._below(key).node) is not None:
            self.record.done.add(path)
            self.record.report(path, message, kind)

    def note(self, key: str | None, message: str, kind: Kind) -> None:
        """Report something about a value that is read, or missing."""
        self.record.report(self.path if key is None else (*self.path, key), message, kind)

    def lose_each(self, reasons: Mapping[str, str]) -> None:
        """Report every present key of the table as lost, with its reason."""
        for key, reason in reasons.items():
            self.lose(key, reason)

    def lose_rest(self, message: str) -> None:
        """Report every key of this mapping that was not read so far."""
        for key in self.names:
            if (*self.path, key) not in self.record.done and (*self.path, key) not in self.record.entered:
                self.lose(key, message)

    def _below(self, part: str | int) -> Reading:
        return Reading(self.record, self.node.child(part) if self.node else None, (*self.path, part))

    def _take(self, key: str, kind: type[Value]) -> Value | None:
        value = self._typed(key, kind)
        if value is not None:
            self.record.done.add((*self.path, key))
        return value

    def _typed(self, key: str, kind: type[Value]) -> Value | None:
        """Return the value under a key if it is of this type; another type is reported, null counts as missing."""
        value = self.peek(key)
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        if value is None:
            self.skip(key)
        else:
            self.lose(key, f"not read: expected {_WORDS[kind]}")
        return None

    def _scalar(self, part: str | int) -> str | None:
        path, text = (*self.path, part), self.written(part)
        self.record.done.add(path)
        if text is None:
            self.record.report(path, f"not read: expected {_WORDS[str]}", "lost")
        return text


def is_duplicate(reading: Reading, key: str, draft: Draft) -> bool:
    """Return whether the draft already has a model with this key; a duplicate is reported, and the first stays."""
    if key not in draft.places:
        return False
    first = draft.places[key]
    reading.lose(None, f"duplicate model key {key}{f'; the first is from {first.file}:{first.line}' if first else ''}")
    return True


def _unread(node: Node, path: Path, record: Record) -> Iterator[Path]:
    """Yield the paths of unread values; of nested ones only the topmost."""
    if path in record.done:
        return
    if path and path not in record.entered:
        yield path
        return
    parts = node.children.items() if isinstance(node.children, dict) else enumerate(node.children or ())
    for part, entry in parts:
        yield from _unread(entry[2], (*path, part), record)
