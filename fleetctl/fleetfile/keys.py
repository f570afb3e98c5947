"""The keys of the fleet file and their parents, derived from the pydantic models so that messages always match them."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from fleetctl.documents.fleet import FleetDocument
from fleetctl.documents.position import Path

Annotation = Any
"""A type annotation of a model."""


def model_at(path: Path) -> type[BaseModel] | None:
    """Return the model of the mapping at `path`, or None if the value there is a free map, a list or a scalar."""
    return _model_at(tuple(0 if isinstance(part, int) else part for part in path))


@lru_cache(maxsize=1024)
def _model_at(path: Path) -> type[BaseModel] | None:
    alternatives: list[Any] = [FleetDocument]
    for part in path:
        alternatives = [step for found in alternatives for step in _step(found, part)]
    return next((found for found in alternatives if _is_model(found)), None)


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the allowed keys of a mapping of this model, in the order of the published schema."""
    own = {field.alias or name: None for name, field in model.model_fields.items() if name in model.__annotations__}
    inherited = {field.alias or name: None for name, field in model.model_fields.items()}
    return list(own | inherited)


@lru_cache(maxsize=1)
def homes() -> dict[str, tuple[str, ...]]:
    """Return the possible parent keys of every key of the format."""
    found: dict[str, dict[str, None]] = {}
    for parent, model in _models("", FleetDocument):
        for key in keys_of(model):
            found.setdefault(key, {})[parent] = None
    return {key: tuple(parents) for key, parents in found.items()}


@lru_cache(maxsize=1)
def exclusive_keys() -> dict[str, tuple[str, ...]]:
    """Return the keys of which a mapping has exactly one, by the key of the mapping or of the list that it is in."""
    return {parent: model.KINDS for parent, model in _models("", FleetDocument) if hasattr(model, "KINDS")}


def _models(parent: str, annotation: Annotation) -> Iterator[tuple[str, type[BaseModel]]]:
    for found in _alternatives(annotation):
        if _is_model(found):
            yield parent, found
            for name, field in found.model_fields.items():
                yield from _models(field.alias or name, field.annotation)
        elif _is_container(found):
            yield from _models(parent, get_args(found)[-1])


def _step(annotation: Annotation, part: str | int) -> list[Any]:
    if _is_model(annotation):
        field = next((f for name, f in annotation.model_fields.items() if (f.alias or name) == part), None)
        return _alternatives(field.annotation) if field else []
    if _is_container(annotation):
        return _alternatives(get_args(annotation)[-1])
    return []


def _alternatives(annotation: Annotation) -> list[Any]:
    origin: Any = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [found for part in get_args(annotation) for found in _alternatives(part)]
    return [annotation]


def _is_container(annotation: Annotation) -> bool:
    origin: Any = get_origin(annotation)
    return origin in (list, dict)


def _is_model(annotation: Annotation) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
