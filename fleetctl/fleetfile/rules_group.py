"""Rules over one worker group: roles that form a unit, count on Workers only, at least one claim, and its cards.

Counterparts of Modelplane's admission rules: group shape (11), a claim in every group (12), count on Workers only (13).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import get_args

from fleetctl.documents.fleet import Member, Resources, Role
from fleetctl.documents.quantity import SHARE, count_of, parse_gpus
from fleetctl.documents.selector import ACCELERATOR_LABEL, parse_requirement
from fleetctl.fleetfile.flags import cards_by_flags
from fleetctl.fleetfile.keys import keys_of
from fleetctl.fleetfile.nodes import Value
from fleetctl.fleetfile.raw import Raw, root
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
    for member in members:
        if "count" in member.value and (role := role_of(member)) in ("Standalone", "Leader"):
            allowed = "copies on the group for more Standalone members" if role == "Standalone" else None
            yield member.problem("FL042", f"count is for a Worker, and this is a {role}", key="count", on_key=True,
                                 allowed=allowed)
    if all(role_of(member) in get_args(Role) for member in members):
        yield from _shape(members)
    if not any(_claims_something(member) for member in members):
        yield group.problem("FL047", "no member of this group claims a resource of its node", key="name", on_key=True,
                            allowed="gpus, vram or cpus in the resources of at least one member")


def _shape(members: list[Raw]) -> Iterator[Problem]:
    standalone, leaders, workers = (
        [member for member in members if role_of(member) == role] for role in ("Standalone", "Leader", "Worker"))
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


def check_cards(model: Raw, group: Raw) -> Iterator[Problem]:
    """Yield the warnings about the cards of one group; a value of the wrong type is reported as such alone."""
    members = list(group.items("members"))
    try:
        cards = [_cards(member) for member in members]
    except ValueError:
        return
    if any(set(member.child("resources").value) - set(Resources.model_fields) for member in members):
        return  # a misspelt key may be the one that says how many
    total = sum(number * whole(member.get("count")) for number, member in zip(cards, members, strict=True))
    for own, member in zip(cards, members, strict=True):
        if total:
            yield from _divided(group, member, own, total)
        if own and is_gang(group):
            yield from _mixed(model, member)


def _cards(member: Raw) -> int:
    """Return how many cards a member holds at least a share of; raises ValueError."""
    resources = member.child("resources")
    share = parse_gpus(resources.get("gpus") or 0)
    return -(-share // SHARE) or (1 if resources.get("vram") else 0)


def _divided(group: Raw, member: Raw, own: int, total: int) -> Iterator[Problem]:
    found = cards_by_flags(member.child("engine"))
    if found is None:
        return
    wanted, multiplied, path = found
    if wanted > total or (wanted not in (own, total) and not multiplied):
        claimed = f"the gang claims {total}" if is_gang(group) else f"this member claims {total}"
        yield group.document.problem(
            "FL066", path, f"the flags divide the model over {count_of(wanted, 'GPU')}, and {claimed}",
            allowed="the same number in the flags and in resources.gpus of all members together")


def _mixed(model: Raw, member: Raw) -> Iterator[Problem]:
    selector = member.child("nodeSelector")
    try:
        wanted = parse_requirement(selector.text(ACCELERATOR_LABEL) or "any")
    except ValueError:
        return
    defaults = root(model.document).child("spec").child("defaults")
    held = any(owner.child("placement").get("sameLabel") for owner in (model, defaults))
    if len(wanted.values) > 1 and not wanted.negated and not held:
        yield selector.problem(
            "FL067", f"one gang may get cards of different types: {', '.join(sorted(wanted.values))}",
            key=ACCELERATOR_LABEL, allowed=f"one type, or placement: {{sameLabel: {ACCELERATOR_LABEL}}}")
