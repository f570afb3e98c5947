"""The differences of node policies: entries are matched by selector, and each setting is a separate difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from fleetctl.documents.difference import Difference, Effect
from fleetctl.documents.position import Position, path_text
from fleetctl.documents.selector import in_one_spelling
from fleetctl.planner.placement.policies import ONE_EACH, UNCAPPED
from fleetctl.review.meaning import Steps, format_value
from fleetctl.review.model_effect import UNAFFECTED
from fleetctl.review.source_view import WrittenFleet

_CAP, _RESERVE, _GPU_MEMORY, _CORDON, _WARM, _PORTS = _SETTINGS = (
    ("maxReplicasPerModel",), ("reserve", "vram"), ("gpuMemory",), ("cordon",), ("warm",), ("weightsPorts",))
Setting = int | bool | str | None
_Key = tuple[str, int]
"""A selector in its canonical spelling, and a number that counts the entries with it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of spec.nodes: its number across all documents, and its settings; None = not set."""

    fleet: WrittenFleet
    number: int
    settings: Mapping[Steps, Setting]

    def value(self, setting: Steps) -> Any:  # noqa: ANN401  any YAML value
        """Return a setting as written; the default set by `reserve: {}` is formatted instead."""
        if self.settings[setting] is None:
            return None
        document, path = self.fleet.policies[self.number]
        node = document.node((*path, *setting))
        return format_value(self.settings[setting], setting) if node is None or node.value is None else node.value

    def place(self, setting: Steps) -> Position:
        """Return the position of a setting, or of the nearest key above it."""
        document, path = self.fleet.policies[self.number]
        return document.place((*path, *setting))


def node_differences(old: WrittenFleet, new: WrittenFleet) -> Iterator[Difference]:
    """Yield the differences, in the order of the new entries; entries without a setting are ignored."""
    before, after = _entries(old), _entries(new)
    cards = {any(member.resources.gpus or member.resources.vram for group in model.workers for member in group.members)
             for model in new.fleet.models}
    for key in {**after, **before}:
        was, now = before.get(key), after.get(key)
        for setting in _SETTINGS:
            if _setting(was, setting) != _setting(now, setting):
                yield _difference(key[0], setting, was, now, cards)
    moved = [setting for setting in _SETTINGS
             if _setting_entries(setting, before, after) != _setting_entries(setting, after, before)]
    if moved:
        yield Difference(
            path="nodes", kind="changed", effect="drift" if _CAP in moved else "additive",
            old=[key[0] for key in before], new=[key[0] for key in after],
            old_source=old.place(("spec", "nodes")), new_source=new.place(("spec", "nodes")),
            message=f"the last entry that sets a key wins, and the last entry is a different one now; {UNAFFECTED}")


def _difference(nodes: str, setting: Steps, was: _Entry | None, now: _Entry | None, cards: Set[bool]) -> Difference:
    """Return the difference of one setting; an entry is None if a side has none with its selector.

    `cards` holds True and False if models with and without GPU or VRAM claims exist: their default caps differ.
    """
    old, new = was.value(setting) if was else None, now.value(setting) if now else None
    effect, message = _effect(setting, _setting(was, setting), _setting(now, setting), cards)
    number = next(entry.number for entry in (now, was) if entry)
    return Difference(
        path=path_text(("nodes", number, *setting)), effect=effect, message=f"{nodes}: {message}",
        kind="added" if old is None else "removed" if new is None else "changed", old=old, new=new,
        old_source=was.place(setting) if was else None, new_source=now.place(setting) if now else None,
    )


def _entries(written: WrittenFleet) -> dict[_Key, _Entry]:
    seen: Counter[str] = Counter()
    found = {}
    for number, policy in enumerate(written.fleet.policies):
        selector = ", ".join(f"{key}={text}" for key, text in sorted(in_one_spelling(policy.selector).items()))
        settings: dict[Steps, Setting] = {
            _CAP: policy.max_replicas_per_model, _RESERVE: policy.reserve.vram if policy.reserve else None,
            _GPU_MEMORY: policy.gpu_memory, _CORDON: policy.cordon,
            _WARM: policy.warm, _PORTS: policy.weights_ports}
        found[selector or "every node", seen[selector]] = _Entry(written, number, settings)
        seen[selector] += 1
    return found


def _setting(entry: _Entry | None, setting: Steps) -> Setting:
    return entry.settings[setting] if entry else None


def _setting_entries(setting: Steps, one: Mapping[_Key, _Entry], other: Mapping[_Key, _Entry]) -> list[_Key]:
    """Return the entries that have a setting on both sides, in the order of `one`."""
    return [key for key, entry in one.items()
            if None not in (_setting(entry, setting), _setting(other.get(key), setting))]


def _effect(setting: Steps, old: Setting, new: Setting, cards: Set[bool]) -> tuple[Effect, str]:
    if setting == _PORTS or isinstance(old, str) or isinstance(new, str):
        return "none", f"where new replicas there serve their weights; {UNAFFECTED}"
    more = (new or 0) > (old or 0)
    if setting == _CAP:
        return _cap_effect(old, new, cards)
    if setting == _CORDON:
        return ("none", f"no new replicas go there; {UNAFFECTED}") if new else (
            "additive", "new replicas may go there again")
    if setting == _WARM:
        return "none", f"the limit on memory for WARM replicas there; {UNAFFECTED}"
    if setting == _RESERVE:
        return ("none", f"less of each card is offered to new replicas; {UNAFFECTED}") if more else (
            "additive", "more of each card is offered to new replicas")
    return ("additive", "cards that do not report their memory count as larger") if more else (
        "none", f"cards that do not report their memory count as smaller, or not at all; {UNAFFECTED}")


def _cap_effect(old: int | None, new: int | None, cards: Set[bool]) -> tuple[Effect, str]:
    for has_cards in cards:
        default = (UNCAPPED if has_cards else ONE_EACH).limit
        if (default if new is None else new) < (default if old is None else old):
            return "drift", "running replicas beyond the cap are kept and reported as drift (ABOVE_SLOT_CAP)"
    return "additive", "a model may have more replicas on one node"
