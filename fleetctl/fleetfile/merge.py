"""Merging composed documents, base first: the later one wins key by key, and every value keeps its file.

Lists of named things merge by name, and nothing can be removed from them; any other list is one value. The merged
document is validated like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from fleetctl.documents.fleet import FleetDocument
from fleetctl.fleetfile.nodes import Document, Entry, MergedNode, Node, Value
from fleetctl.fleetfile.shape import keys_of
from fleetctl.fleetfile.text import SourceText

OWN_KEYS = ("apiVersion", "kind", "extends")
"""The keys that a document never inherits."""

_Keys = tuple[str, ...]
"""The keys that lead to a value, without the indices of lists."""

_NAMED: dict[_Keys, str] = {("spec", "models"): "key", ("spec", "models", "workers"): "name"}
_JOINED: _Keys = ("spec", "nodes")
_MEMBERS: _Keys = ("spec", "models", "workers", "members")
_ONE_OF = {"readiness": ("http", "tcp", "exec"), "liveness": ("http", "tcp", "exec")}


@dataclass(frozen=True, slots=True)
class _Side:
    """One of two values to merge, and its file."""

    node: Node
    source: SourceText

    def entry(self, part: str | int) -> _Placed:
        children: Any = self.node.children  # a mapping by key or a list by index; only what is there is asked for
        return _Placed(children[part], self.node.source_of(part, self.source))


@dataclass(frozen=True, slots=True)
class _Placed:
    """One entry of a collection, and its file."""

    entry: Entry
    source: SourceText

    @property
    def side(self) -> _Side:
        return _Side(self.entry[2], self.source)


def merge(base: Document, over: Document) -> Document:
    """Return `over` with the keys it does not have taken from `base`; neither is changed."""
    if not isinstance(base.root.children, dict) or not isinstance(over.root.children, dict):
        return over
    below = _Side(base.root, base.source)
    inherited = _mapping_of(below, [key for key in base.root.children if key not in OWN_KEYS])
    return Document(over.source, _merged(_Side(inherited, base.source), _Side(over.root, over.source), ()))


def join(documents: Sequence[Document]) -> Document:
    """Return all documents of one sound fleet as one without bases: keys that several of them have are equal."""
    whole = reduce(merge, documents)
    kept = [key for key in keys_of(FleetDocument) if key in whole.value and key != "extends"]
    return Document(whole.source, _mapping_of(_Side(whole.root, whole.source), kept))


def with_defaults(document: Document) -> Document:
    """Return a joined fleet with `spec.defaults` merged under each of its models."""
    whole = _Side(document.root, document.source)
    found = document.node(("spec", "defaults")), document.node(("spec", "models"))
    if not all(found):
        return document
    spec = whole.entry("spec").side
    defaults, models = spec.entry("defaults"), spec.entry("models")
    if not isinstance(models.side.node.children, list):
        return document
    filled = [_both(defaults, models.side.entry(index), ("spec", "models"))
              for index in range(len(models.side.node.children))]
    return Document(document.source, _with(whole, "spec", _with(spec, "models", _merged_list(models.side, filled))))


def _with(side: _Side, key: str, node: Node) -> MergedNode:
    """Return a mapping with another value under one of its keys, which keeps its place."""
    placed = {one: side.entry(one) for one in side.node.value}
    key_at, value_at, _ = placed[key].entry
    return _merged_mapping(side.node.at, placed | {key: _Placed((key_at, value_at, node), placed[key].source)})


def _mapping_of(side: _Side, keys: Sequence[str]) -> MergedNode:
    return _merged_mapping(side.node.at, {key: side.entry(key) for key in keys})


def _merged(base: _Side, over: _Side, keys: _Keys) -> Node:
    if isinstance(base.node.children, dict) and isinstance(over.node.children, dict):
        return _mapping(base, over, keys)
    if isinstance(base.node.children, list) and isinstance(over.node.children, list):
        return _list(base, over, keys)
    return over.node


def _mapping(base: _Side, over: _Side, keys: _Keys) -> MergedNode:
    own, given = over.node.value, base.node.value
    dropped = _rivals(keys, own)
    placed = {key: _both(base.entry(key), over.entry(key), (*keys, key)) if key in own else base.entry(key)
              for key in given if key not in dropped}
    return _merged_mapping(over.node.at, placed | {key: over.entry(key) for key in own if key not in placed})


def _merged_mapping(at: int, placed: Mapping[str, _Placed]) -> MergedNode:
    return MergedNode(at, {key: one.entry[2].value for key, one in placed.items()},
                      {key: one.entry for key, one in placed.items()},
                      {key: one.source for key, one in placed.items()})


def _list(base: _Side, over: _Side, keys: _Keys) -> Node:
    partners = _partners(base.node.value, over.node.value, keys)
    if partners is None:
        return over.node
    placed = [_both(base.entry(index), over.entry(partners[index]), keys) if index in partners else base.entry(index)
              for index in range(len(base.node.value))]
    merged = set(partners.values())
    placed += [over.entry(index) for index in range(len(over.node.value)) if index not in merged]
    return _merged_list(over, placed)


def _merged_list(side: _Side, placed: Sequence[_Placed]) -> MergedNode:
    return MergedNode(side.node.at, [one.entry[2].value for one in placed], [one.entry for one in placed],
                      dict(enumerate(one.source for one in placed)))


def _both(base: _Placed, over: _Placed, keys: _Keys) -> _Placed:
    """Merge two entries; a collection that is in both files has the place of the later one."""
    key_at, value_at, _ = over.entry
    return _Placed((key_at, value_at, _merged(base.side, over.side, keys)), over.source)


def _rivals(keys: _Keys, own: dict[str, Value]) -> tuple[str, ...]:
    """Return the keys of a base that `own` replaces: a probe has one kind."""
    kinds = _ONE_OF.get(keys[-1], ()) if keys else ()
    return tuple(kind for kind in kinds if kind not in own) if any(kind in own for kind in kinds) else ()


def _partners(base: list[Value], over: list[Value], keys: _Keys) -> dict[int, int] | None:
    """Return which item of `base` is merged with which of `over`, by index; None where the list is one value."""
    if keys == _JOINED:
        return {}
    if keys in _NAMED:
        return _paired(_names(base, _NAMED[keys]), _names(over, _NAMED[keys]))
    if keys == _MEMBERS and _is_gang(base) == _is_gang(over):
        return _paired(_roles(base), _roles(over))
    return None


def _paired(base: Sequence[object], over: Sequence[object]) -> dict[int, int]:
    # a name twice in one file is paired once, so that the second one stays and is reported
    waiting = {name: index for index, name in reversed(list(enumerate(over))) if name is not None}
    return {index: waiting.pop(name) for index, name in enumerate(base) if name in waiting}


def _names(items: list[Value], key: str) -> list[str | None]:
    found = [item.get(key) if isinstance(item, dict) else None for item in items]
    return [name if isinstance(name, str) else None for name in found]


def _roles(members: list[Value]) -> list[object]:
    """Name members by role, and several Workers by their order."""
    seen: Counter[str] = Counter()
    names: list[object] = []
    for role in _role_names(members):
        names.append(None if role is None else (role, seen[role]))
        seen[role or ""] += 1
    return names


def _is_gang(members: list[Value]) -> bool:
    """Return whether this is a gang, which replaces a Standalone and is never merged with one."""
    return any(role in ("Leader", "Worker") for role in _role_names(members))


def _role_names(members: list[Value]) -> list[str | None]:
    roles = [member.get("role", "Standalone") if isinstance(member, dict) else None for member in members]
    return [role if isinstance(role, str) else None for role in roles]
