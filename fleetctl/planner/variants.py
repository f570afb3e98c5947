"""The variants of models in a plan: their shapes, how many of each are missing, and why none of them has room.

A model without variants has one alternative, itself, and comes out as if nobody had thought of variants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Blocked, VariantRow
from fleetctl.documents.quantity import count_of, grouped
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.live import ModelState
from fleetctl.planner.placement.claims import ReplicaShape, replica_shape
from fleetctl.planner.placement.demand import Demand, Expected, Option

Shapes = Mapping[str, tuple[ReplicaShape, ...]]
"""By model key, the shape of each alternative, preferred first."""
VARIANT_FULL, NONE_BEYOND_MAX = "VARIANT_FULL", "a variant at its maximum gets no more replicas"
COUNTS_LAST = ("COOLING_DOWN", VARIANT_FULL)
"""Codes that say less of a model than what another variant lacks."""


def shapes_of(fleet: ResolvedFleet, inventory: Inventory) -> Shapes:
    """Return the shapes of all models on the nodes of an inventory."""
    seen = None
    if any(one.description is not None for model in fleet.models for one in model.alternatives):
        from fleetctl.planner.placement.card_use import SeenCards  # for models that are described

        seen = SeenCards(inventory, fleet.policies)
    return {model.key: tuple([replica_shape(one, inventory.nodes, fleet.policies, seen)
                              for one in model.alternatives]) for model in fleet.models}


def counted_shapes(shapes: Shapes) -> dict[str, ReplicaShape]:
    """Return one shape for each model, by key: all of its replicas count in the spread of that one."""
    return {key: next((shape for shape in found if shape.spread is not None), found[0])
            for key, found in shapes.items()}


def demands_of(model: ResolvedModel, state: ModelState, shapes: Sequence[ReplicaShape], place: int) -> list[Demand]:
    """Return what a model misses, one demand for each alternative; `place` = that of the model in the file."""
    missing, live = state.to_create(model), len(state.live)
    if not model.variants:
        return [Demand(shapes[0], missing, live, model.priority, place)]
    return demands_of_each(model, shapes, place, missing=missing, live=live, below=state.below_target(model),
                           lacking=state.below_minimum(model), room=room_of(model, state),
                           first=_first_of_each(model, state, missing) if model.surge else None)


def demands_of_each(
    model: ResolvedModel, shapes: Sequence[ReplicaShape], place: int, *, missing: int, live: int, below: int,
    lacking: Sequence[int], room: Sequence[int], first: Sequence[int] | None = None,
) -> list[Demand]:
    """Return one demand for each variant of a model that is `below` its target, and misses `missing` in all.

    `lacking` = what each variant lacks to its own minimum, `first` = how many it gets first if not as many, `room` =
    how many new ones its maximum allows. A variant gets replicas beyond its own minimum only as far as the target asks
    for them: what another variant lacks to its minimum is no reason for more of this one, also if it has no room.
    """
    target = below if below < sum(lacking) else None
    found, first = list[Demand](), lacking if first is None else first
    for number, (one, shape) in enumerate(zip(model.variants, shapes, strict=True)):
        limit = max(below, lacking[number]) if one.most is None else min(room[number], max(below, lacking[number]))
        found.append(Demand(
            shape, missing, live, model.priority, place, variant=number, least=min(first[number], limit),
            most=None if limit >= missing else limit, counted_units=shapes[0].gpu_units if number else None,
            target=target))
    return found


def _first_of_each(model: ResolvedModel, state: ModelState, missing: int) -> list[int]:
    """Return how many of the `missing` replicas each variant gets first in an update: as many as lack to its `min`.

    Outdated ones do not count, so that one of them may end then.
    """
    found, outdated = state.below_minimum(model), state.outdated_of_each(model)
    left = missing - sum(found)
    for number, (one, live) in enumerate(zip(model.variants, state.live_of_each(model), strict=True)):
        more = min(left, outdated[number], max(0, one.least - (live - outdated[number])))
        found[number], left = found[number] + more, left - more
    return found


def kept_for_minimum(model: ResolvedModel, state: ModelState) -> dict[int, int]:
    """Return how many outdated replicas of which variants may not end: without one the variant is below its `min`."""
    each = zip(model.variants, state.live_of_each(model), state.outdated_of_each(model), strict=True)
    return {number: outdated for number, (one, live, outdated) in enumerate(each) if outdated and live <= one.least}


def room_of(model: ResolvedModel, state: ModelState) -> list[int]:
    """Return how many new replicas the maximum of each variant allows, 0 if it has none.

    During an update, up to its surge of the variant's own outdated ones do not count.
    """
    outdated = state.outdated_of_each(model) if model.surge else [0] * len(model.variants)
    return [0 if one.most is None else max(0, one.most - live + min(model.surge, outdated[number]))
            for number, (one, live) in enumerate(zip(model.variants, state.live_of_each(model), strict=True))]


def is_full(model: ResolvedModel, state: ModelState, number: int, created: int) -> bool:
    """Return whether a variant has as many replicas, `created` ones included, as its maximum allows."""
    return model.variants[number].most is not None and created >= room_of(model, state)[number]


def still_missing(demands: Sequence[Demand], model: ResolvedModel, state: ModelState, created: Counter[Option]
                  ) -> int:
    """Return how many replicas of one model with variants are missing after a plan; `demands` = all of this model."""
    new = sum(created[demand.option] for demand in demands)
    lacking = zip(demands, state.below_minimum(model), strict=True)
    return max(state.below_target(model) - new,
               sum(max(0, least - created[demand.option]) for demand, least in lacking))


def left_of(demands: Sequence[Demand], created: Counter[Option]) -> list[Demand]:
    """Return what is left of demands of which some replicas were created; what minimums still lack is all left."""
    of_model, least = Counter[int](), Counter[int]()
    for (place, _), count in created.items():
        of_model[place] += count
    for demand in demands:
        least[demand.place] += max(0, demand.least - created[demand.option])
    found = list[Demand]()
    for demand in demands:
        new, lacking = of_model[demand.place], least[demand.place]
        left = max(0, (demand.missing if demand.target is None else demand.target) - new)
        found.append(replace(
            demand, missing=max(left, lacking), live=demand.live + new, target=left if left < lacking else None,
            least=max(0, demand.least - created[demand.option]),
            most=None if demand.most is None else max(0, demand.most - created[demand.option])))
    return found


def would_help(demands: Sequence[Demand], model: ResolvedModel, state: ModelState, created: Counter[Option]
               ) -> list[Demand]:
    """Return those of the demands of a model's variants of which one more replica would be one less missing."""
    if state.below_target(model) > sum(created[one.option] for one in demands):
        return list(demands)
    least = state.below_minimum(model)
    return [demand for demand in demands if created[demand.option] < least[demand.variant]]


def full_entry(model: ResolvedModel, number: int, live: int, created: int, replicas: int) -> Blocked:
    """Return the entry of a variant that has reached its maximum."""
    return Blocked(model=model.key, replicas=replicas, code=VARIANT_FULL,
                   message=full_message(model.variants[number].most or 0, live, created),
                   no_remedy="a higher max of the variant, in the fleet file")


def full_message(most: int, live: int, new: int) -> str:
    """Say that a variant has as many replicas as its maximum allows."""
    return f"its maximum of {count_of(most, 'replica')} is reached: {live} live{f' and {new} new' if new else ''}"


def folded(model: ResolvedModel, entries: Sequence[tuple[int, Blocked]]) -> Blocked:
    """Return one entry for a model from those of its alternatives, by their places, preferred first.

    Its code is that of the preferred one; of what would make room, the smallest is told.
    """
    if len(model.variants) <= 1:
        return entries[0][1]
    rows = [(model.variants[number].variant, entry) for number, entry in entries]
    codes = [entry.code for _, entry in rows]
    code = next((code for code in codes if code not in COUNTS_LAST), codes[0])
    first = next(entry for _, entry in rows if entry.code == code)
    making = min((one for one in rows if one[1].make_room), default=None, key=lambda one: (
        len(one[1].make_room), sum(gone.frees for gone in one[1].make_room)))
    adding = min((one for one in rows if one[1].would_fit), default=None, key=lambda one: (
        sum(new.gpus * new.nodes for new in one[1].would_fit), sum(new.nodes for new in one[1].would_fit)))
    remedies = grouped((entry.no_remedy, name) for name, entry in rows if entry.no_remedy and not (making or adding))
    return first.model_copy(update={
        "message": together([(name, entry.message) for name, entry in rows]),
        "reasons": [reason.model_copy(update={"variant": name}) for name, entry in rows for reason in entry.reasons],
        "make_room": [gone.model_copy(update={"variant": making[0]}) for gone in making[1].make_room] if making else [],
        "would_fit": [new.model_copy(update={"variant": adding[0]}) for new in adding[1].would_fit] if adding else [],
        "no_remedy": "; ".join(text if len(names) == len(rows) else f"{', '.join(names)}: {text}"
                               for text, names in remedies.items())})


def together(messages: Sequence[tuple[str, str]]) -> str:
    """Return the reasons of variants in one sentence: `neither a (needs 8 free GPUs) nor b (needs 1 free GPU)`."""
    texts = {text for _, text in messages}
    if len(messages) == 1:
        return ": ".join(messages[0])
    if len(texts) == 1:
        return f"{'both' if len(messages) == 2 else 'each'} of {', '.join(name for name, _ in messages)}: {texts.pop()}"
    return "neither " + " nor ".join(f"{name} ({text})" for name, text in messages)


def expected_of(model: ResolvedModel, state: ModelState, shapes: Sequence[ReplicaShape]) -> list[Expected]:
    """Return what else is expected of a model: what is missing as its first variant, and more of what runs."""
    missing = state.to_create(model)
    if not model.variants:
        return [Expected(shapes[0], missing, max(model.replicas, len(state.live)))]
    live = state.live_of_each(model)
    others = sum(live[1:])
    first = Expected(shapes[0], missing, max(model.asked_for, len(state.live)) - others)
    return [first, *(Expected(shape, 0, count) for shape, count in zip(shapes[1:], live[1:], strict=True) if count)]


def variant_rows(model: ResolvedModel, state: ModelState, place: int, created: Counter[Option],
                 after_pilot: Counter[Option]) -> list[VariantRow]:
    """Return the row of each variant of a model. `after_pilot` = the new ones that wait."""
    return [VariantRow(name=one.variant, live=live, create=created[place, number] - after_pilot[place, number],
                       after_pilot=after_pilot[place, number], least=one.least, most=one.most)
            for number, (one, live) in enumerate(zip(model.variants, state.live_of_each(model), strict=True))]


def variants_text(rows: Sequence[VariantRow]) -> str:
    """Return what runs and what is created as which variant: `h100: 2 live, +1; a100: +2`."""
    parts = [(row.name, ", ".join(filter(None, (f"{row.live} live" if row.live else "",
                                                f"+{row.create}" if row.create else "",
                                                f"+{row.after_pilot} later" if row.after_pilot else ""))))
             for row in rows]
    return "; ".join(f"{name}: {text}" for name, text in parts if text)
