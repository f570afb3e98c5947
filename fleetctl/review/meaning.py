"""The meaning of a model: nested mappings, independent of order, quotes and the spelling of quantities.

The key of a group is its name, the key of a member its role and number. A list (a command, arguments) is one value.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fleetctl.documents.fleet import WorkerGroup
from fleetctl.documents.quantity import format_bytes, format_seconds, share_number
from fleetctl.documents.selector import in_one_spelling
from fleetctl.fleetfile.resolved import ResolvedModel, shape_as_set, spec_document

Keyed = dict[str, Any]
"""Nested mappings by key; anything else is one value."""

Steps = tuple[str, ...]
"""A path in a `Keyed`: ("workers", "main", "members", "Leader", "engine", "args")."""

SPEC_KEYS = ("placement", "workers")
"""The keys covered by the spec hash: any difference below them is drift, except in ORIGINS."""

ORIGINS = ("weights", "from")
"""The keys of a member that the spec hash does not cover."""

ABSENT = object()
_BYTES, _SHARES = frozenset({"vram", "memory", "gpuMemory", "warm"}), frozenset({"gpus", "cpus", "maxNewGpus"})
_SECONDS = frozenset({"startupTimeout", "schedulingTimeout", "backoff", "period", "timeout"})
WITH_TWO_FORMS = frozenset({("placement", "spread"), ("placement", "sameLabel")})
"""Values that may be written as a text or as a mapping."""


def meaning(model: ResolvedModel) -> Keyed:
    """Return a model as the files set it, with spec.defaults merged. SPEC_KEYS hold the hashed values and ORIGINS."""
    return {**_lifecycle(model), **_shape(model, shape_as_set(model.workers, model.placement))}


def full_meaning(model: ResolvedModel) -> Keyed:
    """Return a model with built-in defaults filled in too, for a value that only one side sets."""
    return {**_lifecycle(model), **_shape(model, spec_document(model))}


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
                       **({"reload": {"http": _keyed(model.reload.model_dump(exclude_none=True))}}
                          if model.reload else {})},
            **({"cold": {"nodes": dict(in_one_spelling(model.cold))}} if model.cold is not None else {}),
            "serving": _keyed(model.serving.model_dump(exclude_unset=True))}


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
    found = DeepDiff(*_unequal(old, new), view="tree", threshold_to_diff_deeper=0, ignore_private_variables=False)
    return [tuple(level.path(output_format="list")) for levels in found.values() for level in levels]


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
