"""A fleet file under construction: importers fill it, and `write.py` turns it into text.

Every part of the input without a counterpart in a fleet file becomes a Loss with its position. Nothing here reads or
writes a file. A recorded shape turns back into the form a person would write, amounts and durations as text: the result
means exactly what was recorded, so its spec hash is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from fleetctl.documents.fleet import Lifecycle, ModelDefaults, Restart
from fleetctl.documents.position import Path, Position
from fleetctl.documents.quantity import AUTO, BINARY_UNITS, share_number

Kind = Literal["lost", "changed", "todo"]
_LAST_STEP = re.compile(r'(?:\["(?P<quoted>[^"]*)"\]|(?:^|\.)(?P<plain>[^.\["\]]+))(?P<indices>(?:\[\d+\])*)$')
Written = dict[str, Any]
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

    value: Written
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
    cluster: Written = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    places: dict[str, Position | None] = field(default_factory=dict)
    """The place of each added model in the input, by model key."""

    def add(self, value: Written, place: Position | None = None) -> None:
        """Add a model, an entry of `spec.models`, without its empty parts."""
        model = DraftModel(filled(value), place)
        self.models.append(model)
        self.places[model.key] = place

    @property
    def partial(self) -> bool:
        """Whether anything was lost or is left to do; a mere change of notation is neither."""
        return any(loss.kind != "changed" for loss in self.losses)


def filled(parts: Written) -> Written:
    """Return the parts of a mapping that are not empty."""
    return {name: value for name, value in parts.items() if value not in (None, "", {}, [])}


def one_group(members: list[Written]) -> list[Written]:
    """Return the `workers` of a model with one group."""
    return [{"name": "main", "members": members}]


_UNITS = (("h", 3600), ("m", 60), ("s", 1))


def authored_workers(shape: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the worker groups of a recorded shape; errors in it are left for validation."""
    return [_authored(group) for group in shape.get("workers", [])]


def authored_lifecycle(lifecycle: Lifecycle, priority: int) -> dict[str, Any]:
    """Return priority, timeouts and restarts that differ from the defaults of the fleet file."""
    values = ModelDefaults.model_construct(
        priority=priority, startup_timeout=lifecycle.startup_timeout, scheduling_timeout=lifecycle.scheduling_timeout,
        restart=Restart.model_construct(max=lifecycle.restart_max, backoff=lifecycle.restart_backoff))
    written: dict[str, Any] = _authored(values.model_dump(by_alias=True, exclude_defaults=True))
    return written


def authored_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return integer resources (1/10000 of a card or CPU, bytes) as numbers and quantities, cards first."""
    usual = {name: resources[name] for name in ("gpus", "vram", "cpus", "memory") if name in resources}
    return {name: _AMOUNTS[name](amount) if name in _AMOUNTS and amount != AUTO else amount
            for name, amount in {**usual, **resources}.items()}


def bytes_text(count: int) -> str | int:
    """Return bytes as an exactly equal quantity."""
    for unit, size in BINARY_UNITS:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return count


def duration_text(seconds: float) -> str:
    """Return seconds as an exactly equal duration: `15m`, `90s`, `0.2s`."""
    exact = Decimal(repr(seconds))
    for unit, size in _UNITS:
        if exact and exact % size == 0:
            return f"{int(exact) // size}{unit}"
    return f"{exact.normalize():f}s"


def _authored(value: Any, key: str = "") -> Any:  # noqa: ANN401 (any part of a shape, under its key)
    if isinstance(value, list):
        return [_authored(item) for item in value]
    if key == "resources":
        return authored_resources(value)
    if isinstance(value, Mapping) and key not in _VERBATIM:
        return {name: _authored(item, name) for name, item in value.items()}
    return duration_text(value) if key in _DURATIONS else value


_AMOUNTS: Mapping[str, Callable[[int], object]] = {
    "gpus": share_number, "cpus": share_number, "vram": bytes_text, "memory": bytes_text}
_DURATIONS = ("period", "timeout", "startupTimeout", "schedulingTimeout", "backoff")
_VERBATIM = ("env", "nodeSelector")
