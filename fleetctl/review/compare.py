"""Compares two fleets by meaning: every difference with both values, both places and what it does to what runs.

The order of keys and models, comments, quotes, the spelling of quantities and the split into files make no difference.
Reads nothing and writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from fleetctl.collector import collector_paused
from fleetctl.documents.difference import Difference, Effect, FleetDiff, FleetSize
from fleetctl.documents.quantity import amount_of, count_of
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.outcome import CHANGES
from fleetctl.review.compare_fleet import fleet_differences
from fleetctl.review.compare_model import model_differences
from fleetctl.review.inputs import Side
from fleetctl.review.source_view import WrittenFleet, WrittenModel


def compare(base: Side, head: Side) -> FleetDiff:
    """Return what is different between two sides; at least one of them has a fleet."""
    before, after = written(base), written(head)
    with collector_paused():
        found = list(differences(before, after))
    return FleetDiff(
        fleet=next(side.fleet.name for side in (head, base) if side.fleet), base=base.revision, head=head.revision,
        before=_size(before), after=_size(after),
        summary=summarise(found), differences=found, exit_code=CHANGES if found else 0,
    )


def differences(before: WrittenFleet | None, after: WrittenFleet | None) -> Iterator[Difference]:
    """Yield the differences: of the fleet as a whole, then of its models in the new order, then those taken out."""
    if before and after:
        yield from fleet_differences(before, after)
    old, new = before.models if before else {}, after.models if after else {}
    renamed = dict(_renames([old[key] for key in old if key not in new], [new[key] for key in new if key not in old]))
    once = {former: latter for latter, former in renamed.items()}
    changed = model_differences(old, new)
    for key, model in new.items():
        yield from changed.get(key, ()) if key in old else (_added(model, renamed.get(key)),)
    yield from (_removed(model, once.get(key)) for key, model in old.items() if key not in new)


def summarise(found: Iterable[Difference]) -> dict[Effect, int]:
    """Count differences by effect, in the order of the effects."""
    counts = Counter(difference.effect for difference in found)
    return {effect: counts[effect] for effect in get_args(Effect)}


def written(side: Side) -> WrittenFleet | None:
    """Return the fleet of a side as it is written; None where it has none."""
    return WrittenFleet(side.fleet, side.documents) if side.fleet else None


def _renames(removed: Sequence[WrittenModel], added: Sequence[WrittenModel]) -> Iterator[tuple[str, str]]:
    """Pair new models with removed ones of the same spec: (new key, old key)."""
    waiting: dict[str, list[str]] = {}
    for one in removed:
        waiting.setdefault(one.model.spec_hash, []).append(one.model.key)
    for one in added:
        if candidates := waiting.get(one.model.spec_hash):
            yield one.model.key, candidates.pop(0)


def _added(written: WrittenModel, former: str | None) -> Difference:
    """Return a model that is new; `former` = the key of one with the same spec that is gone."""
    model = written.model
    does = f"up to {count_of(model.replicas, 'replica')} may be created" if model.replicas else "nothing is created"
    if former is None:
        message = f"a new model{'' if model.replicas else ' without a target'}: {does}"
    else:
        message = (f"looks like a new name for {former}, with the same spec, but is a new model: "
                   f"{does} beside those of it")
    return Difference(model=model.key, path="", kind="added", effect="additive" if model.replicas else "none",
                      new=_size_text(model), new_source=model.source, message=message)


def _removed(written: WrittenModel, latter: str | None) -> Difference:
    """Return a model that is gone; `latter` = the key of a new one with the same spec."""
    message = "its replicas become unmanaged, run on and keep their room; nothing is removed"
    if latter is not None:
        message += f"; looks like it is called {latter} now"
    return Difference(model=written.model.key, path="", kind="removed", effect="held", old=_size_text(written.model),
                      old_source=written.model.source, message=message)


def _size_text(model: ResolvedModel) -> str:
    """Return `2 replicas of 8 GPUs`."""
    gpus = _gpus_of(model)
    return count_of(model.replicas, "replica") + (f" of {amount_of(gpus, 'GPU')}" if gpus else "")


def _gpus_of(model: ResolvedModel) -> int:
    """Return the GPUs one replica asks for, in 1/10000, without those it asks for as memory of cards alone."""
    return sum(group.copies * (member.count or 1) * member.resources.gpus
               for group in model.workers for member in group.members)


def _size(written: WrittenFleet | None) -> FleetSize:
    models = written.fleet.models if written else ()
    return FleetSize(models=len(models), replicas=sum(model.replicas for model in models),
                     gpus=sum(model.replicas * _gpus_of(model) for model in models))
