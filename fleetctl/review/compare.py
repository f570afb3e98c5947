"""Compares two fleets by meaning: every difference with both values, both positions and its effect on running replicas.

The order of keys and models, comments, quotes, the spelling of quantities and the split into files do not matter.
Reads nothing and writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from fleetctl.collector import collector_paused
from fleetctl.documents.canonical import canonical_json
from fleetctl.documents.difference import Difference, Effect, FleetDiff, FleetSize
from fleetctl.documents.fleet import Cluster, History
from fleetctl.documents.position import Path, path_text
from fleetctl.documents.quantity import amount_of, count_of, grouped
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.inventory.address import without_secret
from fleetctl.planner.outcome import CHANGES
from fleetctl.review.compare_model import model_differences
from fleetctl.review.compare_nodes import node_differences
from fleetctl.review.inputs import Side
from fleetctl.review.meaning import Keyed, Steps, find_changes
from fleetctl.review.model_effect import UNAFFECTED
from fleetctl.review.source_view import WrittenFleet, WrittenModel

_READING_ORDER = ("metadata", "cluster", "history", "policy")
_POLICY = f"plan and apply check it from now on; {UNAFFECTED}"
_HISTORY = f"applies from now on delete ended runs beyond both limits; {UNAFFECTED}"
_ADDRESS = "plans are made for another cluster, where every replica is missing; those on the old cluster keep running"
_FIRST_ADDRESS = "used unless --address or FLEETCTL_ADDRESS is set"
_NAMESPACE = ("replicas in {old} keep running and keep their resources, but no longer count: all would be created "
              "again in {new}")
_NAME = ("running replicas belong to {old}: they keep running but no longer count, and their models are blocked unless "
         "plan and apply get --adopt-from {old}")


def compare(base: Side, head: Side) -> FleetDiff:
    """Return the differences between two sides, at least one of which has a fleet."""
    before, after = written(base), written(head)
    with collector_paused():
        found = list(differences(before, after))
    return FleetDiff(
        fleet=next(side.fleet.name for side in (head, base) if side.fleet), base=base.revision, head=head.revision,
        before=_size(before), after=_size(after),
        summary=count_effects(found), differences=found, exit_code=CHANGES if found else 0,
    )


def differences(before: WrittenFleet | None, after: WrittenFleet | None) -> Iterator[Difference]:
    """Yield the differences: of the fleet as a whole, then of the models in the new order, then the removed models."""
    if before and after:
        yield from fleet_differences(before, after)
    old, new = before.models if before else {}, after.models if after else {}
    renamed = dict(_renames([old[key] for key in old if key not in new], [new[key] for key in new if key not in old]))
    new_names = {former: latter for latter, former in renamed.items()}
    changed = model_differences(old, new)
    for key, model in new.items():
        yield from changed.get(key, ()) if key in old else [_added(model, renamed.get(key))]
    yield from (_removed(model, new_names.get(key)) for key, model in old.items() if key not in new)


def count_effects(found: Iterable[Difference]) -> dict[Effect, int]:
    """Count differences by effect, in the order of the effects."""
    counts = Counter(difference.effect for difference in found)
    return {effect: counts[effect] for effect in get_args(Effect)}


def written(side: Side) -> WrittenFleet | None:
    """Return the fleet of a side as written in its files; None if it has none."""
    return WrittenFleet(side.fleet, side.documents) if side.fleet else None


def _renames(removed: Sequence[WrittenModel], added: Sequence[WrittenModel]) -> Iterator[tuple[str, str]]:
    """Pair new models with removed ones of the same spec: (new key, old key)."""
    by_spec = grouped((one.model.spec_hash, one.model.key) for one in removed)
    for one in added:
        if candidates := by_spec.get(one.model.spec_hash):
            yield one.model.key, candidates.pop(0)


def _added(written: WrittenModel, former: str | None) -> Difference:
    """Return the difference of a new model; `former` = the key of a removed one with the same spec."""
    model = written.model
    effect = f"up to {count_of(model.replicas, 'replica')} may be created" if model.replicas else "nothing is created"
    if former is None:
        message = f"a new model{'' if model.replicas else ' without a target'}: {effect}"
    else:
        message = (f"looks like a new name for {former}, with the same spec, but is a new model: "
                   f"{effect} beside the old ones")
    return Difference(model=model.key, path="", kind="added", effect="additive" if model.replicas else "none",
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
    gpus = _gpus_of(model)
    return count_of(model.replicas, "replica") + (f" of {amount_of(gpus, 'GPU')}" if gpus else "")


def _gpus_of(model: ResolvedModel) -> int:
    """Return the GPUs requested by one replica, in 1/10000; members that request only VRAM count as 0."""
    return sum(group.copies * (member.count or 1) * member.resources.gpus
               for group in model.workers for member in group.members)


def _size(written: WrittenFleet | None) -> FleetSize:
    models = written.fleet.models if written else ()
    return FleetSize(models=len(models), replicas=sum(model.replicas for model in models),
                     gpus=sum(model.replicas * _gpus_of(model) for model in models))


def fleet_differences(old: WrittenFleet, new: WrittenFleet) -> Iterator[Difference]:
    """Yield the differences of the fleet as a whole: name, cluster, policy, then node policies."""
    before, after = _settings(old), _settings(new)
    changed = {steps[:2] for steps in find_changes(before, after)} if before != after else set()
    for steps in sorted(changed, key=lambda steps: (_READING_ORDER.index(steps[0]), steps)):
        yield _difference(steps, old, new)
    yield from node_differences(old, new)


def _settings(written: WrittenFleet) -> Keyed:
    fleet = written.fleet
    policy = fleet.policy.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if fleet.policy.schemas:
        policy["schemas"] = _house_rules(fleet)
    return {"metadata": {"name": fleet.name}, "cluster": fleet.cluster.model_dump(), "policy": _unordered(policy),
            "history": (fleet.history or History()).as_json()}


def _house_rules(fleet: ResolvedFleet) -> list[str]:
    """Return the schemas with their hashes, so that a changed file with the same name is a difference."""
    return [f"{name}@{file.sha256[:12]}"
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
    return Difference(
        path=path_text(steps), effect=effect, message=message, old=old, new=new,
        kind="added" if old is None else "removed" if new is None else "changed",
        old_source=before.place(path), new_source=after.place(path),
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
    return "none", _HISTORY if steps[0] == "history" else _POLICY
