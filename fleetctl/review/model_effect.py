"""What a difference in a model does to what runs, in one word and one sentence."""

from __future__ import annotations

from fleetctl.documents.difference import Effect
from fleetctl.documents.quantity import count_of
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.review.meaning import ORIGINS, SPEC_KEYS, Steps

REORDERED = "the same in another order, but this changes the spec hash: running replicas are kept and reported as drift"
HIDDEN_CHANGED = "the value is another one and is not shown; running replicas keep the old one, new ones get this"
_DRIFT = "running replicas keep the old spec and are reported as drift; new ones get this"
_SELECTOR = "running replicas stay, also where this no longer allows them, and are reported as drift; new ones follow"
_KEEP = "outdated replicas count toward the target; nothing that runs is touched"
_COLD = "nodes without its weights may fetch them; nothing that runs is touched"
_NOT_COLD = "nodes keep what they have; `fleetctl prune` removes what no file names"
_IN_PLACE = "outdated replicas count toward the target, and reload where only their weights have changed"
_RELOADED = "update: running replicas reload their weights in place, one at a time; new ones get this"
_OTHERS = {"priority": "decides who is placed first when room is short; nothing that runs is touched",
           "labels": "says which --selector and which quotas the model is of; nothing that runs is touched",
           "serving": "changes how `fleetctl endpoints` lists it; nothing that runs is touched"}


def model_effect(steps: Steps, old: object, new: object, model: ResolvedModel) -> tuple[Effect, str]:
    """Return the effect of a value of a model that is not what it was; `model` as the newer side has it."""
    if steps == ("replicas",) and isinstance(old, int) and isinstance(new, int):
        return _target(old, new)
    if steps[4:] == ORIGINS:
        return "none", "says where new replicas look for their files; nothing that runs is touched"
    if steps[0] in SPEC_KEYS:
        kept = _RELOADED if model.reload and steps[4:5] == ORIGINS[:1] else _DRIFT
        return "drift", update_effect(model) or (_SELECTOR if "nodeSelector" in steps else kept)
    if steps[0] == "update":
        return (("additive", f"outdated replicas count no longer: {_beside(model)}") if model.surge
                else ("none", _IN_PLACE if model.reload else _KEEP))
    if steps[0] == "cold":
        return ("none", _NOT_COLD) if model.cold is None else ("additive", _COLD)
    return "none", _OTHERS.get(steps[0], "holds for replicas created from now on; those that run keep the old value")


def update_effect(model: ResolvedModel) -> str:
    """Return what a changed spec causes with `update.mode: surge`; empty with keep."""
    return f"update: {_beside(model)}" if model.surge and model.replicas else ""


def _beside(model: ResolvedModel) -> str:
    return (f"{count_of(model.replicas, 'replica')} will be created beside the running ones, {model.surge} at a time; "
            "those stay until they are evicted by name")


def _target(old: int, new: int) -> tuple[Effect, str]:
    if new > old:
        return "additive", f"up to {count_of(new - old, 'more replica')} may be created"
    if new == 0:
        return "held", "no target any more: what runs is kept, and nothing is created in its place"
    surplus = "1 running replica is" if old - new == 1 else f"{old - new} running replicas are"
    return "held", f"nothing is removed: up to {surplus} kept beyond the target"
