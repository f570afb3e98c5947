"""Rules over one worker group: valid roles, count only on Workers, at least one claim, and its cards.

Counterparts of Modelplane's admission rules: group shape (11), a claim in every group (12), count only on Workers (13).
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
"""A replica's actor carries all its planned members, about 240 bytes each, in one environment variable, and Linux
limits it to 128 KiB."""
_RESOURCES = frozenset(keys_of(Resources))
_CLAIMS = ("gpus", "vram", "cpus")


def role_of(member: Raw) -> Value:
    """Return the role as written; absent = Standalone."""
    return member.get("role") if "role" in member.value else "Standalone"


def is_gang(group: Raw) -> bool:
    """Return whether the group is a gang, valid or not: a member is a Leader or a Worker."""
    return any(role_of(member) in ("Leader", "Worker") for member in group.items("members"))


def check_group(group: Raw) -> Iterator[Problem]:
    """Yield the problems between the members of one group."""
    members = list(group.items("members"))
    if not members:
        return
    for member in members:
        if "count" in member.value and (role := role_of(member)) in ("Standalone", "Leader"):
            allowed = "copies of the group, for more Standalone members" if role == "Standalone" else None
            yield member.problem("FL042", f"count is only for a Worker, and this member is a {role}", key="count",
                                 on_key=True, allowed=allowed)
    if all(role_of(member) in get_args(Role) for member in members):
        yield from _shape(members)
    if not any(_claims_something(member) for member in members):
        yield group.problem("FL047", "no member of this group claims gpus, vram or cpus", key="name", on_key=True,
                            allowed="a claim in the resources of at least one member")


def _shape(members: list[Raw]) -> Iterator[Problem]:
    standalone, leaders, workers = (
        [member for member in members if role_of(member) == role] for role in ("Standalone", "Leader", "Worker"))
    if standalone and len(members) > 1:
        gang = bool(leaders or workers)
        yield from (_not_alone(member, gang) for member in standalone[0 if gang else 1:])
    yield from (member.problem("FL046", f"a second Leader; the first is at {leaders[0].at('role')}", key="role")
                for member in leaders[1:])
    if workers and not leaders and not standalone:
        yield workers[0].problem("FL044", "this group has Workers but no Leader", key="role",
                                 allowed="one Leader and its Workers, or one Standalone")
    if leaders and not workers and not standalone:
        yield leaders[0].problem("FL045", "this group has a Leader but no Workers", key="role",
                                 allowed="a Leader with at least one Worker, or one Standalone")


def _not_alone(member: Raw, in_gang: bool) -> Problem:
    implied = "role" not in member.value
    message = "a Standalone member must be alone in its group" + (" (no role means Standalone)" if implied else "")
    allowed = "one Leader and its Workers, or one Standalone" if in_gang else "copies of the group, to have several"
    return member.problem("FL043", message, key=None if implied else "role", allowed=allowed)


def _claims_something(member: Raw) -> bool:
    resources = member.value.get("resources", {})
    if not isinstance(resources, dict) or not {*member.value} <= {*keys_of(Member)} or not {*resources} <= _RESOURCES:
        return True  # reported elsewhere; a second problem would be noise
    return any(_is_positive(resources.get(claim, 0)) for claim in _CLAIMS)


def _is_positive(amount: Value) -> bool:
    try:
        return Decimal(str(amount)) != 0
    except InvalidOperation:
        return True


def members_per_copy(group: Raw) -> int:
    """Return the number of members in one copy of the group; an invalid count counts as 1."""
    return sum(whole(member.get("count")) for member in group.items("members"))


def whole(value: Value) -> int:
    """Return a count, or 1 if it is absent or invalid."""
    return value if isinstance(value, int) and value > 0 else 1


def check_cards(model: Raw, group: Raw) -> Iterator[Problem]:
    """Yield the warnings about the cards of one group; none if a claim is invalid, which is reported elsewhere."""
    members = list(group.items("members"))
    try:
        cards = [_cards(member) for member in members]
    except ValueError:
        return
    if any(set(member.child("resources").value) - set(Resources.model_fields) for member in members):
        return  # the misspelled key may be the one that claims the cards
    total = sum(number * whole(member.get("count")) for number, member in zip(cards, members, strict=True))
    for own, member in zip(cards, members, strict=True):
        if total:
            yield from _divided(group, member, own, total)
        if own and is_gang(group):
            yield from _mixed(model, member)


def _cards(member: Raw) -> int:
    """Return the number of cards of which a member claims at least a share; raises ValueError."""
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
            "FL066", path, f"the flags divide the model over {count_of(wanted, 'GPU')}, but {claimed}",
            allowed="the same number in the flags and in resources.gpus, summed over the members")


def _mixed(model: Raw, member: Raw) -> Iterator[Problem]:
    selector = member.child("nodeSelector")
    try:
        wanted = parse_requirement(selector.text(ACCELERATOR_LABEL) or "any")
    except ValueError:
        return
    defaults = root(model.document).child("spec").child("defaults")
    same_label = any(owner.child("placement").get("sameLabel") for owner in (model, defaults))
    if len(wanted.values) > 1 and not wanted.negated and not same_label:
        yield selector.problem(
            "FL067", f"a gang may get cards of different types: {', '.join(sorted(wanted.values))}",
            key=ACCELERATOR_LABEL, allowed=f"one type, or placement: {{sameLabel: {ACCELERATOR_LABEL}}}")
