"""The bases of a fleet document: the files that its `extends` names, read from the same tree and merged below it.

The bases are merged in one order, each once, where it is first reached: a base comes after the files that it extends,
the bases of one list keep their order, and the document is last. The later one wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

from fleetctl.documents.position import Path
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.file_tree import FileTree
from fleetctl.fleetfile.merge import merge
from fleetctl.fleetfile.named_file import NamedFile
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.sources import STDIN_NAME, SourceBytes
from fleetctl.fleetfile.validate import foreign_problem, validate_base
from fleetctl.problem import Problem

MAX_DEPTH = 16
MAX_BASES = 100


_Trail = dict[str, str]
"""The files that lead to a name, by identity: the document first, then base after base."""

_Line = dict[str, tuple[Document, NamedFile]]
"""Bases in the order they are merged, by the identity of their file, each with the name that led to it."""


@dataclass
class Bases:
    """The bases of one run, whose own files are `given`.

    `read` are the files of the bases in reading order, `problems` the problems of these files.
    """

    given: Sequence[str]
    tree: FileTree
    read: list[SourceBytes] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    _composed: dict[str, Document | None] = field(default_factory=dict)
    _brought: dict[str, str] = field(default_factory=dict)
    _followed: int = 0

    def stack(self, document: Document) -> tuple[Document, bool]:
        """Merge a document with all its bases. A base that cannot be read is a problem; the rest is merged.

        Return whether every base could be read as well: only then a missing key is really missing.
        """
        if not isinstance(document.value, dict) or "extends" not in document.value or foreign_problem(document):
            return document, True
        line: _Line = {}
        self._followed = 0
        whole = self._follow_all(document, {self._identity(document.source.file): document.source.file}, line)
        self._brought |= {identity: name.place for identity, (_, name) in line.items()}
        return reduce(merge, [*(base for base, _ in line.values()), document]), whole

    def _follow_all(self, document: Document, trail: _Trail, line: _Line) -> bool:
        """Add the bases of a document to the line; return False when one of them could not be read."""
        whole, here = True, set[str]()
        for name in _names(document):
            if name is None:
                whole = False
                continue
            try:
                self._followed += 1
                if self._followed > MAX_BASES + 1:
                    return False
                if self._followed > MAX_BASES:
                    raise name.refused(f"more than {MAX_BASES} files are extended, with those that the bases extend",
                                       code="FL055")
                identity = name.find(self.tree, next(iter(trail.values())))
                if identity in here:
                    raise name.refused(f"{name.file} is named twice in this list", code="FL056")
                here.add(identity)
                whole = self._follow(name, identity, trail, line) and whole
            except FleetFileError as error:
                self.problems += error.problems
                whole = False
        return whole

    def _follow(self, name: NamedFile, identity: str, trail: _Trail, line: _Line) -> bool:
        self._refuse(name, identity, trail)
        if identity in line:
            return True
        if identity not in self._composed:
            self._composed[identity] = self._compose(name)
        base = self._composed[identity]
        if base is None:
            return False
        whole = self._follow_all(base, {**trail, identity: name.file}, line)
        line[identity] = base, name
        return whole

    def _refuse(self, name: NamedFile, identity: str, trail: _Trail) -> None:
        if identity in trail:
            files = list(trail.values())[list(trail).index(identity):]
            raise name.refused(f"a circle: {' -> '.join([*files, name.file])}", code="FL055")
        if len(trail) > MAX_DEPTH:
            raise name.refused(f"the files extend each other more than {MAX_DEPTH} levels deep", code="FL055")
        if identity in self._own_files:
            raise name.refused(f"{name.file} is given with -f as well, so its models would count twice",
                               code="FL056", allowed="one of the two: it is read because it is named here")
        if identity in self._brought:
            raise name.refused(f"{name.file} is extended already by another document of this run, "
                               f"at {self._brought[identity]}", code="FL056", allowed="one document that extends it")

    def _compose(self, name: NamedFile) -> Document | None:
        """Read and compose a base; None where it has problems of its own, which are kept."""
        source = name.read(self.tree)
        self.read.append(source)
        composed = compose_bytes(source)
        problems = list(composed.problems)
        if len(composed.documents) == 1:
            problems += validate_base(composed.documents[0])
        elif not composed.broken:
            raise name.refused(f"{name.file} holds {len(composed.documents) or 'no'} documents", code="FL036",
                               allowed="one Fleet document in a file that others extend")
        self.problems += problems
        return None if problems else composed.documents[0]

    @cached_property
    def _own_files(self) -> frozenset[str]:
        return frozenset(self._identity(file) for file in self.given)

    def _identity(self, file: str) -> str:
        return file if file == STDIN_NAME else self.tree.identity(file)


def _names(document: Document) -> Iterator[NamedFile | None]:
    """Yield what `extends` names; None for a value of another type, which validation reports."""
    value = document.value.get("extends")
    entries = enumerate(value) if isinstance(value, list) else () if value is None else [(None, value)]
    for index, item in entries:
        path: Path = ("extends",) if index is None else ("extends", index)
        yield NamedFile(document, path, item, "FL018") if isinstance(item, str) and item else None
