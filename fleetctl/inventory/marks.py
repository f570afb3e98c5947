"""What a replica tells of itself in its repr once it is up: its fleet, its spec, its members and what they claim.

It is written by the agent, perhaps by another version of it, and read through Ray. Whatever cannot be read is left out
and named; nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.inventory import ReplicaMember

_MEMBERS = TypeAdapter(list[ReplicaMember])


@dataclass(frozen=True, slots=True)
class Marks:
    """What one repr tells. `problems` name what could not be read."""

    fleet: str | None = None
    namespace: str | None = None
    spec_hash: str | None = None
    members: tuple[ReplicaMember, ...] = ()
    problems: tuple[str, ...] = ()


def read_marks(repr_name: str) -> Marks:
    """Return what a repr tells; any other repr than ours is that of an actor that is not ours, and no problem."""
    if not repr_name.startswith("{"):
        return Marks()
    try:
        told = json.loads(repr_name)
    except (ValueError, RecursionError):
        return Marks(problems=("its repr is not whole JSON",))
    if not isinstance(told, dict):
        return Marks()
    problems: list[str] = []
    members = _members(told.get("members"), problems)
    return Marks(_text(told.get("fleet")), _text(told.get("namespace")), _text(told.get("specHash")), members,
                 tuple(problems))


def _members(value: object, problems: list[str]) -> tuple[ReplicaMember, ...]:
    if value is None:
        return ()
    try:
        plain = [_with_address(member) for member in value] if isinstance(value, list) else value
        return tuple(_MEMBERS.validate_python(plain))
    except ValidationError:
        problems.append("the members in its repr cannot be read")
        return ()


def _with_address(member: Mapping[str, Any] | object) -> object:
    """The agent says `ip`; the inventory calls it `address`."""
    if isinstance(member, dict) and "ip" in member and "address" not in member:
        return {**member, "address": member["ip"]}
    return member


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
