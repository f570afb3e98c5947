"""The generated parts of docs/fleet-file.md: fields, injected variables and codes, read off the program.

`python tests/documents/fleet_reference.py` writes them anew; a test checks that they are current.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetctl.documents.schemas import json_schema
from fleetctl.spec.problems import CODES, severity_of
from fleetctl.spec.rules_reference import INJECTED

PAGE = Path(__file__).parents[2] / "docs" / "fleet-file.md"
TITLES = {
    "FleetDocument": "A document", "FleetSpec": "spec", "Cluster": "spec.cluster", "ModelDefaults": "spec.defaults",
    "NodePolicy": "spec.nodes[]", "Reserve": "spec.nodes[].reserve", "Model": "spec.models[]",
    "Placement": "placement", "Restart": "restart", "WorkerGroup": "workers[]", "Member": "members[]",
    "Resources": "resources", "Engine": "engine", "FromNode": "A value of engine.env", "Probe": "readiness, liveness",
    "HttpProbe": "http", "TcpProbe": "tcp", "ExecProbe": "exec", "Metadata": "metadata",
}


def fields() -> str:
    """One table per mapping of the format, in the order of TITLES."""
    schema = json_schema("fleet")
    definitions = {"FleetDocument": schema, **schema["$defs"]}
    assert set(definitions) == set(TITLES)
    return "\n".join(_table(title, definitions[name]) for name, title in TITLES.items())


def injected() -> str:
    """The variables fleetctl sets."""
    return "\n".join(["| variable | what it holds |", "|---|---|", *(f"| `{name}` | {what} |" for name, what in INJECTED.items())])


def codes() -> str:
    """All codes with their meaning."""
    rows = (f"| {code} | {severity_of(code)} | {_cell(meaning)} |" for code, meaning in CODES.items())
    return "\n".join(["| code | severity | meaning |", "|---|---|---|", *rows])


PARTS: dict[str, Callable[[], str]] = {"fields": fields, "injected": injected, "codes": codes}


def refreshed(page: str) -> str:
    """Return the page with its generated parts as they should be."""
    for name, part in PARTS.items():
        marked = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert marked.search(page), name
        page = marked.sub(lambda match, text=part(): f"{match[1]}\n{text}\n\n{match[2]}", page)
    return page


def _table(title: str, definition: dict[str, Any]) -> str:
    required = set(definition.get("required", ()))
    rows = [f"| `{key}`{' (required)' if key in required else ''} | {_cell(_kind(value))} | {_cell(value['description'])} |"
            for key, value in definition["properties"].items()]
    return "\n".join([f"### {title}\n", f"{definition['description']}\n", "| key | value | meaning |", "|---|---|---|", *rows, ""])


def _kind(value: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_kinds(value))) + _bounds(value)


def _kinds(value: dict[str, Any]) -> Iterator[str]:
    for part in (*value.get("anyOf", ()), *value.get("allOf", ())):
        yield from _kinds(part)
    if "$ref" in value:
        yield TITLES[value["$ref"].rpartition("/")[2]].rpartition(".")[2]
    elif "enum" in value or "const" in value:
        yield ", ".join(f"`{known}`" for known in value.get("enum", [value.get("const")]))
    elif "(ms|s|m|h|d)" in value.get("pattern", ""):
        yield "duration"
    elif "[KMGTPE]i" in value.get("pattern", ""):
        yield "quantity"
    elif value.get("type") == "array":
        yield f"list of {' or '.join(_kinds(value['items']))}"
    elif value.get("type") == "object":
        yield f"map of {' or '.join(_kinds(value['additionalProperties']))}"
    elif "type" in value and value["type"] != "null":
        yield {"string": "text", "integer": "integer", "number": "number", "boolean": "true, false"}[value["type"]]


def _bounds(value: dict[str, Any]) -> str:
    bounded = next((part for part in (value, *value.get("anyOf", ())) if "maximum" in part), {})
    return f", {bounded['minimum']} to {bounded['maximum']}" if bounded else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text()))
