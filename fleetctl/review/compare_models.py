"""Compares two versions of each model by meaning: every difference with its effect on running replicas.

A model with variants is compared in parts: what they share, the variants as such, and each that both sides have.
Running replicas are told apart by the spec hash, so variants of one spec are the same one, whatever their names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fleetctl.documents.difference import Difference, Effect
from fleetctl.documents.mask import CHANGED_MASK, MASK, is_env_value, masked
from fleetctl.documents.position import Path, path_text
from fleetctl.documents.quantity import amount_of, count_of
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.review.meaning import (
    ORIGINS,
    SPEC_KEYS,
    STOP,
    Keyed,
    ModelView,
    Steps,
    at,
    find_changes,
    format_value,
    full_meaning,
    meaning,
    members_by_name,
)

UNAFFECTED = "running replicas are not affected"
REORDERED = "the same in another order, but this changes the spec hash: running replicas are kept and reported as drift"
HIDDEN_CHANGED = "the value changed and is not shown; running replicas keep the old value, new ones get the new value"
_DRIFT = "running replicas keep the old spec and are reported as drift; new ones get the new spec"
_SELECTOR = "running replicas stay, even on nodes this no longer allows, and are reported as drift; new ones follow it"
_KEEP = f"outdated replicas count toward the target; {UNAFFECTED}"
_COLD = f"nodes without its weights may fetch them; {UNAFFECTED}"
_NOT_COLD = "nodes keep their weights; `fleetctl prune` removes weights that no file names"
_IN_PLACE = "outdated replicas count toward the target, and reload if only their weights have changed"
_RELOADED = "update: running replicas reload their weights in place, one at a time; new ones get the new weights"
_STARTED = "applies to new replicas; running replicas keep the old value"
_OTHERS = {"priority": f"decides which models are placed first when resources are short; {UNAFFECTED}",
           "labels": f"decides which --selector and which quotas apply to the model; {UNAFFECTED}",
           "model": f"plans compare its size with the memory of the cards; {UNAFFECTED}",
           "memoryCheck": ("decides whether replicas that certainly do not fit on a card are created, with a warning; "
                           f"{UNAFFECTED}"),
           "serving": f"changes how `fleetctl endpoints` lists the model; {UNAFFECTED}",
           "weight": f"divides requests among the variants where `fleetctl endpoints` is used; {UNAFFECTED}"}


def model_effect(steps: Steps, old: object, new: object, model: ResolvedModel) -> tuple[Effect, str]:
    """Return the effect of a changed value of a model; `model` is that of the newer side."""
    if steps[0] in ("replicas", "min", "max"):
        return _count(steps[0], old, new, model)
    if steps[4:] == ORIGINS:
        return "none", f"says where new replicas look for their files; {UNAFFECTED}"
    if steps[0] in SPEC_KEYS and steps[4:6] != STOP:
        kept = _RELOADED if model.reload and steps[4:5] == ORIGINS[:1] else _DRIFT
        return "drift", update_effect(model) or (_SELECTOR if "nodeSelector" in steps else kept)
    if steps[0] == "update":
        return (("additive", f"outdated replicas no longer count: {_surge(model)}") if model.surge
                else ("none", _IN_PLACE if model.reload else _KEEP))
    if steps[0] == "cold":
        return ("none", _NOT_COLD) if model.cold is None else ("additive", _COLD)
    warns = steps[0] == "memoryCheck" and not model.blocks_too_large
    return "additive" if warns else "none", _OTHERS.get(steps[0], _STARTED)


def update_effect(model: ResolvedModel) -> str:
    """Return the effect of a changed spec with `update.mode: surge`; "" with keep."""
    return f"update: {_surge(model)}" if model.surge and (model.is_wanted or model.least) else ""


def _surge(model: ResolvedModel) -> str:
    if model.variant:
        return (f"as many replicas as run of this variant will be created beside them, {model.surge} at a time; the "
                "old ones stay until they are evicted by name")
    return (f"{count_of(model.asked_for, 'replica')} will be created beside the running ones, {model.surge} at a time; "
            "the old ones stay until they are evicted by name")


def _count(key: str, old: object, new: object, model: ResolvedModel) -> tuple[Effect, str]:
    """Return the effect of other `replicas`, or another `min` or `max` of a variant; no number = no limit."""
    if key == "replicas" and isinstance(old, int) and isinstance(new, int):
        return _target(old, new, model.asked_for)
    was, now = (value if isinstance(value, int) else math.inf for value in (old, new))
    if key == "min":
        return ("additive", f"at least {new} replicas of this variant are wanted") if now > was else (
            "held", "nothing is removed: running replicas of this variant are kept")
    return ("additive", "more replicas may be created as this variant") if now > was else (
        "held", "nothing is removed: running replicas of this variant beyond it are kept")


def _target(old: int, new: int, asked_for: int) -> tuple[Effect, str]:
    if new > old:
        return "additive", f"up to {count_of(new - old, 'more replica')} may be created"
    if new == 0:
        left = f"only up to the min of each variant ({asked_for} in all)" if asked_for else "not"
        return "held", f"no target anymore: running replicas are kept, but {left} recreated"
    surplus = "1 running replica is" if old - new == 1 else f"{old - new} running replicas are"
    return "held", f"nothing is removed: up to {surplus} kept beyond the target"


_MODEL_ORDER = ("replicas", "labels", "priority", "startupTimeout", "schedulingTimeout", "restart", "update",
                "memoryCheck", "serving", "cold", "min", "max", "weight", "model", "placement", "workers")


def model_differences(old: Mapping[str, ModelView], new: Mapping[str, ModelView]) -> dict[str, list[Difference]]:
    """Return the differences of each changed model, in reading order."""
    found: dict[str, list[Difference | _Pair]] = {
        key: list(_compared(old[key], view)) for key, view in new.items()
        if key in old and _compared_values(old[key].model) != _compared_values(view.model)}
    pairs = [pair for parts in found.values() for pair in parts if isinstance(pair, _Pair)]
    changed: list[set[Steps]] = [set() for _ in pairs]
    if pairs:  # one call for all models, as each call of deepdiff is slow
        before = {str(number): meaning(pair.old.model) for number, pair in enumerate(pairs)}
        after = {str(number): meaning(pair.new.model) for number, pair in enumerate(pairs)}
        for number, *steps in find_changes(before, after):
            # an environment value is compared as a whole
            changed[int(number)].add(tuple(steps[:-1] if is_env_value(tuple(steps[:-1])) else steps))
    changes = iter(changed)
    return {key: [difference for part in parts for difference in (
        part.differences(next(changes)) if isinstance(part, _Pair) else [part])] for key, parts in found.items()}


def _compared_values(model: ResolvedModel) -> tuple[Any, ...]:
    return (model.replicas, model.priority, model.startup_timeout_s, model.scheduling_timeout_s,
            model.restart.max, model.restart.backoff, dict(model.labels), model.serving, model.surge, model.reload,
            model.cold, model.blocks_too_large,
            [(way.variant, way.least, way.most, way.weight, way.spec_hash, way.description,
              [(member.weights and member.weights.as_json()["from"], member.engine.stop)
               for group in way.workers for member in group.members]) for way in model.alternatives])


def _compared(old: ModelView, new: ModelView) -> Iterator[Difference | _Pair]:
    """Yield what is to be compared of a model, and the differences between its variants as such."""
    if not old.model.variants and not new.model.variants:
        yield _Pair(old, new)
        return
    # a model without variants is one with a single variant, which has no name
    yield _Pair(replace(old, model=replace(old.model, variants=old.model.alternatives)),
                replace(new, model=replace(new.model, variants=new.model.alternatives)))
    same = _same_ways(old.ways, new.ways)
    yield from _variant_differences(old, new, same)
    for was, now in same:
        if was and now:
            named = now.model if now.model.variant else was.model
            yield _Pair(_called(was, named), _called(now, named), named.variant)


def _called(way: ModelView, named: ResolvedModel) -> ModelView:
    """Return a variant under the name of `named`; the workers of a model without variants get its limits, too."""
    limits = way.model if way.model.variant else named
    return replace(way, model=replace(way.model, variant=named.variant, least=limits.least, most=limits.most,
                                      weight=limits.weight))


def _same_ways(old: Sequence[ModelView], new: Sequence[ModelView]
               ) -> list[tuple[ModelView | None, ModelView | None]]:
    """Pair the variants of two sides, in the new order, the removed ones last: those of one spec, whatever their names,
    as running replicas are told apart by it; then those of one name.
    """
    left = list(old)
    former: dict[int, ModelView] = {}
    for by_spec in (True, False):
        for place, now in enumerate(new):
            was = next((way for way in left if place not in former and (
                now.model.has_spec(way.model.spec_hash) if by_spec else now.model.variant == way.model.variant)), None)
            if was is not None:
                former[place] = was
                left.remove(was)
    return [*((former.get(place), now) for place, now in enumerate(new)), *((way, None) for way in left)]


def _variant_differences(old: ModelView, new: ModelView, same: Sequence[tuple[ModelView | None, ModelView | None]]
                         ) -> Iterator[Difference]:
    """Yield the variants that are new, removed or renamed, and another order of preference."""
    model = new.model
    for place, (was, now) in enumerate(same):
        if was and now and was.model.variant != now.model.variant:
            yield _variant_difference(was, now, model.key, "none", _renamed(was.model, now.model))
        elif now and not was:
            wanted = model.replicas or now.model.least
            effect: Effect = "additive" if wanted else "none"
            yield _variant_difference(None, now, model.key, effect, _new_variant(now.model, place))
        elif was and not now:
            what = f"variant {was.model.variant}" if was.model.variant else "the former workers"
            message = f"running replicas of {what} are kept, count toward the target, and are reported as drift"
            yield _variant_difference(was, None, model.key, "drift", update_effect(model) or message)
    kept = [was.model.variant for was, now in same if was and now]
    if kept != [name for name in (was.model.variant for was in old.ways) if name in kept]:
        before, after = ([way.model.variant for way in side.ways] for side in (old, new))
        yield Difference(
            model=model.key, path="variants", kind="changed", effect="none", old=before, new=after,
            old_source=old.position(("variants",)), new_source=new.position(("variants",)),
            message=f"decides which variant of those that fit new replicas are; {UNAFFECTED}")


def _variant_difference(was: ModelView | None, now: ModelView | None, key: str, effect: Effect, message: str
                        ) -> Difference:
    name = next((side.model.variant for side in (now, was) if side and side.model.variant), "")
    old, new = (_variant_text(side.model) if side else None for side in (was, now))
    return Difference(
        model=key, path=path_text(("variants", name)) if name else "workers", effect=effect, message=message,
        kind="changed" if was and now else "added" if now else "removed", old=old, new=new,
        old_source=was.model.source if was else None, new_source=now.model.source if now else None)


def _renamed(was: ResolvedModel, now: ResolvedModel) -> str:
    if not was.variant or not now.variant:
        how = (f"the former workers are variant {now.variant}" if now.variant else
               f"the workers are those of variant {was.variant}")
        return f"{how}, with the same spec: nothing becomes outdated, and {UNAFFECTED}"
    return f"a new name for variant {was.variant}, with the same spec; {UNAFFECTED}"


def _new_variant(variant: ResolvedModel, place: int) -> str:
    if variant.replicas == 0 and not variant.least:
        return "a new variant of a model without a target: nothing is created"
    how = "preferred to all others" if place == 0 else f"number {place + 1} in the order of preference"
    least = f", and at least {variant.least} will be" if variant.least else ""
    return f"a new variant, {how}: new replicas may be of it{least}; {UNAFFECTED}"


def _variant_text(variant: ResolvedModel) -> str:
    """Return `h100, 8 GPUs, min 1, max 4, weight 2`."""
    gpus = variant.gpus
    return ", ".join([variant.variant or "without variants", *([amount_of(gpus, "GPU")] if gpus else []),
                      *([f"min {variant.least}"] if variant.least else []),
                      *([f"max {variant.most}"] if variant.most is not None else []),
                      *([f"weight {variant.weight}"] if variant.weight is not None else [])])


@dataclass(frozen=True)
class _Pair:
    """Two sides of a model, of what its variants share, or of one variant, with its name."""

    old: ModelView
    new: ModelView
    variant: str = ""

    def differences(self, changed: Set[Steps]) -> list[Difference]:
        """Return the changed values as differences, in reading order, then what was put in another order."""
        return [*map(self.difference, sorted(changed, key=self.reading_order)),
                *(self.reordered() if not self.new.model.variants else ())]

    @cached_property
    def full(self) -> tuple[Keyed, Keyed]:
        return full_meaning(self.old.model), full_meaning(self.new.model)

    def reading_order(self, steps: Steps) -> tuple[int, str, int, int, Steps]:
        position = self.new.position(steps)
        return _MODEL_ORDER.index(steps[0]), position.file, position.line, position.column, steps

    def difference(self, steps: Steps) -> Difference:
        before, after = (at(side, steps) for side in self.full)
        old, new = self.old.value(steps), self.new.value(steps)
        old = format_value(before, steps) if old is None else old
        new = format_value(after, steps) if new is None else new
        item = None
        if isinstance(old, list) and isinstance(new, list):  # the first that differs
            item = next((index for index, (was, now) in enumerate(zip(old, new, strict=False)) if was != now),
                        min(len(old), len(new)))
        old, new = self._masked(steps, old, new)
        effect, message = model_effect(steps, before, after, self.new.model)
        if old == new == MASK:
            message = HIDDEN_CHANGED
        return Difference(
            model=self.new.model.key, path=self._path(self.new.named(steps) or self.old.named(steps) or steps),
            effect=effect, message=message, old=old, new=new,
            kind="added" if old is None else "removed" if new is None else "changed",
            old_source=self.old.position(steps, item), new_source=self.new.position(steps, item),
        )

    def _path(self, steps: Path) -> str:
        return path_text(("variants", self.variant, *steps) if self.variant else steps)

    def _masked(self, steps: Steps, old: object, new: object) -> tuple[Any, Any]:
        """Return both values with their secrets masked; a text, or an item of a list, with another secret says so."""
        commands = (format_value(at(side, (*steps[:-1], "command")), ("command",)) for side in self.full)
        was, now = (masked(value, steps, command) for value, command in zip((old, new), commands, strict=True))
        if isinstance(old, list) and isinstance(new, list) and isinstance(was, list) and isinstance(now, list):
            for number, (secret, other) in enumerate(zip(old, new, strict=False)):
                if secret != other and was[number] == now[number]:
                    now[number] = str(now[number]).replace(MASK, CHANGED_MASK)
        if isinstance(now, str) and was == now != MASK and old != new:
            now = now.replace(MASK, CHANGED_MASK)
        return was, now

    def reordered(self) -> Iterator[Difference]:
        """Yield groups and members whose order changed: the order alone changes the spec hash."""
        old, new = ({group.name: list(members_by_name(group)) for group in side.model.workers}
                    for side in (self.old, self.new))
        lists: list[tuple[Steps, list[str], list[str]]] = [(("workers",), list(old), list(new))]
        lists += [(("workers", name, "members"), old[name], new[name]) for name in new if name in old]
        for steps, before, after in lists:
            if [name for name in before if name in after] != [name for name in after if name in before]:
                yield Difference(
                    model=self.new.model.key, path=self._path(steps), kind="changed", effect="drift",
                    message="; ".join(filter(None, (REORDERED, update_effect(self.new.model)))),
                    old=before, new=after, old_source=self.old.position(steps), new_source=self.new.position(steps))
