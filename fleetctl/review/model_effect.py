"""The effect of a difference in a model on running replicas, in one word and one sentence."""

from __future__ import annotations

from fleetctl.documents.difference import Effect
from fleetctl.documents.quantity import count_of
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.review.meaning import ORIGINS, SPEC_KEYS, Steps

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
_OTHERS = {"priority": f"decides which models are placed first when resources are short; {UNAFFECTED}",
           "labels": f"decides which --selector and which quotas apply to the model; {UNAFFECTED}",
           "serving": f"changes how `fleetctl endpoints` lists the model; {UNAFFECTED}"}


def model_effect(steps: Steps, old: object, new: object, model: ResolvedModel) -> tuple[Effect, str]:
    """Return the effect of a changed value of a model; `model` is that of the newer side."""
    if steps == ("replicas",) and isinstance(old, int) and isinstance(new, int):
        return _target(old, new)
    if steps[4:] == ORIGINS:
        return "none", f"says where new replicas look for their files; {UNAFFECTED}"
    if steps[0] in SPEC_KEYS:
        kept = _RELOADED if model.reload and steps[4:5] == ORIGINS[:1] else _DRIFT
        return "drift", update_effect(model) or (_SELECTOR if "nodeSelector" in steps else kept)
    if steps[0] == "update":
        return (("additive", f"outdated replicas no longer count: {_surge(model)}") if model.surge
                else ("none", _IN_PLACE if model.reload else _KEEP))
    if steps[0] == "cold":
        return ("none", _NOT_COLD) if model.cold is None else ("additive", _COLD)
    return "none", _OTHERS.get(steps[0], "applies to new replicas; running replicas keep the old value")


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
