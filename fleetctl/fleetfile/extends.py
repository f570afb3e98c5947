"""What a fleet document builds on: the files named by its `extends`, and the shapes named by its models and variants.

A named file is found relative to the file that names it, and only inside the same checkout.

Each base is merged once, in depth-first order: a base comes after the files it extends, the bases of one list keep
their order, and the document is last. The later one wins. Shapes are merged below the models and variants that name
them before anything else is checked: after that every one has workers of its own, and plans, diffs and spec hashes know
nothing of shapes.

In a merge the later one wins key by key, and every value keeps its file. Lists of named items merge by name, and no
item can be removed; any other list is replaced as a whole.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

from fleetctl.documents.fleet import FleetDocument
from fleetctl.documents.names import nearest
from fleetctl.documents.position import Path
from fleetctl.documents.quantity import some
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import MANY_FLEETS, MAX_NODES, compose_bytes
from fleetctl.fleetfile.file_tree import FileTree, allowed_in_checkout
from fleetctl.fleetfile.keys import exclusive_keys, keys_of
from fleetctl.fleetfile.nodes import ChildNode, Document, MergedNode, Node, Raw, Value, models, shapes_of, size_of
from fleetctl.fleetfile.sources import (
    LARGE_IN_ALL,
    MAX_ALL_BYTES,
    MAX_FILE_BYTES,
    STDIN_NAME,
    SourceBytes,
    SourceText,
    nearest_file,
    read_file,
    why_unreadable,
)
from fleetctl.fleetfile.validate import MAX_FOUND, OWN_KEYS, foreign_problem, validate_base
from fleetctl.problem import Problem

_Keys = tuple[str, ...]
"""The keys that lead to a value, without list indices."""

_MODELS: _Keys = ("spec", "models")
_VARIANTS: _Keys = (*_MODELS, "variants")
_OF_A_VARIANT = frozenset({"workers", "placement", "model"})
"""What a shape gives a variant; the rest of a variant is its model's."""
_CONCATENATED: _Keys = ("spec", "nodes")


@dataclass(frozen=True, slots=True)
class _Placed:
    """A value with the offsets of its key and value, and its file."""

    entry: ChildNode
    source: SourceText

    @property
    def node(self) -> Node:
        return self.entry[2]

    def below(self, part: str | int) -> _Placed:
        """Return the entry under a key or index that exists."""
        children: Any = self.node.children
        return _Placed(children[part], self.node.source_of(part, self.source))

    def holding(self, node: Node) -> _Placed:
        """Return another value at the same place."""
        return _Placed((*self.entry[:2], node), self.source)


def merge(base: Document, over: Document) -> Document:
    """Return `over` merged over `base`. Both are mappings, and neither is changed."""
    inherited = _part_of(base, [key for key in base.value if key not in OWN_KEYS])
    return Document(over.source, _both(_top(inherited), _top(over), ()).node)


def join(documents: Sequence[Document]) -> Document:
    """Return all documents of one valid fleet as one, without bases and shapes; keys they share have equal values."""
    joined = list(documents)
    while len(joined) > 1:  # pairwise: one file at a time would copy everything joined so far for each file
        joined = [reduce(merge, joined[first:first + 2]) for first in range(0, len(joined), 2)]
    whole = _with_models(joined[0], lambda _, model: model, without="shapes")
    return _part_of(whole, [key for key in keys_of(FleetDocument) if key in whole.value and key != "extends"])


def with_defaults(document: Document) -> Document:
    """Return a joined fleet with `spec.defaults` merged into each of its models."""
    if document.node(("spec", "defaults")) is None:
        return document
    defaults = _top(document).below("spec").below("defaults")
    return _with_models(document, lambda _, model: _both(defaults, model, _MODELS))


def in_each_variant(document: Document) -> list[Document]:
    """Return a joined fleet as often as the largest number of variants says, at least once: with each model in its
    first variant, its second one, and so on. A model with fewer is there in its last one.
    """
    most = max((len(list(model.items("variants"))) for model in models(document)), default=0)

    def in_variant(model: _Placed, place: int) -> _Placed:
        listed = model.node.value.get("variants") if isinstance(model.node.value, dict) else None
        variants = [number for number, one in enumerate(listed if isinstance(listed, list) else ())
                    if isinstance(one, dict)]
        if not variants:
            return model
        variant = model.below("variants").below(variants[min(place, len(variants) - 1)])
        own = {key: variant.below(key) for key in variant.node.value if key in _OF_A_VARIANT}
        return _both(model, model.holding(_mapping_of(model.node.at, own)), ())

    return [_with_models(document, lambda _, model, place=place: in_variant(model, place))  # type: ignore[misc]
            for place in range(most)] or [document]


def with_shapes(document: Document, found: Mapping[Path, tuple[Document, str]]) -> Document:
    """Return a fleet with its models and variants merged over their shapes.

    `found` = the document and the name of the shape by the path of the model or variant. The `shape` there is a name,
    or a mapping whose `workers` are merged over those of the shape.
    """
    def shaped(path: Path, keys: _Keys, user: _Placed) -> _Placed:
        if path not in found:
            return user
        home, name = found[path]
        use, shape = user.below("shape"), _top(home).below("spec").below("shapes").below(name)
        if keys == _VARIANTS and isinstance(shape.node.value, dict):
            shape = shape.holding(_mapping_of(shape.node.at, {
                key: shape.below(key) for key in shape.node.value if key in _OF_A_VARIANT}))
        own = {key: user.below(key) for key in user.node.value if key != "shape"}
        if isinstance(use.node.value, dict) and "workers" in use.node.value:
            own["workers"] = use.below("workers")
        return _both(shape, user.holding(_mapping_of(user.node.at, own)), keys)

    with_variants = {path[:3] for path in found if len(path) > 3}

    def whole(index: int, model: _Placed) -> _Placed:
        path: Path = (*_MODELS, index)
        if path in with_variants:
            listed = model.below("variants")
            changed = [shaped((*path, "variants", place), _VARIANTS, listed.below(place))
                       for place in range(len(listed.node.value))]
            keys = {key: model.below(key) for key in model.node.value}
            model = model.holding(_mapping_of(model.node.at, keys | {
                "variants": listed.holding(_list_of(listed.node.at, changed))}))
        return shaped(path, _MODELS, model)

    return _with_models(document, whole)


def _with_models(document: Document, change: Callable[[int, _Placed], _Placed], *, without: str = "") -> Document:
    """Return a document with `change` applied to each of its models, and `without` a key of spec."""
    spec = _top(document).below("spec")
    keys = {key: spec.below(key) for key in spec.node.value if key != without}
    models = document.node(_MODELS)
    if models is not None and isinstance(models.children, list):
        placed = spec.below("models")
        changed = [change(index, placed.below(index)) for index in range(len(models.children))]
        keys["models"] = placed.holding(_list_of(placed.node.at, changed))
    top = {key: _top(document).below(key) for key in document.value}
    return Document(document.source, _mapping_of(document.root.at, top | {
        "spec": spec.holding(_mapping_of(spec.node.at, keys))}))


def _top(document: Document) -> _Placed:
    return _Placed((document.root.at, document.root.at, document.root), document.source)


def _part_of(document: Document, keys: Sequence[str]) -> Document:
    return Document(document.source, _mapping_of(document.root.at, {key: _top(document).below(key) for key in keys}))


def _both(base: _Placed, over: _Placed, keys: _Keys) -> _Placed:
    """Merge two entries; a collection from both files gets the place of the later one."""
    given, own = base.node.value, over.node.value
    if isinstance(base.node.children, dict) and isinstance(over.node.children, dict):
        # what `own` replaces: a probe has one kind, a model has workers, a shape or variants
        kinds = exclusive_keys().get(keys[-1], ()) if keys else ()
        dropped = set(kinds) - own.keys() if any(kind in own for kind in kinds) else set()
        entries = {key: _both(base.below(key), over.below(key), (*keys, key)) if key in own else base.below(key)
                   for key in given if key not in dropped}
        entries |= {key: over.below(key) for key in own if key not in entries}
        return over.holding(_mapping_of(over.node.at, entries))
    if not isinstance(base.node.children, list) or not isinstance(over.node.children, list):
        return over
    partners = _partners(given, own, keys)
    if partners is None:
        return over
    items = [_both(base.below(index), over.below(partners[index]), keys) if index in partners else base.below(index)
             for index in range(len(given))]
    merged = set(partners.values())
    items += [over.below(index) for index in range(len(own)) if index not in merged]
    return over.holding(_list_of(over.node.at, items))


def _mapping_of(at: int, placed: Mapping[str, _Placed]) -> MergedNode:
    return MergedNode(at, {key: value.node.value for key, value in placed.items()},
                      {key: value.entry for key, value in placed.items()},
                      sources={key: value.source for key, value in placed.items()})


def _list_of(at: int, placed: Sequence[_Placed]) -> MergedNode:
    return MergedNode(at, [value.node.value for value in placed], [value.entry for value in placed],
                      sources=dict(enumerate(value.source for value in placed)))


def _partners(base: list[Value], over: list[Value], keys: _Keys) -> dict[int, int] | None:
    """Map each index of `base` to the index of `over` it is merged with; None if `over` replaces the whole list."""
    if keys == _CONCATENATED:
        return {}
    if keys in (_MODELS, _VARIANTS) or keys[-1:] == ("workers",):
        name = "key" if keys == _MODELS else "name"
        return _paired(_names(base, name), _names(over, name))
    if keys[-2:] == ("workers", "members") and _is_gang(base) == _is_gang(over):
        return _paired(_roles(base), _roles(over))
    return None


def _paired(base: Sequence[object], over: Sequence[object]) -> dict[int, int]:
    # of a duplicate name only the first is paired, so that the second stays and is reported
    unpaired = {name: index for index, name in reversed(list(enumerate(over))) if name is not None}
    return {index: unpaired.pop(name) for index, name in enumerate(base) if name in unpaired}


def _names(items: list[Value], key: str, absent: str | None = None) -> list[str | None]:
    found = [item.get(key, absent) if isinstance(item, dict) else None for item in items]
    return [name if isinstance(name, str) else None for name in found]


def _roles(members: list[Value]) -> list[object]:
    """Return a name for each member: its role, with a number to tell several Workers apart."""
    seen: Counter[str] = Counter()
    names: list[object] = []
    for role in _names(members, "role", "Standalone"):
        names.append(None if role is None else (role, seen[role]))
        seen[role or ""] += 1
    return names


def _is_gang(members: list[Value]) -> bool:
    """Return whether these are the members of a gang. A gang and a Standalone replace each other, and never merge."""
    return any(role in ("Leader", "Worker") for role in _names(members, "role"))


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A name at `path` of a document, relative to the file that holds it. `code` = the code of its problems."""

    document: Document
    path: Path
    text: str
    code: str

    @property
    def file(self) -> str:
        """The path of the file, relative to the working directory."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(self._written_in), self.text))

    @property
    def written_at(self) -> str:
        """Where the name is written: `file:line:column`."""
        return str(self.document.position(self.path))

    def refused(self, message: str, *, code: str = "", allowed: str | None = None, suggestion: str | None = None
                ) -> FleetFileError:
        """Return the error for this name."""
        return FleetFileError([self.document.problem(code or self.code, self.path, message, allowed=allowed,
                                                     suggestion=suggestion)])

    def find(self, tree: FileTree, given: str) -> str:
        """Return the identity of the file; raises FleetFileError, which reveals nothing outside the checkout.

        `given` = the file named by the user; it determines the checkout.
        """
        if "://" in self.text or posixpath.isabs(self.text) or not self.text.isprintable():
            raise self.refused(f'"{self.text}" is not a path relative to this file',
                               allowed="a file in the same checkout; nothing is fetched")
        try:
            if not tree.in_checkout(self.file, given):
                raise self.refused(f'"{self.text}" leads outside the checkout', allowed=allowed_in_checkout(given))
            if tree.is_folder(self.file):
                raise self.refused(f"{self.file} is a folder", allowed="a file")
            if not tree.is_file(self.file):
                own = posixpath.relpath(self._written_in, posixpath.dirname(self.file) or ".")
                found = nearest_file(self.file, tree, own)
                # in the form of this name
                near = posixpath.join(posixpath.dirname(self.text), posixpath.basename(found)) if found else None
                raise self.refused(f"no such file: {self.file}", suggestion=near)
            return tree.identity(self.file)
        except OSError as error:
            raise self._unreadable(error) from None

    def read(self, tree: FileTree, limit: int = MAX_FILE_BYTES) -> SourceBytes:
        """Return the whole file; raises FleetFileError if it cannot be read or has more than `limit` bytes."""
        try:
            return read_file(self.file, tree, limit=limit)
        except OSError as error:
            raise self._unreadable(error) from None

    @property
    def _written_in(self) -> str:
        return self.document.position(self.path).file

    def _unreadable(self, error: OSError) -> FleetFileError:
        return self.refused(f"{self.file}: {why_unreadable(error)}")


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
        self._extended_at |= {identity: name.written_at for identity, (_, name) in order.items()}
        return reduce(merge, [*(base for base, _ in order.values()), document]), whole

    def _follow_all(self, document: Document, trail: _Trail, order: _Order) -> bool:
        """Add the bases of a document to `order`; return False if one of them could not be read."""
        whole, in_list = True, set[str]()
        for name in _named_files(document):
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
        if sum(len(file.data) for file in (*self.given, *self.read, source)) > MAX_ALL_BYTES:
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


def _named_files(document: Document) -> Iterator[NamedFile | None]:
    """Yield the files named by `extends`; None for a value of the wrong type, which validation reports."""
    value = document.value.get("extends")
    entries: list[tuple[Path, Any]] = [] if value is None else [(("extends",), value)]
    if isinstance(value, list):
        entries = [(("extends", index), item) for index, item in enumerate(value)]
    for path, item in entries:
        yield NamedFile(document, path, item, "FL018") if isinstance(item, str) and item else None


UNUSABLE = "FL039"
UNUSED = "FL075"
SUGGESTED = 100


def use_shapes(documents: Sequence[Document], *, whole: bool) -> tuple[list[Document], list[Problem]]:
    """Merge the shapes of all documents below their models; `whole` = every file could be read.

    Return the documents and the problems found; a model with a problem stays unchanged.
    """
    problems: list[Problem] = []
    shapes: dict[str, Raw] = {}
    for shape in (shape for document in documents for shape in shapes_of(document)):
        first = shapes.setdefault(str(shape.path[-1]), shape)
        if first is not shape:
            message = f'duplicate shape "{shape.path[-1]}"; the first is at {first.at()}'
            problems.append(shape.problem(UNUSABLE, message, on_key=True))
    sizes = {name: size_of(shape.document.node(shape.path)) for name, shape in shapes.items()}
    used: set[str] = set()
    merged: list[Document] = []
    total = 0
    for document in documents:
        found: dict[Path, tuple[Document, str]] = {}
        for user, name in _users(document):
            used.add(name)
            total += sizes.get(name, 0)
            if total > MAX_NODES:
                problems.append(user.problem("FL014", f"more than {MAX_NODES} values, shapes expanded", key="shape",
                                             allowed=MANY_FLEETS))
                break
            if name in shapes and "workers" not in user.value:
                found[user.path] = shapes[name].document, name
            elif (whole or name in shapes) and len(problems) <= MAX_FOUND:
                # a suggestion among thousands of names takes milliseconds
                problems.append(_unusable(user, name, list(shapes) if len(problems) < SUGGESTED else []))
        merged.append(with_shapes(document, found) if found else document)
    if whole and total <= MAX_NODES:
        # an unused shape of a base may be for other fleets
        problems += (shape.problem(UNUSED, f'no model uses the shape "{name}"', on_key=True)
                     for name, shape in shapes.items()
                     if name not in used and shape.document.locate(shape.path)[0] is shape.document.source)
    return merged, problems


def _users(document: Document) -> Iterator[tuple[Raw, str]]:
    """Yield each model and variant that names a shape, with the name; none if its `shape` is not valid."""
    for model in models(document):
        # a model with variants and a shape is a problem of its own
        for user in (*([] if "variants" in model.value else [model]), *model.items("variants")):
            use: Value = user.get("shape")
            if isinstance(use, dict):
                use = use.get("name") if use.keys() <= {"name", "workers"} else None
            if isinstance(use, str):
                yield user, use


def _unusable(model: Raw, name: str, shapes: list[str]) -> Problem:
    if "workers" in model.value:
        who = "a variant" if len(model.path) > len(_MODELS) + 1 else "a model"
        return model.problem(UNUSABLE, f"{who} has either workers or a shape, not both", key="workers", on_key=True,
                             allowed=f"one of the two; write changes as shape: {{name: {name}, workers: [...]}}")
    return model.problem(UNUSABLE, f'spec.shapes has no "{name}"', key="shape", allowed=some(shapes, 20) or None,
                         suggestion=nearest(name, shapes))
