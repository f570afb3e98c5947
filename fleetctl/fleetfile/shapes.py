"""Shapes: what `spec.shapes` has is merged below each model that names it, before anything else is checked.

From here on such a model is one with workers of its own, so that a plan, a difference and the spec hash know no shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetctl.documents.nearest import nearest
from fleetctl.fleetfile.merge import with_shapes
from fleetctl.fleetfile.nodes import Document, Value
from fleetctl.fleetfile.raw import Raw, models, root
from fleetctl.problem import Problem

UNUSABLE = "FL039"
UNUSED = "FL075"


@dataclass(frozen=True, slots=True)
class Shaped:
    """The documents with each shape in its models, and the problems of that; a model with one of them is unchanged."""

    documents: tuple[Document, ...]
    problems: tuple[Problem, ...]


def use_shapes(documents: Sequence[Document], *, whole: bool) -> Shaped:
    """Merge the shapes of all documents below their models; `whole` = every file could be read."""
    problems: list[Problem] = []
    shapes: dict[str, Raw] = {}
    for shape in (shape for document in documents for shape in shapes_of(document)):
        first = shapes.setdefault(_name_of(shape), shape)
        if first is not shape:
            problems.append(shape.problem(UNUSABLE, f'the shape "{_name_of(shape)}" is already at {first.at()}',
                                          on_key=True))
    used: set[str] = set()
    shaped: list[Document] = []
    for document in documents:
        found: dict[int, tuple[Document, str]] = {}
        for model in models(document):
            name = _used_by(model)
            if name is None:
                continue
            used.add(name)
            if name in shapes and "workers" not in model.value:
                found[int(model.path[-1])] = shapes[name].document, name
            elif whole or name in shapes:
                problems.append(_unusable(model, name, list(shapes)))
        shaped.append(with_shapes(document, found))
    if whole:
        problems += (shape.problem(UNUSED, f'no model uses the shape "{name}"', on_key=True)
                     for name, shape in shapes.items() if name not in used and _is_own(shape))
    return Shaped(tuple(shaped), tuple(problems))


def shapes_of(document: Document) -> Iterator[Raw]:
    """Yield the shapes of one document."""
    shapes = root(document).child("spec").child("shapes")
    yield from (shapes.child(name) for name, value in shapes.value.items() if isinstance(value, dict))


def _name_of(shape: Raw) -> str:
    return str(shape.path[-1])


def _used_by(model: Raw) -> str | None:
    """Return the name of the shape that a model uses; None where it uses none, or says so in an unknown way."""
    use: Value = model.get("shape")
    if isinstance(use, dict):
        use = use.get("name") if use.keys() <= {"name", "workers"} else None
    return use if isinstance(use, str) else None


def _unusable(model: Raw, name: str, shapes: list[str]) -> Problem:
    if "workers" in model.value:
        return model.problem(UNUSABLE, "workers beside a shape", key="workers", on_key=True, allowed=(
            f"one of the two; what differs from the shape is in shape: {{name: {name}, workers: [...]}}"))
    return model.problem(UNUSABLE, f'no shape "{name}" in spec.shapes', key="shape", allowed=", ".join(shapes) or None,
                         suggestion=nearest(name, shapes))


def _is_own(shape: Raw) -> bool:
    """Return whether a shape is in the given file itself: one of a file that it extends may be for other fleets."""
    return shape.document.locate(shape.path)[0] is shape.document.source
