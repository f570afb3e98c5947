"""Tolerant views of a document that may have errors: values of the wrong type read as missing.

The rules read documents through these views, so a bad quantity in one model does not hide a missing Leader in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fleetctl.documents.position import Path
from fleetctl.fleetfile.nodes import Document, Value
from fleetctl.problem import Problem


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
        return (Raw(self.document, path, item) for path, item in self._listed(key) if isinstance(item, dict))

    def texts(self, key: str) -> Iterator[tuple[Path, str]]:
        """Yield the texts in the list under a key, each with its path."""
        return ((path, item) for path, item in self._listed(key) if isinstance(item, str))

    def _listed(self, key: str) -> Iterator[tuple[Path, Value]]:
        value = self.value.get(key)
        return (((*self.path, key, index), item) for index, item in enumerate(value if isinstance(value, list) else ()))

    def at(self, key: str | None = None) -> str:
        """Return `file:line:column` of this mapping or of one of its keys, for a problem at another place."""
        path = self.path if key is None else (*self.path, key)
        return str(self.document.place(path, key=key is not None))

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
