"""Merges composed documents, base first: the later one wins key by key, and every value keeps its file.

Lists of named items merge by name, and no item can be removed; any other list is replaced as a whole. The merged
document is validated like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from fleetctl.documents.fleet import FleetDocument
from fleetctl.fleetfile.keys import exclusive_keys, keys_of
from fleetctl.fleetfile.nodes import Document, Entry, MergedNode, Node, Value
from fleetctl.fleetfile.sources import SourceText

OWN_KEYS = ("apiVersion", "kind", "extends")
"""Keys that a document never inherits."""

_Keys = tuple[str, ...]
"""The keys that lead to a value, without list indices."""

_MODELS: _Keys = ("spec", "models")
_CONCATENATED: _Keys = ("spec", "nodes")


@dataclass(frozen=True, slots=True)
class _Placed:
    """A value with the offsets of its key and value, and its file."""

    entry: Entry
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


def with_shapes(document: Document, found: Mapping[int, tuple[Document, str]]) -> Document:
    """Return a fleet with its models merged over their shapes.

    `found` = the document and the name of the shape by the index of the model. The `shape` of such a model is a name,
    or a mapping whose `workers` are merged over those of the shape.
    """
    if not found:
        return document

    def shaped(index: int, model: _Placed) -> _Placed:
        if index not in found:
            return model
        home, name = found[index]
        use, shape = model.below("shape"), _top(home).below("spec").below("shapes").below(name)
        own = {key: model.below(key) for key in model.node.value if key != "shape"}
        if isinstance(use.node.value, dict) and "workers" in use.node.value:
            own["workers"] = use.below("workers")
        return _both(shape, model.holding(_mapping_of(model.node.at, own)), _MODELS)

    return _with_models(document, shaped)


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
        # what `own` replaces: a probe has one kind, a model has workers or a shape
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
    return MergedNode(at, {key: one.node.value for key, one in placed.items()},
                      {key: one.entry for key, one in placed.items()},
                      sources={key: one.source for key, one in placed.items()})


def _list_of(at: int, placed: Sequence[_Placed]) -> MergedNode:
    return MergedNode(at, [one.node.value for one in placed], [one.entry for one in placed],
                      sources=dict(enumerate(one.source for one in placed)))


def _partners(base: list[Value], over: list[Value], keys: _Keys) -> dict[int, int] | None:
    """Map each index of `base` to the index of `over` it is merged with; None if `over` replaces the whole list."""
    if keys == _CONCATENATED:
        return {}
    if keys == _MODELS or keys[-1:] == ("workers",):
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
