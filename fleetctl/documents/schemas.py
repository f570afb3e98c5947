"""The published JSON Schemas, generated from the models. They use only what draft-07 and 2020-12 share, for editors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel

from fleetctl.documents.capacity import Capacity
from fleetctl.documents.cold import Prefetched, Pruned
from fleetctl.documents.diagnosis import Diagnosis
from fleetctl.documents.difference import FleetDiff
from fleetctl.documents.endpoints import Endpoints
from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.fleet import FleetDocument
from fleetctl.documents.history import History, HistoryRun
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.placement_map import PlacementMap
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import format_seconds
from fleetctl.documents.rendered_fleet import RenderedFleet
from fleetctl.documents.what_if import WhatIf

DIALECT = "http://json-schema.org/draft-07/schema#"

_IDENTIFYING = ("apiVersion", "kind", "key", "name")
_PARTIAL = ("WorkerGroup", "Member", "Engine", "Probe")
"""Models whose required keys may be left out when a model changes its shape."""

JsonSchema = dict[str, Any]
Mode = Literal["validation", "serialization"]


def json_schema(name: str) -> JsonSchema:
    """Return the schema with a name of `schema_names()`; raises KeyError for any other name."""
    return {"$schema": DIALECT, **_GENERATORS[name]()}


def schema_text(name: str) -> str:
    """Return a schema as published: JSON, indented by two spaces, with a final newline."""
    return json.dumps(json_schema(name), indent=2, ensure_ascii=False) + "\n"


def schema_names() -> tuple[str, ...]:
    """Return the names of all published schemas."""
    return tuple(_GENERATORS)


def _of(model: type[BaseModel], title: str, mode: Mode) -> JsonSchema:
    schema = model.model_json_schema(by_alias=True, mode=mode)
    return {"title": title, **_plain(schema)}


def _event() -> JsonSchema:
    """Every line is an Event; the last one is also a RunSummary."""
    event = _of(Event, "fleetctl event", "serialization")
    summary = _of(RunSummary, "fleetctl run summary", "serialization")
    definitions = {**summary.pop("$defs", {}), "RunSummary": summary}
    is_summary = {"properties": {"type": {"const": "runSummary"}}, "required": ["type"]}
    return {**event, "if": is_summary, "then": {"$ref": "#/$defs/RunSummary"}, "$defs": definitions}


def _fleet() -> JsonSchema:
    """A fleet file. The worker groups in which a model changes its shape are partial: only names are required."""
    fleet = _of(FleetDocument, "fleetctl fleet file", "validation")
    definitions = fleet["$defs"]
    parts = json.dumps({f"{name}Part": _as_part(dict(definitions[name])) for name in _PARTIAL})
    for name in _PARTIAL:
        parts = parts.replace(f'"#/$defs/{name}"', f'"#/$defs/{name}Part"')
    definitions.update(json.loads(parts))
    definitions["ShapeUse"]["properties"]["workers"]["items"] = {"$ref": "#/$defs/WorkerGroupPart"}
    return fleet


def _part() -> JsonSchema:
    """A fleet file that extends another, or is extended: only identifying keys are required."""
    part = _of(FleetDocument, "fleetctl fleet file, a part of one", "validation")
    for definition in (part, *part["$defs"].values()):
        _as_part(definition)
    return part


def _as_part(definition: JsonSchema) -> JsonSchema:
    required = [key for key in definition.get("required", ()) if key in _IDENTIFYING]
    for key in ("required", "anyOf", "oneOf"):
        definition.pop(key, None)
    if required:
        definition["required"] = required
    return definition


def _plain(schema: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """Drop generated titles, write durations as text, flatten alternatives, refuse keys that do not match a pattern.

    References have no siblings, as draft-07 requires.
    """
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _plain(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    if "(ms|s|m|h|d)" in str(plain.get("pattern", "")) and isinstance(plain.get("default"), (int, float)):
        plain["default"] = format_seconds(plain["default"])
    if "oneOf" in plain and "properties" not in plain:
        plain["anyOf"] = plain.pop("oneOf")
    if "anyOf" in plain:
        plain["anyOf"] = [inner for form in plain["anyOf"]
                          for inner in (form["anyOf"] if list(form) == ["anyOf"] else [form])]
    for pattern, values in plain.pop("patternProperties", {}).items():
        plain |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    if "$ref" in plain and len(plain) > 1:
        plain = {"allOf": [{"$ref": plain.pop("$ref")}], **plain}
    return plain


_GENERATORS: dict[str, Callable[[], JsonSchema]] = {
    "fleet": _fleet,
    "fleet-part": _part,
    "inventory": lambda: _of(Inventory, "fleetctl inventory", "serialization"),
    "plan": lambda: _of(Plan, "fleetctl plan", "serialization"),
    "event": _event,
    "diff": lambda: _of(FleetDiff, "fleetctl diff", "serialization"),
    "capacity": lambda: _of(Capacity, "fleetctl capacity", "serialization"),
    "what-if": lambda: _of(WhatIf, "fleetctl what-if", "serialization"),
    "placement-map": lambda: _of(PlacementMap, "fleetctl map", "serialization"),
    "rendered-fleet": lambda: _of(RenderedFleet, "fleetctl render", "serialization"),
    "diagnosis": lambda: _of(Diagnosis, "fleetctl doctor", "serialization"),
    "prefetched": lambda: _of(Prefetched, "fleetctl prefetch", "serialization"),
    "pruned": lambda: _of(Pruned, "fleetctl prune", "serialization"),
    "endpoints": lambda: _of(Endpoints, "fleetctl endpoints", "serialization"),
    "history": lambda: _of(History, "fleetctl history", "serialization"),
    "history-run": lambda: _of(HistoryRun, "fleetctl history show", "serialization"),
}
