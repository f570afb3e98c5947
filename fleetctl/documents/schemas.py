"""The published JSON Schemas, generated from the models, and the fields of the fleet file by path, in words.

Schemas use only what draft-07 and 2020-12 share, for editors. The schema of a value in words: `integer, 1 to 1024`,
`list of text`, `quantity`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from fleetctl.documents.answers import Endpoints
from fleetctl.documents.base import MOST
from fleetctl.documents.difference import FleetDiff
from fleetctl.documents.events import Event, History, HistoryRun, RunSummary
from fleetctl.documents.fleet import FleetDocument
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.model import Description
from fleetctl.documents.names import did_you_mean
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import format_seconds, some
from fleetctl.errors import FleetctlError

DIALECT = "http://json-schema.org/draft-07/schema#"

_IDENTIFYING = ("apiVersion", "kind", "key", "name")
_MERGED_LISTS = ("members",)
"""The lists below a worker group whose items merge by name; a change replaces any other list as a whole."""

JsonSchema = dict[str, Any]


def json_schema(name: str) -> JsonSchema:
    """Return the schema with a name of `schema_names()`; raises KeyError for any other name."""
    return {"$schema": DIALECT, **_GENERATORS[name]()}


def schema_text(name: str) -> str:
    """Return a schema as published: JSON, indented by two spaces, with a final newline."""
    return json.dumps(json_schema(name), indent=2, ensure_ascii=False) + "\n"


def schema_names() -> tuple[str, ...]:
    """Return the names of all published schemas."""
    return tuple(_GENERATORS)


def _of(model: type[BaseModel], title: str, mode: Literal["validation", "serialization"]) -> JsonSchema:
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
    merged = ["WorkerGroup"]  # grows: every mapping that is merged key by key
    for name in merged:
        for key, value in definitions[name]["properties"].items():
            inner = None if "array" in _types(value) and key not in _MERGED_LISTS else definition_of(value)
            merged += [inner] if inner and inner not in merged else []
    refers = {name: set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(definitions[name]))) for name in merged}
    partial = {name for name in merged if _as_part(dict(definitions[name])) != definitions[name]}
    while more := {name for name in refers.keys() - partial if refers[name] & partial}:
        partial |= more
    parts = json.dumps({f"{name}Part": _as_part(dict(definitions[name])) for name in sorted(partial)})
    for name in sorted(partial):
        parts = parts.replace(f'"#/$defs/{name}"', f'"#/$defs/{name}Part"')
    definitions.update(json.loads(parts))
    definitions["ShapeUse"]["properties"]["workers"]["items"] = {"$ref": "#/$defs/WorkerGroupPart"}
    return fleet


def _types(value: JsonSchema) -> set[object]:
    return {part.get("type") for part in (value, *value.get("anyOf", ()))}


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

    References have no siblings, as draft-07 requires. The limits of MOST are no part of a format.
    """
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _plain(value) for key, value in schema.items() if not (
        (key == "title" and isinstance(value, str))
        or (key in ("minimum", "maximum") and isinstance(value, (int, float)) and abs(value) in MOST.values()))}
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
    "model": lambda: _of(Description, "fleetctl model", "validation"),
    "inventory": lambda: _of(Inventory, "fleetctl inventory", "serialization"),
    "plan": lambda: _of(Plan, "fleetctl plan", "serialization"),
    "event": _event,
    "diff": lambda: _of(FleetDiff, "fleetctl diff", "serialization"),
    "endpoints": lambda: _of(Endpoints, "fleetctl endpoints", "serialization"),
    "history": lambda: _of(History, "fleetctl history", "serialization"),
    "history-run": lambda: _of(HistoryRun, "fleetctl history show", "serialization"),
}


Names = tuple[str, ...]
HOMES: tuple[Names, ...] = ((), ("spec",), ("spec", "models"))
"""Where a typed path may begin, in order of preference; after these anywhere, inside models first."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field; lists add nothing to its `path`. `about` describes the field, `mapping` the mapping that it holds."""

    path: Names
    kind: str
    default: str
    about: str
    mapping: str = ""

    @property
    def text(self) -> str:
        """The path as people write it; empty for the whole file."""
        return ".".join(self.path)


FEW = 3
"""So many fields that mention an unknown name are listed beside the nearest one; a name in many is a common word."""


def all_fields() -> list[Field]:
    """Return every field, parents before children; the first is the whole document."""
    schema = json_schema("fleet")
    return [Field((), "mapping", "", "", schema["description"]), *_below((), schema, schema["$defs"])]


def find_fields(fields: Sequence[Field], path: str) -> list[Field]:
    """Return the fields whose path ends in one such as `workers.members[].resources`, the most likely one first.

    Raises FleetctlError with the nearest name if there is none.
    """
    names = tuple(name for name in re.sub(r"\[[^\]]*\]", "", path).split(".") if name)
    if found := _ending_in(fields, names):
        return found
    known = next((at for at in range(len(names) - 1, 0, -1) if _ending_in(fields, names[:at])), 0)
    unknown = names[known]
    parent = _ending_in(fields, names[:known])[0] if known else None
    allowed = [field.path[-1] for field in (below(fields, parent) if parent else fields) if field.path]
    raise FleetctlError(f"there is no field {unknown}{f' in {parent.text}' if parent else ''}",
                        hint=_hint(fields, unknown, parent, allowed))


def _hint(fields: Sequence[Field], unknown: str, parent: Field | None, allowed: Sequence[str]) -> str:
    """Return the nearest name, and the fields that mention the unknown one; else the fields of its parent."""
    nearest, word = did_you_mean(unknown, allowed), re.compile(rf"(?i)\b{re.escape(unknown)}s?\b")
    mention = [] if parent else list(dict.fromkeys(
        ".".join(field.path[-2:]) for field in fields if word.search(f"{field.about} {field.mapping}")))
    if mention and (not nearest or len(mention) <= FEW):
        return f"{f'{nearest} ' if nearest else ''}fields that mention it: {some(mention)}"
    if nearest:
        return nearest
    return (f"fields in {parent.text}: {', '.join(allowed)}" if parent and allowed
            else "run `fleetctl explain` for the top-level fields")


def below(fields: Sequence[Field], parent: Field, *, all_levels: bool = False) -> list[Field]:
    """Return the fields of a mapping; with `all_levels` also all nested ones."""
    depth = len(parent.path)
    return [field for field in fields if field.path[:depth] == parent.path and len(field.path) > depth
            and (all_levels or len(field.path) == depth + 1)]


def _ending_in(fields: Sequence[Field], names: Names) -> list[Field]:
    likely = [home + names for home in HOMES]
    found = [field for field in fields
             if field.path[len(field.path) - len(names):] == names and (names or not field.path)]
    return sorted(found, key=lambda field: (likely.index(field.path) if field.path in likely else len(likely),
                                            field.path[:2] != HOMES[-1], len(field.path)))


def _below(path: Names, mapping: JsonSchema, definitions: JsonSchema) -> Iterator[Field]:
    for name, value in mapping["properties"].items():
        definition = definitions.get(definition_of(value) or "", {})
        default = default_words(value, required=name in mapping.get("required", ()))
        yield Field((*path, name), kind_words(value), default, value["description"], definition.get("description", ""))
        if definition:
            yield from _below((*path, name), definition, definitions)


def kind_words(value: JsonSchema, named: Callable[[str], str] = lambda _: "mapping") -> str:
    """Return the types of a value and its bounds; `named` returns the word for a value that has a definition."""
    bounded = next((part for part in (value, *value.get("anyOf", ())) if "maximum" in part), None)
    bounds = f", {bounded['minimum']} to {bounded['maximum']}" if bounded else ""
    return " or ".join(dict.fromkeys(_kinds(value, named))) + bounds


def default_words(value: JsonSchema, *, required: bool) -> str:
    """Return `required`, or the default; "" if there is none."""
    if required:
        return "required"
    default = value.get("default")
    return "" if default is None else str(default)


def definition_of(value: JsonSchema) -> str | None:
    """Return the name of the definition of a value, or of a list's items; None for a plain value."""
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    inner = (*value.get("anyOf", ()), *value.get("allOf", ()),
             *(value[key] for key in ("items", "additionalProperties") if isinstance(value.get(key), dict)))
    return next((name for part in inner if (name := definition_of(part))), None)


def _kinds(value: JsonSchema, named: Callable[[str], str]) -> Iterator[str]:
    for part in (*value.get("anyOf", ()), *value.get("allOf", ())):
        yield from _kinds(part, named)
    if "$ref" in value:
        yield named(value["$ref"].rpartition("/")[2])
    elif "enum" in value or "const" in value:
        yield ", ".join(f"`{known}`" for known in value.get("enum", [value.get("const")]))
    elif "(ms|s|m|h|d)" in value.get("pattern", ""):
        yield "duration"
    elif "[KMGTPE]i" in value.get("pattern", ""):
        yield "quantity"
    elif value.get("type") == "array":
        yield f"list of {' or '.join(_kinds(value['items'], named))}"
    elif value.get("type") == "object":
        inner = " or ".join(_kinds(value.get("additionalProperties", {}), named))
        yield f"map of {inner}" if inner else "mapping"
    elif "type" in value and value["type"] != "null":
        yield {"string": "text", "integer": "integer", "number": "number", "boolean": "true, false"}[value["type"]]
