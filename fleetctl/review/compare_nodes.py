"""The differences of node policies: entries are matched by selector, each setting is a difference of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from fleetctl.documents.difference import Difference, Effect
from fleetctl.documents.fleet import NodePolicy
from fleetctl.fleetfile.problems import path_text
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.policies import ONE_EACH, UNCAPPED
from fleetctl.review.format_value import format_value
from fleetctl.review.meaning import Steps, selector_meaning
from fleetctl.review.source_view import WrittenFleet

_CAP = "max_replicas_per_model"
_SETTINGS: dict[str, Steps] = {
    _CAP: ("maxReplicasPerModel",), "reserve_vram": ("reserve", "vram"),
    "gpu_memory": ("gpuMemory",), "cordon": ("cordon",),
}
_KEPT = "nothing that runs is touched"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of spec.nodes: its number over all documents, and its settings; None = not set."""

    number: int
    settings: Mapping[str, int | bool | None]


def node_differences(old: WrittenFleet, new: WrittenFleet) -> Iterator[Difference]:
    """Yield the differences, in the order of the new entries; an entry without a setting means nothing."""
    before, after = _entries(old), _entries(new)
    kinds = {_claims_cards(model) for model in new.fleet.models}
    for key in {**after, **before}:
        was, now = before.get(key), after.get(key)
        for name in _SETTINGS:
            if _setting(was, name) != _setting(now, name):
                yield _Changed(old, new, was, now, key[0], kinds).difference(name)
    if (order := _order_matters(before, after)) is not None:
        yield Difference(
            path="nodes", kind="changed", effect=order, old=[key[0] for key in before], new=[key[0] for key in after],
            old_source=old.place(("spec", "nodes")), new_source=new.place(("spec", "nodes")),
            message=f"the last entry that sets a key wins, and another entry is the last one now; {_KEPT}")


_Key = tuple[str, int]
"""A selector in one spelling, and which of the entries that have it."""


def _entries(written: WrittenFleet) -> dict[_Key, _Entry]:
    seen: Counter[str] = Counter()
    found = {}
    for number, policy in enumerate(written.fleet.policies):
        selector = ", ".join(f"{key}={text}" for key, text in selector_meaning(policy.selector).items())
        found[selector or "every node", seen[selector]] = _Entry(number, _settings(policy))
        seen[selector] += 1
    return found


def _settings(policy: NodePolicy) -> dict[str, int | bool | None]:
    return {_CAP: policy.max_replicas_per_model,
            "reserve_vram": policy.reserve.vram if policy.reserve else None,
            "gpu_memory": policy.gpu_memory, "cordon": policy.cordon}


def _claims_cards(model: ResolvedModel) -> bool:
    return any(member.resources.gpus or member.resources.vram for group in model.workers for member in group.members)


def _value(written: WrittenFleet, entry: _Entry | None, name: str) -> Any:  # noqa: ANN401  any YAML value
    """Return a setting as written; `reserve: {}` sets a default, which is written nowhere."""
    if entry is None or entry.settings[name] is None:
        return None
    value = written.policy_value(entry.number, _SETTINGS[name])
    return format_value(entry.settings[name], _SETTINGS[name]) if value is None else value


def _setting(entry: _Entry | None, name: str) -> int | bool | None:
    return entry.settings[name] if entry else None


def _order_matters(before: Mapping[_Key, _Entry], after: Mapping[_Key, _Entry]) -> Effect | None:
    """Return the effect of entries in another order; None where they are in the same, or no two set the same."""
    moved = {name for name in _SETTINGS
             if _setting_entries(name, before, after) != _setting_entries(name, after, before)}
    if not moved:
        return None
    return "drift" if _CAP in moved else "additive"


def _setting_entries(name: str, one: Mapping[_Key, _Entry], other: Mapping[_Key, _Entry]) -> list[_Key]:
    """Return the entries that set something on both sides, in the order of `one`."""
    return [key for key, entry in one.items()
            if None not in (_setting(entry, name), _setting(other.get(key), name))]


@dataclass(frozen=True, slots=True)
class _Changed:
    """One entry on both sides; None where a side has none with its selector."""

    before: WrittenFleet
    after: WrittenFleet
    was: _Entry | None
    now: _Entry | None
    nodes: str
    kinds: Set[bool]
    """Whether there are models that claim GPU or VRAM, and models that do not: their default caps differ."""

    def difference(self, name: str) -> Difference:
        setting = _SETTINGS[name]
        old, new = _value(self.before, self.was, name), _value(self.after, self.now, name)
        number = self.now.number if self.now else self.was.number if self.was else 0
        was, now = _setting(self.was, name), _setting(self.now, name)
        effect, message = _cap_effect(was, now, self.kinds) if name == _CAP else _effect(name, was, now)
        return Difference(
            path=path_text(("nodes", number, *setting)), effect=effect, message=f"{self.nodes}: {message}",
            kind="added" if old is None else "removed" if new is None else "changed", old=old, new=new,
            old_source=self.before.policy_place(self.was.number, setting) if self.was else None,
            new_source=self.after.policy_place(self.now.number, setting) if self.now else None,
        )


def _cap_effect(old: int | None, new: int | None, kinds: Set[bool]) -> tuple[Effect, str]:
    caps = [[(UNCAPPED if cards else ONE_EACH).limit if cap is None else cap for cap in (old, new)] for cards in kinds]
    if any(after < before for before, after in caps):
        return "drift", "running replicas beyond the cap are kept and reported as drift (ABOVE_SLOT_CAP)"
    return "additive", "a model may have more replicas on one node"


def _effect(name: str, old: int | bool | None, new: int | bool | None) -> tuple[Effect, str]:
    if name == "cordon":
        return ("none", f"nothing new goes there; {_KEPT}") if new else ("additive", "new replicas may go there again")
    if name == "reserve_vram":
        return ("none", f"less of each card is on offer to new replicas; {_KEPT}") if (new or 0) > (old or 0) else (
            "additive", "more of each card is on offer to new replicas")
    return ("additive", "cards that do not report their memory are known to have more of it") if (new or 0) > (
        old or 0) else ("none", f"cards that do not report their memory count as smaller, or not at all; {_KEPT}")
