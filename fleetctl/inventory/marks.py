"""What a replica says of itself in its repr once it is up: its fleet, its spec, its members and what they claim.

The agent, perhaps another version of it, writes the repr, and Ray hands it on. A part that cannot be read is left out
and named; nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.inventory import ReplicaMember
from fleetctl.documents.served_weights import ServedWeights
from fleetctl.inventory.json_values import moment_of, object_of, text_of, texts_of

_MEMBERS = TypeAdapter(list[ReplicaMember])
_WEIGHTS = TypeAdapter(ServedWeights | None)


@dataclass(frozen=True, slots=True)
class Marks:
    """What one repr says. `problems` name what could not be read."""

    fleet: str | None = None
    namespace: str | None = None
    spec_hash: str | None = None
    engine_hash: str | None = None
    ready_at: str | None = None
    restart_max: int | None = None
    members: tuple[ReplicaMember, ...] = ()
    earlier_tries: frozenset[str] = frozenset()
    """Ids of the actors that were to be this replica before, and got cards that others use."""
    failed: Mapping[str, Any] = field(default_factory=dict)
    """Why it ended itself by force; empty where it did not."""
    problems: tuple[str, ...] = ()


def read_marks(repr_name: str) -> Marks:
    """Return what a repr says; a repr that is not ours belongs to a foreign actor, and is no problem."""
    if not repr_name.startswith("{"):
        return Marks()
    try:
        mark = json.loads(repr_name)
    except (ValueError, RecursionError):
        return Marks(problems=("its repr is not whole JSON",))
    if not isinstance(mark, dict):
        return Marks()
    problems: list[str] = []
    members, most = _members(mark.get("members"), problems), mark.get("restartMax")
    fleet, namespace, spec_hash, engine_hash = (
        text_of(mark.get(key)) for key in ("fleet", "namespace", "specHash", "engineHash"))
    return Marks(fleet, namespace, spec_hash, engine_hash, moment_of(mark.get("readyAt")),
                 most if isinstance(most, int) else None, members, frozenset(texts_of(mark.get("earlierTries"))),
                 object_of(mark.get("failed")), tuple(problems))


def _members(value: object, problems: list[str]) -> tuple[ReplicaMember, ...]:
    if value is None:
        return ()
    try:
        plain = [_readable(member, problems) for member in value] if isinstance(value, list) else value
        return tuple(_MEMBERS.validate_python(plain))
    except ValidationError:
        problems.append("the members in its repr cannot be read")
        return ()


def _readable(member: Mapping[str, Any] | object, problems: list[str]) -> object:
    """Return a member as the inventory has it: the agent says `ip`. Weights that cannot be read cost nothing else."""
    if not isinstance(member, dict):
        return member
    found = {"address": member["ip"], **member} if "ip" in member else dict(member)
    try:
        _WEIGHTS.validate_python(found.get("weights"))
    except ValidationError:
        problems.append("the weights in its repr cannot be read")
        del found["weights"]
    return found
