"""The meaning of a model: nested mappings, independent of order, quotes and the spelling of quantities. And a fleet as
written in its files: the position and the spelling of each value.

The key of a group is its name, the key of a member its role and number. A list (a command, arguments) is one value.
A model with variants is compared in parts: what they share, and each variant by itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fleetctl.documents.canonical import canonical_json, sha256_hex, short_hash
from fleetctl.documents.fleet import HttpReload, WorkerGroup
from fleetctl.documents.position import Path, Position
from fleetctl.documents.quantity import format_bytes, format_seconds, share_number
from fleetctl.documents.selector import in_one_spelling
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.resolved import NOT_HASHED, ResolvedFleet, ResolvedModel, shape_as_set, spec_document

if TYPE_CHECKING:
    from fleetctl.documents.model import Description

Keyed = dict[str, Any]
"""Nested mappings by key; anything else is one value."""

Steps = tuple[str, ...]
"""A path in a `Keyed`: ("workers", "main", "members", "Leader", "engine", "args")."""

SPEC_KEYS = ("placement", "workers")
"""The keys covered by the spec hash: any difference below them is drift, except in ORIGINS and STOP."""

ORIGINS, STOP = NOT_HASHED

ABSENT = object()
_BYTES, _SHARES = frozenset({"vram", "memory", "gpuMemory", "warm"}), frozenset({"gpus", "cpus", "maxNewGpus"})
_SECONDS = frozenset({"startupTimeout", "schedulingTimeout", "backoff", "period", "timeout", "grace"})
WITH_TWO_FORMS = frozenset({("placement", "spread"), ("placement", "sameLabel")})
"""Values that may be written as a text or as a mapping."""
_INHERITED = frozenset({"priority", "startupTimeout", "schedulingTimeout", "restart", "update", "placement",
                        "memoryCheck"})


_ALSO_OF_MODEL = (("placement",), ("model",))
"""What a variant has from its model, unless it has its own."""


def meaning(model: ResolvedModel) -> Keyed:
    """Return a model as the files set it, with spec.defaults merged. SPEC_KEYS also hold what is NOT_HASHED.

    Of a model with variants this is what they share, and of a variant what it has of its own.
    """
    if model.variants:
        return _lifecycle(model)
    shape = {**_numbers_of(model), **_shape(model, shape_as_set(model.workers, model.placement))}
    return {**_limits(model), **shape} if model.variant else {**_lifecycle(model), **shape}


def full_meaning(model: ResolvedModel) -> Keyed:
    """Return a model with built-in defaults filled in too, for a value that only one side sets."""
    return {**meaning(model), **({} if model.variants else _shape(model, spec_document(model)))}


def at(keyed: Keyed, steps: Steps) -> Any:  # noqa: ANN401  any value
    """Return the value at `steps`; ABSENT if there is none."""
    value: Any = keyed
    for step in steps:
        value = value.get(step, ABSENT) if isinstance(value, dict) else ABSENT
    return value


def members_by_name(group: WorkerGroup) -> dict[str, int]:
    """Return the index of each member of a group by its name: Leader, Worker, Worker 2."""
    return {name: index for index, name in enumerate(member_names(member.role for member in group.members))}


def member_names(roles: Iterable[str]) -> Iterator[str]:
    """Yield a name for each member: its role, followed by a number from the second member of a role on."""
    seen: Counter[str] = Counter()
    for role in roles:
        seen[role] += 1
        yield role if seen[role] == 1 else f"{role} {seen[role]}"


def _lifecycle(model: ResolvedModel) -> Keyed:
    return {"replicas": model.replicas, "priority": model.priority, "startupTimeout": model.startup_timeout_s,
            "schedulingTimeout": model.scheduling_timeout_s,
            "restart": {"max": model.restart.max, "backoff": model.restart.backoff}, "labels": dict(model.labels),
            "update": {"mode": "surge" if model.surge else "inPlace" if model.reload else "keep",
                       "surge": model.surge or 1,
                       **({"reload": _reload(model.reload)} if model.reload else {})},
            **({"cold": {"nodes": dict(in_one_spelling(model.cold))}} if model.cold is not None else {}),
            "memoryCheck": "block" if model.blocks_too_large else "warn",
            "serving": _keyed(model.serving.model_dump(exclude_unset=True))}


def _limits(variant: ResolvedModel) -> Keyed:
    return {"min": variant.least, **({} if variant.most is None else {"max": variant.most}),
            **({} if variant.weight is None else {"weight": variant.weight})}


def _numbers_of(model: ResolvedModel) -> Keyed:
    return {"model": {"numbers": _numbers(model.description)}} if model.description is not None else {}


def _numbers(described: Description) -> str:
    digest = sha256_hex(canonical_json(described.as_json()))
    return (f"{described.source}: {described.parameters / 1e9:.1f} billion parameters, {format_bytes(described.bytes)} "
            f"stored ({short_hash(digest)})")


def _reload(requests: Sequence[HttpReload]) -> Keyed:
    """Return one request by its keys; several by their number, from 1."""
    shown = [{"http": _keyed(request.model_dump(exclude_none=True))} for request in requests]
    return shown[0] if len(shown) == 1 else {str(number): request for number, request in enumerate(shown, 1)}


def _shape(model: ResolvedModel, document: Mapping[str, Any]) -> Keyed:
    groups = {group.name: {**written, "members": {name: written["members"][index]
                                                  for name, index in members_by_name(group).items()}}
              for group, written in zip(model.workers, document["workers"], strict=True)}
    return _keyed({"placement": document["placement"], "workers": groups})


def _keyed(value: Mapping[str, Any]) -> Keyed:
    return {key: _keyed(item) if isinstance(item, dict) else json.dumps(item) if isinstance(item, list) else item
            for key, item in value.items()}


def find_changes(old: Keyed, new: Keyed) -> list[Steps]:
    """Return the paths of all differences, in no particular order."""
    from deepdiff import DeepDiff  # takes half a second to import, and a diff without differences does not need it

    # by default deepdiff reports two mappings with few common keys as one difference, and ignores names such as __TOKEN
    differences = DeepDiff(*_unequal(old, new), view="tree", threshold_to_diff_deeper=0, ignore_private_variables=False)
    return [tuple(level.path(output_format="list")) for levels in differences.values() for level in levels]


def _unequal(old: Any, new: Any) -> tuple[Any, Any]:  # noqa: ANN401  any value
    """Return both without equal entries: deepdiff copies its path once for every entry."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old, new
    pairs = {key: _unequal(old[key], new[key]) for key in old if key in new and old[key] != new[key]}
    return ({**{key: old[key] for key in old if key not in new}, **{key: pair[0] for key, pair in pairs.items()}},
            {**{key: new[key] for key in new if key not in old}, **{key: pair[1] for key, pair in pairs.items()}})


def format_value(value: object, steps: Steps) -> Any:  # noqa: ANN401  any YAML value
    """Return the `value` at `steps` as a file would spell it; None if it has no single spelling."""
    key = steps[-1]
    if value is ABSENT or (isinstance(value, dict) and steps not in WITH_TWO_FORMS):
        return None
    if key in _BYTES and isinstance(value, int):
        return format_bytes(value)
    if key in _SHARES and isinstance(value, int):
        return share_number(value)
    if key in _SECONDS and isinstance(value, (int, float)):
        return format_seconds(value)
    if isinstance(value, str) and value.startswith("["):
        return json.loads(value)
    return value


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model, or variant, of which only the meaning and its position are known; see `WrittenModel`."""

    model: ResolvedModel

    @property
    def ways(self) -> list[ModelView]:
        """The ways to run it, each as a model of its own: its variants, or itself."""
        return [replace(self, model=way) for way in self.model.alternatives]

    def named(self, steps: Steps) -> Path | None:
        """Return the steps as shown to people, with the group's name; None if its group or member does not exist."""
        return path_below(self.model, steps)[1]

    def value(self, steps: Steps) -> Any:  # noqa: ANN401, ARG002  any YAML value
        """Return the value as written, secrets included; None if it is not written."""
        return None

    def position(self, steps: Steps, item: int | None = None) -> Position:  # noqa: ARG002
        """Return the position of the value, or of its list item; else of the nearest key above it."""
        return self.model.source


@dataclass(frozen=True, slots=True)
class WrittenModel(ModelView):
    """One model in its document; `defaults` = the document with the spec.defaults that apply to it.

    `place` = that of a variant among those of the model, if this is one.
    """

    document: Document
    index: int
    defaults: Document | None
    place: int | None = None

    @property
    def ways(self) -> list[ModelView]:
        """See `ModelView`."""
        return [replace(self, model=way, place=place if self.model.variants else None)
                for place, way in enumerate(self.model.alternatives)]

    def value(self, steps: Steps) -> Any:  # noqa: ANN401  any YAML value
        """See `ModelView`."""
        path, named = path_below(self.model, steps)
        written = self._found(path) if named is not None else None
        node = written[0].node(written[1]) if written else None
        return node.value if node else None

    def position(self, steps: Steps, item: int | None = None) -> Position:
        """See `ModelView`."""
        path, _ = path_below(self.model, steps)
        written = self._found(path)
        if written is None:
            return self.document.position(self._in_document(path))
        document, at = written
        if item is not None and document.node((*at, item)) is not None:
            at = (*at, item)
        return document.position(at)

    def _in_document(self, path: Path) -> Path:
        variant: Path = () if self.place is None else ("variants", self.place)
        return "spec", "models", self.index, *variant, *path

    def _found(self, path: Path) -> tuple[Document, Path] | None:
        of_model: Path = ("spec", "models", self.index, *path)
        for own in (self._in_document(path), of_model):  # a variant has the placement of its model
            if _has(self.document, own) and (own != of_model or self.place is None or path[:1] in _ALSO_OF_MODEL):
                return self.document, own
        inherited: Path = ("spec", "defaults", *path)
        if self.defaults is not None and path and path[0] in _INHERITED and _has(self.defaults, inherited):
            return self.defaults, inherited
        return None


def path_below(model: ResolvedModel, steps: Steps) -> tuple[Path, Path | None]:
    """Return the path below a model of `steps`, or of the nearest key above; and the steps as shown to people.

    The latter name the group, and are None if the group or the member is not in this model.
    """
    if steps[0] == "model":  # its numbers may come from a file, so they have no key of their own
        return steps, steps[:1]
    if steps[0] != "workers" or len(steps) == 1:
        return steps, steps
    group = next((index for index, named in enumerate(model.workers) if named.name == steps[1]), None)
    if group is None:
        return ("workers",), None
    if steps[2:3] != ("members",) or len(steps) == 3:
        return ("workers", group, *steps[2:]), steps
    member = members_by_name(model.workers[group]).get(steps[3])
    if member is None:
        return ("workers", group, "members"), None
    return ("workers", group, "members", member, *steps[4:]), (*steps[:3], member, *steps[4:])


class WrittenFleet:
    """All documents of one fleet."""

    def __init__(self, fleet: ResolvedFleet, documents: Sequence[Document]) -> None:
        self.fleet = fleet
        self._documents = documents

    @cached_property
    def models(self) -> dict[str, WrittenModel]:
        """The models by key, in file order."""
        defaults = next((written for written in self._documents if _has(written, ("spec", "defaults"))), None)
        places = ((document, index) for document in self._documents
                  for index in range(len(document.value["spec"].get("models") or ())))
        return {model.key: WrittenModel(model, document, index, defaults)
                for model, (document, index) in zip(self.fleet.models, places, strict=True)}

    def position(self, path: Path) -> Position:
        """Return the position of a value of the fleet; else of the nearest key above it in the first document."""
        document = next((written for written in self._documents if _has(written, path)), self._documents[0])
        return document.position(path)

    def value(self, path: Path) -> Any:  # noqa: ANN401  any YAML value
        """Return a value of the fleet as written; None if it is not written."""
        document = next((written for written in self._documents if _has(written, path)), None)
        node = document.node(path) if document else None
        return node.value if node else None

    @cached_property
    def policies(self) -> Sequence[tuple[Document, Path]]:
        """The node policies of all documents, in order: document and path of each."""
        return [(document, ("spec", "nodes", index)) for document in self._documents
                for index in range(len(document.value["spec"].get("nodes") or ()))]


def _has(document: Document, path: Path) -> bool:
    node = document.node(path)
    return node is not None and node.value is not None
