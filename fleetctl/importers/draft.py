"""A fleet file under construction: what an importer fills, and what `write.py` turns into text.

Everything of the input that has no home in a fleet file becomes a Loss, with its place. Nothing here reads or writes
a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetctl.documents.position import Path, Position

Kind = Literal["lost", "changed", "todo"]
_LAST_STEP = re.compile(r'(?:\["(?P<quoted>[^"]*)"\]|(?:^|\.)(?P<plain>[^.\["\]]+))(?P<indices>(?:\[\d+\])*)$')
Mapping = dict[str, Any]
"""A piece of a fleet file as a person would write it: `{"gpus": 1, "vram": "16Gi"}`."""

PLACEHOLDER = "FILL-IN-THE-ENGINE-COMMAND"
"""The command of an engine where the input names none. No such program exists, so it cannot start by mistake."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing the fleet file does not say as the input does; `path` is its place in the input.

    `kind`: `lost` = it has no home in a fleet file; `changed` = it is written in another way and means the same;
    `todo` = a person must look before the first apply. With a `model` (its key) the fleet file carries it as a comment,
    at `home`, a path in the mapping of that model. A message never holds a value of an environment.
    """

    place: Position | None
    path: str
    message: str
    kind: Kind = "lost"
    model: str | None = None
    home: Path = ()

    @property
    def field(self) -> str:
        """The last step of `path`: the field, or the item of a list, that this is about; '' without a path."""
        step = _LAST_STEP.search(self.path)
        return f"{step['quoted'] or step['plain']}{step['indices']}" if step else ""


@dataclass(frozen=True, slots=True)
class DraftModel:
    """One model: an entry of `spec.models`, and where the input describes it. `notes` are further comments above it."""

    value: Mapping
    place: Position | None = None
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The model key."""
        return str(self.value["key"])


@dataclass(slots=True)
class Draft:
    """One fleet file under construction. `made_from` says in a few words what it is made from, for its first line.

    `cluster` is `spec.cluster`; `notes` are comments at the top of the file.
    """

    name: str
    made_from: str
    models: list[DraftModel] = field(default_factory=list)
    cluster: Mapping = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    places: dict[str, Position | None] = field(default_factory=dict)
    """Where each model that was added comes from, by its key."""

    def add(self, value: Mapping, place: Position | None = None) -> None:
        """Add a model, an entry of `spec.models`, without its empty parts."""
        model = DraftModel(filled(value), place)
        self.models.append(model)
        self.places[model.key] = place

    @property
    def partial(self) -> bool:
        """Whether anything was lost or is left to do; a thing that is only written in another way is neither."""
        return any(loss.kind != "changed" for loss in self.losses)


def filled(parts: Mapping) -> Mapping:
    """Return the parts of a mapping that are not empty."""
    return {name: value for name, value in parts.items() if value not in (None, "", {}, [])}


def one_group(members: list[Mapping]) -> list[Mapping]:
    """Return the `workers` of a model that is one group."""
    return [{"name": "main", "members": members}]
