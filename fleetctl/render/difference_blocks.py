"""Differences put together for a reader: by model, and those that one line of a file makes in many models only once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fleetctl.documents.difference import Difference
from fleetctl.render.difference_text import values_of

NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Shared:
    """One difference in all of `models`; none = it is about the fleet as a whole."""

    difference: Difference
    models: tuple[str, ...]


def shared_differences(differences: Sequence[Difference]) -> list[Shared]:
    """Return each difference once, with the models it is in: first where it was first, in the order they came."""
    models: dict[object, list[str]] = {}
    first: dict[object, Difference] = {}
    for difference in differences:
        alike = _alike(difference)
        first.setdefault(alike, difference)
        models.setdefault(alike, []).extend([] if difference.model is None else [difference.model])
    return [Shared(difference, tuple(models[alike])) for alike, difference in first.items()]


def blocks(differences: Sequence[Difference]) -> Iterator[tuple[tuple[str, ...], list[Difference]]]:
    """Yield what is to be told together: about the fleet, about several models at once, about one model."""
    shared = shared_differences(differences)
    rank = {models: number for number, models in enumerate(dict.fromkeys(one.models for one in shared))}
    ordered = sorted(shared, key=lambda one: (len(one.models) == 1, rank[one.models]))
    for models, group in groupby(ordered, key=lambda one: one.models):
        yield models, [one.difference for one in group]


def names_text(models: Sequence[str]) -> str:
    """Return the first few names and how many more there are; texts as they came."""
    named, rest = ", ".join(models[:NAMES_SHOWN]), len(models) - NAMES_SHOWN
    return f"{named} and {rest} more" if rest > 0 else named


def _alike(difference: Difference) -> object:
    """Return what is equal for differences that one line of a file makes; what has no line is like no other."""
    place = difference.new_source
    if difference.model is None or not difference.path or place is None:
        return difference.model, difference.path, difference.kind
    return (difference.path, difference.effect, difference.message, *values_of(difference),
            place.file, place.line, place.column)
