"""Compares two fleets by meaning: every difference with both values, both positions and its effect on running replicas.
Models are compared in `compare_models`.

The order of keys and models, comments, quotes, the spelling of quantities and the split into files do not matter.
Reads nothing and writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, get_args

from fleetctl.collector import collector_paused
from fleetctl.documents.canonical import canonical_json, short_hash
from fleetctl.documents.difference import Difference, Effect, FleetDiff, FleetSize
from fleetctl.documents.fleet import Cluster, History, Policy, Quota
from fleetctl.documents.position import Path, Position, path_text
from fleetctl.documents.quantity import amount_of, count_of, format_bytes, grouped, some
from fleetctl.documents.selector import in_one_spelling
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.inventory.access import without_secret
from fleetctl.planner.placement.policies import ONE_EACH, UNCAPPED
from fleetctl.planner.policy import CHANGES
from fleetctl.review.compare_models import UNAFFECTED, model_differences
from fleetctl.review.inputs import Side
from fleetctl.review.meaning import (
    Keyed,
    Steps,
    WrittenFleet,
    WrittenModel,
    find_changes,
    format_value,
)

_READING_ORDER = ("metadata", "cluster", "history", "policy")
_POLICY = f"plan and apply check it from now on; {UNAFFECTED}"
_HISTORY = f"applies from now on delete ended runs beyond both limits; {UNAFFECTED}"
_ADDRESS = "plans are made for another cluster, where every replica is missing; those on the old cluster keep running"
_FIRST_ADDRESS = "used unless --address or FLEETCTL_ADDRESS is set"
_NAMESPACE = ("replicas in {old} keep running and keep their resources, but no longer count: all would be created "
              "again in {new}")
_GROW = f"plans may wait for other new nodes than before; {UNAFFECTED}"
_PRICES = f"what new nodes cost an hour, by which plans choose among their types; {UNAFFECTED}"
_NAME = ("running replicas belong to {old}: they keep running but no longer count, and their models are blocked unless "
         "plan and apply get --adopt-from {old}")
_CAP, _RESERVE, _GPU_MEMORY, _CORDON, _WARM, _PORTS, _PRICE, _RESIDENTS = _SETTINGS = (
    ("maxReplicasPerModel",), ("reserve", "vram"), ("gpuMemory",), ("cordon",), ("warm",), ("weightsPorts",),
    ("price",), ("residents",))
_NEUTRAL = {_WARM: "the limit on memory for WARM replicas there",
            _PRICE: "what they cost an hour, which decides between places that are otherwise as good",
            _RESIDENTS: "what may use memory of each card beside replicas, which plans subtract"}
Setting = int | bool | str | None
_Key = tuple[str, int]
"""A selector in its canonical spelling, and a number that counts the entries with it."""


def compare(base: Side, head: Side) -> FleetDiff:
    """Return the differences between two sides, at least one of which has a fleet."""
    before, after = written(base), written(head)
    with collector_paused():
        changes = list(differences(before, after))
    counts = Counter(difference.effect for difference in changes)
    return FleetDiff(
        fleet=next(side.fleet.name for side in (head, base) if side.fleet), base=base.revision, head=head.revision,
        before=_size(before), after=_size(after),
        summary={effect: counts[effect] for effect in get_args(Effect)}, differences=changes,
        exit_code=CHANGES if changes else 0,
    )


def differences(before: WrittenFleet | None, after: WrittenFleet | None) -> Iterator[Difference]:
    """Yield the differences: of the fleet as a whole (name, cluster, policy, node policies), then of the models.

    These are in the new order, then come the removed ones.
    """
    if before and after:
        was, now = _settings(before), _settings(after)
        changed_settings = {steps[:2] for steps in find_changes(was, now)} if was != now else set()
        for steps in sorted(changed_settings, key=lambda steps: (_READING_ORDER.index(steps[0]), steps)):
            yield _difference(steps, before, after)
        yield from _node_differences(before, after)
    old, new = before.models if before else {}, after.models if after else {}
    # a new model is paired with a removed one of the same spec: it may have been renamed
    by_spec = grouped((view.model.spec_hash, key) for key, view in old.items() if key not in new)
    renamed = {key: by_spec[view.model.spec_hash].pop(0) for key, view in new.items()
               if key not in old and by_spec.get(view.model.spec_hash)}
    new_names = {former: latter for latter, former in renamed.items()}
    changed = model_differences(old, new)
    for key, model in new.items():
        yield from changed.get(key, ()) if key in old else [_added(model, renamed.get(key))]
    yield from (_removed(model, new_names.get(key)) for key, model in old.items() if key not in new)


def written(side: Side) -> WrittenFleet | None:
    """Return the fleet of a side as written in its files; None if it has none."""
    return WrittenFleet(side.fleet, side.documents) if side.fleet else None


def _added(written: WrittenModel, former: str | None) -> Difference:
    """Return the difference of a new model; `former` = the key of a removed one with the same spec."""
    model = written.model
    asked_for = model.asked_for
    effect = f"up to {count_of(asked_for, 'replica')} may be created" if asked_for else "nothing is created"
    if former is None:
        message = f"a new model{'' if asked_for else ' without a target'}: {effect}"
    else:
        message = (f"looks like a new name for {former}, with the same spec, but is a new model: "
                   f"{effect} beside the old ones")
    return Difference(model=model.key, path="", kind="added", effect="additive" if asked_for else "none",
                      new=_size_text(model), new_source=model.source, message=message)


def _removed(written: WrittenModel, latter: str | None) -> Difference:
    """Return the difference of a removed model; `latter` = the key of a new one with the same spec."""
    message = "its replicas become unmanaged, keep running and keep their resources; nothing is removed"
    if latter is not None:
        message += f"; it may have been renamed to {latter}"
    return Difference(model=written.model.key, path="", kind="removed", effect="held", old=_size_text(written.model),
                      old_source=written.model.source, message=message)


def _size_text(model: ResolvedModel) -> str:
    """Return `2 replicas of 8 GPUs`."""
    gpus = model.gpus
    return count_of(model.asked_for, "replica") + (f" of {amount_of(gpus, 'GPU')}" if gpus else "")


def _size(written: WrittenFleet | None) -> FleetSize:
    models = written.fleet.models if written else ()
    return FleetSize(models=len(models), replicas=sum(model.asked_for for model in models),
                     gpus=sum(model.gpus_asked_for for model in models))


def _settings(written: WrittenFleet) -> Keyed:
    fleet = written.fleet
    policy = fleet.policy.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if fleet.policy.schemas:
        policy["schemas"] = _house_rules(fleet)
    return {"metadata": {"name": fleet.name}, "cluster": fleet.cluster.model_dump(), "policy": _unordered(policy),
            "history": (fleet.history or History()).as_json()}


def _house_rules(fleet: ResolvedFleet) -> list[str]:
    """Return the schemas with their hashes, so that a changed file with the same name is a difference."""
    return [f"{name}@{short_hash(file.sha256)}"
            for name, file in zip(fleet.policy.schemas, fleet.house_rules, strict=True)]


def _unordered(value: Any) -> Any:  # noqa: ANN401  any JSON value
    if isinstance(value, dict):
        return {key: _unordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return ", ".join(sorted(item if isinstance(item, str) else canonical_json(item).decode() for item in value))
    return value


def _difference(steps: Steps, before: WrittenFleet, after: WrittenFleet) -> Difference:
    path: Path = steps if steps[0] == "metadata" else ("spec", *steps)
    old, new = (_value(side, path) for side in (before, after))
    if old == new and steps == ("policy", "schemas"):
        old, new = _house_rules(before.fleet), _house_rules(after.fleet)
    effect, message = _effect(steps, old, new)
    if steps == ("policy", "quotas") and (raised := _raised(before.fleet.policy.quotas, after.fleet.policy.quotas)):
        effect, message = "additive", f"more replicas may be created: the quota of {some(raised)} allows more"
    if steps[0] == "policy" and (lifted := _lifted(steps[1], before.fleet.policy, after.fleet.policy)):
        effect, message = "additive", lifted
    return Difference(
        path=path_text(steps), effect=effect, message=message, old=old, new=new,
        kind="added" if old is None else "removed" if new is None else "changed",
        old_source=before.position(path), new_source=after.position(path),
    )


def _value(written: WrittenFleet, path: Path) -> Any:  # noqa: ANN401  any YAML value
    value = written.value(path)
    if path[-1] == "address" and isinstance(value, str):
        return without_secret(value)
    return Cluster().namespace if value is None and path[-1] == "namespace" else value


def _effect(steps: Steps, old: object, new: object) -> tuple[Effect, str]:
    if steps == ("metadata", "name"):
        return "held", _NAME.format(old=old)
    if steps == ("cluster", "namespace"):
        return "additive", _NAMESPACE.format(old=old, new=new)
    if steps == ("cluster", "address"):
        return ("none", _FIRST_ADDRESS) if None in (old, new) else ("additive", _ADDRESS)
    if steps == ("cluster", "grow"):
        return ("none", _PRICES) if _unpriced(old) == _unpriced(new) else ("additive", _GROW)
    return "none", _HISTORY if steps[0] == "history" else _POLICY


def _unpriced(types: object) -> object:
    return [{key: value for key, value in one.items() if key != "price"} if isinstance(one, dict) else one
            for one in types] if isinstance(types, list) else types


def _lifted(key: str, before: Policy, after: Policy) -> str | None:
    """Return what a plan may do that the policy did not allow before; None if this key allows no more."""
    if key in ("maxNewReplicas", "maxNewGpus", "maxChangePercent"):
        was, now = (policy.as_json().get(key) for policy in (before, after))
        return "a larger plan is allowed" if was is not None and (now is None or now > was) else None
    dropped = sorted({*before.protected_models} - {*after.protected_models})
    return f"replicas of {some(dropped)} may be created" if key == "protectedModels" and dropped else None


def _raised(before: Sequence[Quota], after: Sequence[Quota]) -> list[str]:
    """Return the selectors of the quotas of which a limit was raised or dropped."""
    was, now = ({(_selector_text(quota.selector, "every model"), key): limit for quota in reversed(quotas)
                 for key, limit in (("gpus", quota.gpus), ("replicas", quota.replicas)) if limit is not None}
                for quotas in (before, after))
    return list(dict.fromkeys(selector for (selector, key), limit in reversed(was.items())
                              if now.get((selector, key), limit + 1) > limit))


def _selector_text(selector: Mapping[str, str], everything: str) -> str:
    return ", ".join(f"{key}={text}" for key, text in sorted(in_one_spelling(selector).items())) or everything


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
        written = node is not None and node.value is not None and setting != _RESIDENTS
        return node.value if node is not None and written else format_value(self.settings[setting], setting)

    def position(self, setting: Steps) -> Position:
        """Return the position of a setting, or of the nearest key above it."""
        document, path = self.fleet.policies[self.number]
        return document.position((*path, *setting))


def _node_differences(old: WrittenFleet, new: WrittenFleet) -> Iterator[Difference]:
    """Yield those of node policies, in the order of the new entries; entries without a setting are ignored.

    Entries are matched by selector, and each setting is a separate difference.
    """
    before, after = _entries(old), _entries(new)
    cards = {any(member.resources.gpus or member.resources.vram for group in way.workers for member in group.members)
             for model in new.fleet.models for way in model.alternatives}
    for key in {**after, **before}:
        was, now = before.get(key), after.get(key)
        for setting in _SETTINGS:
            if _setting(was, setting) != _setting(now, setting):
                yield _node_difference(key[0], setting, was, now, cards)
    moved = [setting for setting in _SETTINGS
             if _setting_entries(setting, before, after) != _setting_entries(setting, after, before)]
    if moved:
        yield Difference(
            path="nodes", kind="changed",
            effect="drift" if _CAP in moved else "none" if set(moved) <= {_PRICE, _RESIDENTS} else "additive",
            old=[key[0] for key in before], new=[key[0] for key in after],
            old_source=old.position(("spec", "nodes")), new_source=new.position(("spec", "nodes")),
            message=f"the last entry that sets a key wins, and the last entry is a different one now; {UNAFFECTED}")


def _node_difference(
    nodes: str, setting: Steps, was: _Entry | None, now: _Entry | None, cards: Set[bool]
) -> Difference:
    """Return the difference of one setting; an entry is None if a side has none with its selector.

    `cards` holds True and False if models with and without GPU or VRAM claims exist: their default caps differ.
    """
    old, new = was.value(setting) if was else None, now.value(setting) if now else None
    effect, message = _node_effect(setting, _setting(was, setting), _setting(now, setting), cards)
    number = next(entry.number for entry in (now, was) if entry)
    return Difference(
        path=path_text(("nodes", number, *setting)), effect=effect, message=f"{nodes}: {message}",
        kind="added" if old is None else "removed" if new is None else "changed", old=old, new=new,
        old_source=was.position(setting) if was else None, new_source=now.position(setting) if now else None,
    )


def _entries(written: WrittenFleet) -> dict[_Key, _Entry]:
    seen: Counter[str] = Counter()
    entries = {}
    for number, policy in enumerate(written.fleet.policies):
        selector = _selector_text(policy.selector, "every node")
        settings: dict[Steps, Setting] = {
            _CAP: policy.max_replicas_per_model, _RESERVE: policy.reserve.vram if policy.reserve else None,
            _GPU_MEMORY: policy.gpu_memory, _CORDON: policy.cordon,
            _WARM: policy.warm, _PORTS: policy.weights_ports, _PRICE: policy.price,
            _RESIDENTS: None if policy.residents is None else ", ".join(
                f"{format_bytes(one.memory)} of {one.process or 'any process'}" for one in policy.residents)}
        entries[selector, seen[selector]] = _Entry(written, number, settings)
        seen[selector] += 1
    return entries


def _setting(entry: _Entry | None, setting: Steps) -> Setting:
    return entry.settings[setting] if entry else None


def _setting_entries(setting: Steps, entries: Mapping[_Key, _Entry], other: Mapping[_Key, _Entry]) -> list[_Key]:
    """Return the entries that have a setting on both sides, in the order of `entries`."""
    return [key for key, entry in entries.items()
            if None not in (_setting(entry, setting), _setting(other.get(key), setting))]


def _node_effect(setting: Steps, old: Setting, new: Setting, cards: Set[bool]) -> tuple[Effect, str]:
    if setting in _NEUTRAL:
        return "none", f"{_NEUTRAL[setting]}; {UNAFFECTED}"
    if setting == _PORTS or isinstance(old, str) or isinstance(new, str):
        return "none", f"where new replicas there serve their weights; {UNAFFECTED}"
    more = (new or 0) > (old or 0)
    if setting == _CAP:
        defaults = [(UNCAPPED if has_cards else ONE_EACH).limit for has_cards in cards]
        lower = any((default if new is None else new) < (default if old is None else old) for default in defaults)
        return ("drift", "running replicas beyond the cap are kept and reported as drift (ABOVE_SLOT_CAP)") if lower \
            else ("additive", "a model may have more replicas on one node")
    if setting == _CORDON:
        return ("none", f"no new replicas go there; {UNAFFECTED}") if new else (
            "additive", "new replicas may go there again")
    if setting == _RESERVE:
        return ("none", f"less of each card is offered to new replicas; {UNAFFECTED}") if more else (
            "additive", "more of each card is offered to new replicas")
    return ("additive", "cards that do not report their memory count as larger") if more else (
        "none", f"cards that do not report their memory count as smaller, or not at all; {UNAFFECTED}")
