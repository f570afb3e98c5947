"""What a JSON Schema says about a value, in words: `integer, 1 to 1024`, `list of text`, `quantity`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

JsonSchema = dict[str, Any]


def kind_words(value: JsonSchema, named: Callable[[str], str] = lambda _: "mapping") -> str:
    """Return the kinds of a value and its bounds; `named` returns the word for one that a definition describes."""
    bounded = next((part for part in (value, *value.get("anyOf", ())) if "maximum" in part), None)
    bounds = f", {bounded['minimum']} to {bounded['maximum']}" if bounded else ""
    return " or ".join(dict.fromkeys(_kinds(value, named))) + bounds


def default_words(value: JsonSchema, *, required: bool) -> str:
    """Return `required`, or the default; "" where there is none."""
    if required:
        return "required"
    default = value.get("default")
    return "" if default is None else str(default)


def definition_of(value: JsonSchema) -> str | None:
    """Return the name of the definition that describes a value, or the items of a list; None for a plain value."""
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
