"""Rules over one worker group: roles that form a unit, count on Workers only, and at least one claim.

Counterparts of Modelplane's admission rules: group shape (11), a claim in every group (12), count on Workers only (13).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import get_args

from fleetctl.documents.fleet import Member, Resources, Role
from fleetctl.fleetfile.keys import keys_of
from fleetctl.fleetfile.nodes import Value
from fleetctl.fleetfile.raw import Raw
from fleetctl.problem import Problem

MAX_MEMBERS_PER_REPLICA = 256
"""A replica's actor carries all its planned members, about 240 bytes each, in one variable of its environment, where
Linux takes no string of more than 128 KiB."""
_RESOURCES = frozenset(keys_of(Resources))
_CLAIMS = ("gpus", "vram", "cpus")


def role_of(member: Raw) -> Value:
    """Return the role as written; absent = Standalone."""
    return member.get("role") if "role" in member.value else "Standalone"


def is_gang(group: Raw) -> bool:
    """Return whether the group is meant as a gang: a member is a Leader or a Worker."""
    return any(role_of(member) in ("Leader", "Worker") for member in group.items("members"))


def check_group(group: Raw) -> Iterator[Problem]:
    """Yield the problems of the members of one group together."""
    members = list(group.items("members"))
    if not members:
        return
    yield from (_stray_count(member) for member in members
                if "count" in member.value and role_of(member) in ("Standalone", "Leader"))
    if all(role_of(member) in get_args(Role) for member in members):
        yield from _shape(members)
    if not any(_claims_something(member) for member in members):
        yield group.problem("FL047", "no member of this group claims a resource of its node", key="name", on_key=True,
                            allowed="gpus, vram or cpus in the resources of at least one member")


def _stray_count(member: Raw) -> Problem:
    role = role_of(member)
    return member.problem("FL042", f"count is for a Worker, and this is a {role}", key="count", on_key=True,
                          allowed="copies on the group for more Standalone members" if role == "Standalone" else None)


def _shape(members: list[Raw]) -> Iterator[Problem]:
    standalone, leaders, workers = (
        [member for member in members if role_of(member) == role] for role in ("Standalone", "Leader", "Worker")
    )
    if standalone and len(members) > 1:
        gang = bool(leaders or workers)
        yield from (_not_alone(member, gang) for member in standalone[0 if gang else 1:])
    yield from (member.problem("FL046", f"a second Leader; the first is at {leaders[0].at('role')}", key="role")
                for member in leaders[1:])
    if workers and not leaders and not standalone:
        yield workers[0].problem("FL044", "Workers without a Leader", key="role",
                                 allowed="one Leader and its Workers, or one Standalone")
    if leaders and not workers and not standalone:
        yield leaders[0].problem("FL045", "a Leader without Workers", key="role",
                                 allowed="at least one Worker beside it, or role Standalone")


def _not_alone(member: Raw, in_gang: bool) -> Problem:
    unsaid = "role" not in member.value
    message = "a Standalone member beside others" + (" (no role means Standalone)" if unsaid else "")
    allowed = "one Leader and its Workers, or one Standalone" if in_gang else "copies on the group for more of the same"
    return member.problem("FL043", message, key=None if unsaid else "role", allowed=allowed)


def _claims_something(member: Raw) -> bool:
    resources = member.value.get("resources", {})
    if not isinstance(resources, dict) or not {*member.value} <= {*keys_of(Member)} or not {*resources} <= _RESOURCES:
        return True  # reported as what it is; a guess about its meaning would be noise
    return any(_is_positive(resources.get(claim, 0)) for claim in _CLAIMS)


def _is_positive(amount: Value) -> bool:
    try:
        return Decimal(str(amount)) != 0
    except InvalidOperation:
        return True


def members_per_copy(group: Raw) -> int:
    """Return how many members one copy of the group has; a count that is not a number is taken as 1."""
    return sum(whole(member.get("count")) for member in group.items("members"))


def whole(value: Value) -> int:
    """Return a count as written; absent or wrong = 1."""
    return value if isinstance(value, int) and value > 0 else 1
