"""What a replica tells of itself: planned members in its environment while starting, actual ones in its repr once up.

Both are written by the agent, perhaps by another version of it, and read through Ray. Whatever cannot be read is left
out and named; nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.inventory import ReplicaMember

FLEET = "FLEETCTL_FLEET"
SPEC_HASH = "FLEETCTL_SPEC_HASH"
MEMBERS = "FLEETCTL_MEMBERS"
REDACTED = "<redacted>"
"""What Ray shows browsers instead of values; a proxy that rewrites the User-Agent gets us the same."""

_MEMBERS = TypeAdapter(list[ReplicaMember])


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one actor: `planned` members come from its environment, `reported` ones from its repr.

    `problems` name what could not be read. `hidden` = there are marks, but their values are kept from us.
    """

    fleet: str | None = None
    spec_hash: str | None = None
    planned: tuple[ReplicaMember, ...] = ()
    reported: tuple[ReplicaMember, ...] = ()
    problems: tuple[str, ...] = ()
    hidden: bool = False


def read_marks(environment: Mapping[str, str], repr_name: str) -> Marks:
    """Combine both sources; the environment wins for fleet and spec hash, as it cannot be of an earlier life."""
    told, problems = _told(repr_name)
    hidden = environment.get(FLEET) == REDACTED
    env = {} if hidden else environment
    planned = _members(env.get(MEMBERS), MEMBERS, problems)
    reported = _members(told.get("members"), "its repr", problems)
    return Marks(
        fleet=env.get(FLEET) or _text(told.get("fleet")),
        spec_hash=env.get(SPEC_HASH) or _text(told.get("specHash")),
        planned=planned, reported=reported, problems=tuple(problems),
        hidden=hidden and not _text(told.get("fleet")),
    )


def _told(repr_name: str) -> tuple[Mapping[str, Any], list[str]]:
    """Return the JSON object of a repr; any other repr is that of an actor that is not ours and no problem."""
    if not repr_name.startswith("{"):
        return {}, []
    try:
        told = json.loads(repr_name)
    except (ValueError, RecursionError):
        return {}, ["its repr is not whole JSON"]
    return (told, []) if isinstance(told, dict) else ({}, [])


def _members(value: object, source: str, problems: list[str]) -> tuple[ReplicaMember, ...]:
    """Read a list of members, given as such or as JSON text; what cannot be read is added to `problems`."""
    if value is None:
        return ()
    try:
        plain = json.loads(value) if isinstance(value, str) else value
        if isinstance(plain, list):
            plain = [_with_address(member) for member in plain]
        return tuple(_MEMBERS.validate_python(plain))
    except (ValueError, RecursionError, ValidationError):
        problems.append(f"the members in {source} cannot be read")
        return ()


def _with_address(member: object) -> object:
    """The agent says `ip`; the inventory calls it `address`."""
    if isinstance(member, dict) and "ip" in member and "address" not in member:
        return {**member, "address": member["ip"]}
    return member


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
