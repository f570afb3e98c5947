"""Rules over the cards of one worker group: flags that contradict them, and gangs that may mix card types."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.documents.fleet import Resources
from fleetctl.documents.quantity import SHARE, count_of, parse_gpus
from fleetctl.documents.selector import ACCELERATOR_LABEL, parse_requirement
from fleetctl.fleetfile.flags import cards_by_flags
from fleetctl.fleetfile.raw import Raw, root
from fleetctl.fleetfile.rules_group import is_gang, whole
from fleetctl.problem import Problem


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
