"""The bases of a fleet document: the files named by its `extends`, read from the same tree and merged below it.

Each base is merged once, in depth-first order: a base comes after the files it extends, the bases of one list keep
their order, and the document is last. The later one wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

from fleetctl.documents.position import Path
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.file_tree import FileTree
from fleetctl.fleetfile.merge import merge
from fleetctl.fleetfile.named_file import NamedFile
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.sources import LARGE_IN_ALL, MAX_ALL_BYTES, STDIN_NAME, SourceBytes
from fleetctl.fleetfile.validate import foreign_problem, validate_base
from fleetctl.problem import Problem

MAX_DEPTH = 16
MAX_BASES = 100

_Trail = dict[str, str]
"""The chain of files that leads to a name, by identity, from the document through its bases."""

_Order = dict[str, tuple[Document, NamedFile]]
"""Bases in merge order, by the identity of their file, each with the name that led to it."""


@dataclass
class Bases:
    """The bases of one run. `given` = the run's own files; `read` = the bases read so far; `problems` = theirs.

    `size` = the number of values in all files so far.
    """

    given: Sequence[SourceBytes]
    tree: FileTree
    size: int = 0
    read: list[SourceBytes] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    _composed: dict[str, Document | None] = field(default_factory=dict)
    _extended_at: dict[str, str] = field(default_factory=dict)
    """The place at which an earlier document extends a base, by the identity of the base."""
    _followed: int = 0

    def stack(self, document: Document) -> tuple[Document, bool]:
        """Merge a document with all its bases; a base that cannot be read is a problem and is left out.

        Also return whether every base could be read: only then is a missing key really missing.
        """
        if not isinstance(document.value, dict) or "extends" not in document.value or foreign_problem(document):
            return document, True
        order: _Order = {}
        self._followed = 0
        whole = self._follow_all(document, {self._identity(document.source.file): document.source.file}, order)
        self._extended_at |= {identity: name.place for identity, (_, name) in order.items()}
        return reduce(merge, [*(base for base, _ in order.values()), document]), whole

    def _follow_all(self, document: Document, trail: _Trail, order: _Order) -> bool:
        """Add the bases of a document to `order`; return False if one of them could not be read."""
        whole, in_list = True, set[str]()
        for name in _names(document):
            if name is None:
                whole = False
                continue
            try:
                self._followed += 1
                if self._followed > MAX_BASES + 1:
                    return False
                if self._followed > MAX_BASES:
                    raise name.refused(f"more than {MAX_BASES} files are extended, directly or through bases",
                                       code="FL055")
                identity = name.find(self.tree, next(iter(trail.values())))
                if identity in in_list:
                    raise name.refused(f"{name.file} is named twice in this list", code="FL056")
                in_list.add(identity)
                whole = self._follow(name, identity, trail, order) and whole
            except FleetFileError as error:
                self.problems += error.problems
                whole = False
        return whole

    def _follow(self, name: NamedFile, identity: str, trail: _Trail, order: _Order) -> bool:
        self._check(name, identity, trail)
        if identity in order:
            return True
        if identity not in self._composed:
            self._composed[identity] = self._compose(name)
        base = self._composed[identity]
        if base is None:
            return False
        whole = self._follow_all(base, {**trail, identity: name.file}, order)
        order[identity] = base, name
        return whole

    def _check(self, name: NamedFile, identity: str, trail: _Trail) -> None:
        if identity in trail:
            files = list(trail.values())[list(trail).index(identity):]
            raise name.refused(f"files extend each other in a cycle: {' -> '.join([*files, name.file])}", code="FL055")
        if len(trail) > MAX_DEPTH:
            raise name.refused(f"files extend each other more than {MAX_DEPTH} levels deep", code="FL055")
        if identity in self._own_files:
            raise name.refused(f"{name.file} is also given with -f, so its models would count twice", code="FL056",
                               allowed="one of the two; a file named here is read without -f")
        if identity in self._extended_at:
            raise name.refused(f"{name.file} is already extended by another document, at {self._extended_at[identity]}",
                               code="FL056", allowed="one document that extends it")

    def _compose(self, name: NamedFile) -> Document | None:
        """Read and compose a base; None if it has problems of its own, which are collected."""
        source = name.read(self.tree)
        if sum(len(one.data) for one in (*self.given, *self.read, source)) > MAX_ALL_BYTES:
            raise name.refused(f"{name.file}: {LARGE_IN_ALL}")
        self.read.append(source)
        composed = compose_bytes(source, self.size)
        self.size += composed.size
        problems = list(composed.problems)
        if len(composed.documents) == 1:
            problems += validate_base(composed.documents[0])
        elif not composed.broken:
            raise name.refused(f"{name.file} holds {len(composed.documents) or 'no'} documents", code="FL036",
                               allowed="exactly one Fleet document in a base")
        self.problems += problems
        return None if problems else composed.documents[0]

    @cached_property
    def _own_files(self) -> frozenset[str]:
        return frozenset(self._identity(source.file) for source in self.given)

    def _identity(self, file: str) -> str:
        return file if file == STDIN_NAME else self.tree.identity(file)


def _names(document: Document) -> Iterator[NamedFile | None]:
    """Yield the files named by `extends`; None for a value of the wrong type, which validation reports."""
    value = document.value.get("extends")
    entries: list[tuple[Path, Any]] = [] if value is None else [(("extends",), value)]
    if isinstance(value, list):
        entries = [(("extends", index), item) for index, item in enumerate(value)]
    for path, item in entries:
        yield NamedFile(document, path, item, "FL018") if isinstance(item, str) and item else None
