"""A fleet file under construction: importers fill it, and `write.py` turns it into text.

Every part of the input without a counterpart in a fleet file becomes a Loss with its position. Nothing here reads or
writes a file.
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
"""The command of an engine if the input has none. No such program exists, so it cannot start by mistake."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One difference between the input and the fleet file; `path` = its place in the input.

    `kind`: `lost` = no counterpart in a fleet file; `changed` = written differently with the same meaning; `todo` =
    a person must check it before the first apply. With a `model` (its key), the fleet file has it as a comment at
    `home`, a path in the mapping of that model. A message never holds an environment value.
    """

    place: Position | None
    path: str
    message: str
    kind: Kind = "lost"
    model: str | None = None
    home: Path = ()

    @property
    def field(self) -> str:
        """The last step of `path`: the field or list item concerned; '' without a path."""
        step = _LAST_STEP.search(self.path)
        return f"{step['quoted'] or step['plain']}{step['indices']}" if step else ""


@dataclass(frozen=True, slots=True)
class DraftModel:
    """One model: an entry of `spec.models`, and its place in the input. `notes` = further comments above it."""

    value: Mapping
    place: Position | None = None
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The model key."""
        return str(self.value["key"])


@dataclass(slots=True)
class Draft:
    """One fleet file under construction. `made_from` = a short description of the input, for the first line.

    `cluster` = `spec.cluster`; `notes` = comments at the top of the file.
    """

    name: str
    made_from: str
    models: list[DraftModel] = field(default_factory=list)
    cluster: Mapping = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    places: dict[str, Position | None] = field(default_factory=dict)
    """The place of each added model in the input, by model key."""

    def add(self, value: Mapping, place: Position | None = None) -> None:
        """Add a model, an entry of `spec.models`, without its empty parts."""
        model = DraftModel(filled(value), place)
        self.models.append(model)
        self.places[model.key] = place

    @property
    def partial(self) -> bool:
        """Whether anything was lost or is left to do; a mere change of notation is neither."""
        return any(loss.kind != "changed" for loss in self.losses)


def filled(parts: Mapping) -> Mapping:
    """Return the parts of a mapping that are not empty."""
    return {name: value for name, value in parts.items() if value not in (None, "", {}, [])}


def one_group(members: list[Mapping]) -> list[Mapping]:
    """Return the `workers` of a model with one group."""
    return [{"name": "main", "members": members}]
