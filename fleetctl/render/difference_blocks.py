"""Differences grouped for a reader: by model, and what one line of a file changes in many models only once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fleetctl.documents.difference import Difference
from fleetctl.render.difference_text import values_of


@dataclass(frozen=True, slots=True)
class Shared:
    """One difference in all of `models`; none = it is about the fleet as a whole."""

    difference: Difference
    models: tuple[str, ...]


def shared_differences(differences: Sequence[Difference]) -> list[Shared]:
    """Return each difference once, with the models it is in, in the order of its first model."""
    models: dict[object, list[str]] = {}
    first: dict[object, Difference] = {}
    for difference in differences:
        key = _group_key(difference)
        first.setdefault(key, difference)
        models.setdefault(key, []).extend([] if difference.model is None else [difference.model])
    return [Shared(difference, tuple(models[key])) for key, difference in first.items()]


def blocks(differences: Sequence[Difference]) -> Iterator[tuple[tuple[str, ...], list[Difference]]]:
    """Yield the groups: about the fleet, about several models at once, about one model."""
    shared = shared_differences(differences)
    rank = {models: number for number, models in enumerate(dict.fromkeys(one.models for one in shared))}
    ordered = sorted(shared, key=lambda one: (len(one.models) == 1, rank[one.models]))
    for models, group in groupby(ordered, key=lambda one: one.models):
        yield models, [one.difference for one in group]


def _group_key(difference: Difference) -> object:
    """Return a key that differences share when one line of a file makes them; one without a line has its own key."""
    place = difference.new_source
    if difference.model is None or not difference.path or place is None:
        return difference.model, difference.path, difference.kind
    return (difference.path, difference.effect, difference.message, *values_of(difference),
            place.file, place.line, place.column)
