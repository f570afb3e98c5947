"""A fleet as written in its files: the position and the spelling of each value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fleetctl.documents.position import Path, Position
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.review.meaning import Steps, members_by_name

_INHERITED = frozenset({"priority", "startupTimeout", "schedulingTimeout", "restart", "update", "placement"})


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model of which only the meaning and its position are known; see `WrittenModel`."""

    model: ResolvedModel

    def named(self, steps: Steps) -> Path | None:
        """Return the steps as shown to people, with the group's name; None if its group or member does not exist."""
        return path_below(self.model, steps)[1]

    def value(self, steps: Steps) -> Any:  # noqa: ANN401, ARG002  any YAML value
        """Return the value as written, secrets included; None if it is not written."""
        return None

    def place(self, steps: Steps, item: int | None = None) -> Position:  # noqa: ARG002
        """Return the position of the value, or of its list item; else of the nearest key above it."""
        return self.model.source


@dataclass(frozen=True, slots=True)
class WrittenModel(ModelView):
    """One model in its document; `defaults` = the document with the spec.defaults that apply to it."""

    document: Document
    index: int
    defaults: Document | None

    def value(self, steps: Steps) -> Any:  # noqa: ANN401  any YAML value
        """See `ModelView`."""
        path, named = path_below(self.model, steps)
        found = self._found(path) if named is not None else None
        node = found[0].node(found[1]) if found else None
        return node.value if node else None

    def place(self, steps: Steps, item: int | None = None) -> Position:
        """See `ModelView`."""
        path, _ = path_below(self.model, steps)
        found = self._found(path)
        if found is None:
            return self.document.place(self._in_document(path))
        document, at = found
        if item is not None and document.node((*at, item)) is not None:
            at = (*at, item)
        return document.place(at)

    def _in_document(self, path: Path) -> Path:
        return "spec", "models", self.index, *path

    def _found(self, path: Path) -> tuple[Document, Path] | None:
        own = self._in_document(path)
        if _has(self.document, own):
            return self.document, own
        inherited: Path = ("spec", "defaults", *path)
        if self.defaults is not None and path and path[0] in _INHERITED and _has(self.defaults, inherited):
            return self.defaults, inherited
        return None


def path_below(model: ResolvedModel, steps: Steps) -> tuple[Path, Path | None]:
    """Return the path below a model of `steps`, or of the nearest key above; and the steps as shown to people.

    The latter name the group, and are None if the group or the member is not in this model.
    """
    if steps[0] != "workers" or len(steps) == 1:
        return steps, steps
    group = next((index for index, one in enumerate(model.workers) if one.name == steps[1]), None)
    if group is None:
        return ("workers",), None
    if steps[2:3] != ("members",) or len(steps) == 3:
        return ("workers", group, *steps[2:]), steps
    member = members_by_name(model.workers[group]).get(steps[3])
    if member is None:
        return ("workers", group, "members"), None
    return ("workers", group, "members", member, *steps[4:]), (*steps[:3], member, *steps[4:])


class WrittenFleet:
    """All documents of one fleet."""

    def __init__(self, fleet: ResolvedFleet, documents: Sequence[Document]) -> None:
        self.fleet = fleet
        self._documents = documents

    @cached_property
    def models(self) -> dict[str, WrittenModel]:
        """The models by key, in file order."""
        defaults = next((one for one in self._documents if _has(one, ("spec", "defaults"))), None)
        places = ((document, index) for document in self._documents
                  for index in range(len(document.value["spec"].get("models") or ())))
        return {model.key: WrittenModel(model, document, index, defaults)
                for model, (document, index) in zip(self.fleet.models, places, strict=True)}

    def place(self, path: Path) -> Position:
        """Return the position of a value of the fleet; else of the nearest key above it in the first document."""
        document = next((one for one in self._documents if _has(one, path)), self._documents[0])
        return document.place(path)

    def value(self, path: Path) -> Any:  # noqa: ANN401  any YAML value
        """Return a value of the fleet as written; None if it is not written."""
        document = next((one for one in self._documents if _has(one, path)), None)
        node = document.node(path) if document else None
        return node.value if node else None

    @cached_property
    def policies(self) -> Sequence[tuple[Document, Path]]:
        """The node policies of all documents, in order: document and path of each."""
        return [(document, ("spec", "nodes", index)) for document in self._documents
                for index in range(len(document.value["spec"].get("nodes") or ()))]


def _has(document: Document, path: Path) -> bool:
    node = document.node(path)
    return node is not None and node.value is not None
