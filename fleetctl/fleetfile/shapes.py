"""Merges each shape in `spec.shapes` below the models that name it, before anything else is checked.

After that every model has workers of its own: plans, diffs and spec hashes know nothing of shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.nearest import nearest
from fleetctl.documents.quantity import some
from fleetctl.fleetfile.compose import MANY_FLEETS, MAX_NODES
from fleetctl.fleetfile.merge import with_shapes
from fleetctl.fleetfile.nodes import Document, Value, size_of
from fleetctl.fleetfile.raw import Raw, models, shapes_of
from fleetctl.fleetfile.validate import MAX_FOUND
from fleetctl.problem import Problem

UNUSABLE = "FL039"
UNUSED = "FL075"
SUGGESTED = 100


def use_shapes(documents: Sequence[Document], *, whole: bool) -> tuple[list[Document], list[Problem]]:
    """Merge the shapes of all documents below their models; `whole` = every file could be read.

    Return the documents and the problems found; a model with a problem stays unchanged.
    """
    problems: list[Problem] = []
    shapes = _by_name(documents, problems)
    sizes = {name: size_of(shape.document.node(shape.path)) for name, shape in shapes.items()}
    used: set[str] = set()
    merged: list[Document] = []
    total = 0
    for document in documents:
        found: dict[int, tuple[Document, str]] = {}
        for model in models(document):
            name = _used_by(model)
            if name is None:
                continue
            used.add(name)
            total += sizes.get(name, 0)
            if total > MAX_NODES:
                problems.append(model.problem("FL014", f"more than {MAX_NODES} values, shapes expanded", key="shape",
                                              allowed=MANY_FLEETS))
                break
            if name in shapes and "workers" not in model.value:
                found[int(model.path[-1])] = shapes[name].document, name
            elif (whole or name in shapes) and len(problems) <= MAX_FOUND:
                # a suggestion among thousands of names takes milliseconds
                problems.append(_unusable(model, name, list(shapes) if len(problems) < SUGGESTED else []))
        merged.append(with_shapes(document, found))
    if whole and total <= MAX_NODES:
        # an unused shape of a base may be for other fleets
        problems += (shape.problem(UNUSED, f'no model uses the shape "{name}"', on_key=True)
                     for name, shape in shapes.items()
                     if name not in used and shape.document.locate(shape.path)[0] is shape.document.source)
    return merged, problems


def _by_name(documents: Sequence[Document], problems: list[Problem]) -> dict[str, Raw]:
    """Return the shapes of all documents by name; a duplicate is a problem, and the first counts."""
    shapes: dict[str, Raw] = {}
    for shape in (shape for document in documents for shape in shapes_of(document)):
        name = str(shape.path[-1])
        first = shapes.setdefault(name, shape)
        if first is not shape:
            problems.append(shape.problem(UNUSABLE, f'duplicate shape "{name}"; the first is at {first.at()}',
                                          on_key=True))
    return shapes


def _used_by(model: Raw) -> str | None:
    """Return the name of the shape that a model uses; None if it uses none, or `shape` is not valid."""
    use: Value = model.get("shape")
    if isinstance(use, dict):
        use = use.get("name") if use.keys() <= {"name", "workers"} else None
    return use if isinstance(use, str) else None


def _unusable(model: Raw, name: str, shapes: list[str]) -> Problem:
    if "workers" in model.value:
        return model.problem(UNUSABLE, "a model has either workers or a shape, not both", key="workers", on_key=True,
                             allowed=f"one of the two; write changes as shape: {{name: {name}, workers: [...]}}")
    return model.problem(UNUSABLE, f'spec.shapes has no "{name}"', key="shape", allowed=some(shapes, 20) or None,
                         suggestion=nearest(name, shapes))
