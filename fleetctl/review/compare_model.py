"""The differences of models that both sides have, and the effect of each on running replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fleetctl.documents.difference import Difference, Effect
from fleetctl.documents.mask import CHANGED_MASK, MASK, is_env_value, masked
from fleetctl.documents.position import path_text
from fleetctl.documents.quantity import count_of
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
           "serving": f"changes how `fleetctl endpoints` lists the model; {UNAFFECTED}"}


def model_effect(steps: Steps, old: object, new: object, model: ResolvedModel) -> tuple[Effect, str]:
    """Return the effect of a changed value of a model; `model` is that of the newer side."""
    if steps == ("replicas",) and isinstance(old, int) and isinstance(new, int):
        return _target(old, new)
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
    return "none", _OTHERS.get(steps[0], _STARTED)


def update_effect(model: ResolvedModel) -> str:
    """Return the effect of a changed spec with `update.mode: surge`; "" with keep."""
    return f"update: {_surge(model)}" if model.surge and model.replicas else ""


def _surge(model: ResolvedModel) -> str:
    return (f"{count_of(model.replicas, 'replica')} will be created beside the running ones, {model.surge} at a time; "
            "the old ones stay until they are evicted by name")


def _target(old: int, new: int) -> tuple[Effect, str]:
    if new > old:
        return "additive", f"up to {count_of(new - old, 'more replica')} may be created"
    if new == 0:
        return "held", "no target anymore: running replicas are kept, but not recreated"
    surplus = "1 running replica is" if old - new == 1 else f"{old - new} running replicas are"
    return "held", f"nothing is removed: up to {surplus} kept beyond the target"


_READING_ORDER = ("replicas", "labels", "priority", "startupTimeout", "schedulingTimeout", "restart", "update",
                  "serving", "cold", "placement", "workers")


def model_differences(old: Mapping[str, ModelView], new: Mapping[str, ModelView]) -> dict[str, list[Difference]]:
    """Return the differences of each changed model, in reading order."""
    pairs = {key: _Pair(old[key], model) for key, model in new.items()
             if key in old and _compared_values(old[key].model) != _compared_values(model.model)}
    changed: dict[str, set[Steps]] = {key: set() for key in pairs}
    if pairs:  # one call for all models, as each call of deepdiff is slow
        before = {key: meaning(pair.old.model) for key, pair in pairs.items()}
        after = {key: meaning(pair.new.model) for key, pair in pairs.items()}
        for key, *steps in find_changes(before, after):
            # an environment value is compared as a whole
            changed[key].add(tuple(steps[:-1] if is_env_value(tuple(steps[:-1])) else steps))
    return {key: [*map(pair.difference, sorted(changed[key], key=pair.reading_order)), *pair.reordered()]
            for key, pair in pairs.items()}


def _compared_values(model: ResolvedModel) -> tuple[Any, ...]:
    return (model.spec_hash, model.replicas, model.priority, model.startup_timeout_s, model.scheduling_timeout_s,
            model.restart.max, model.restart.backoff, dict(model.labels), model.serving, model.surge, model.reload,
            model.cold,
            [(member.weights and member.weights.as_json()["from"], member.engine.stop)
             for group in model.workers for member in group.members])


@dataclass(frozen=True)
class _Pair:
    old: ModelView
    new: ModelView

    @cached_property
    def full(self) -> tuple[Keyed, Keyed]:
        return full_meaning(self.old.model), full_meaning(self.new.model)

    def reading_order(self, steps: Steps) -> tuple[int, str, int, int, Steps]:
        place = self.new.place(steps)
        return _READING_ORDER.index(steps[0]), place.file, place.line, place.column, steps

    def difference(self, steps: Steps) -> Difference:
        before, after = (at(side, steps) for side in self.full)
        old, new = self.old.value(steps), self.new.value(steps)
        old = format_value(before, steps) if old is None else old
        new = format_value(after, steps) if new is None else new
        item = None
        if isinstance(old, list) and isinstance(new, list):  # the first that differs
            item = next((index for index, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
                        min(len(old), len(new)))
        old, new = self._masked(steps, old, new)
        effect, message = model_effect(steps, before, after, self.new.model)
        if old == new == MASK:
            message = HIDDEN_CHANGED
        return Difference(
            model=self.new.model.key, path=path_text(self.new.named(steps) or self.old.named(steps) or steps),
            effect=effect, message=message, old=old, new=new,
            kind="added" if old is None else "removed" if new is None else "changed",
            old_source=self.old.place(steps, item), new_source=self.new.place(steps, item),
        )

    def _masked(self, steps: Steps, old: object, new: object) -> tuple[Any, Any]:
        """Return both values with their secrets masked; a text, or an item of a list, with another secret says so."""
        commands = (format_value(at(side, (*steps[:-1], "command")), ("command",)) for side in self.full)
        was, now = (masked(value, steps, command) for value, command in zip((old, new), commands, strict=True))
        if isinstance(old, list) and isinstance(new, list) and isinstance(was, list) and isinstance(now, list):
            for number, (one, other) in enumerate(zip(old, new, strict=False)):
                if one != other and was[number] == now[number]:
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
                    model=self.new.model.key, path=path_text(steps), kind="changed", effect="drift",
                    message="; ".join(filter(None, (REORDERED, update_effect(self.new.model)))),
                    old=before, new=after, old_source=self.old.place(steps), new_source=self.new.place(steps))
