"""The generated parts of docs/fleet-file.md: fields, injected variables and codes, read off the program.

`python tests/documents/fleet_reference.py` writes them anew; a test checks that they are current.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetctl.documents.schemas import json_schema
from fleetctl.fleetfile.rules_reference import INJECTED
from fleetctl.problem import CODES, severity_of

PAGE = Path(__file__).parents[2] / "docs" / "fleet-file.md"
TITLES = {
    "FleetDocument": "A document", "FleetSpec": "spec", "Cluster": "spec.cluster", "ModelDefaults": "spec.defaults",
    "Policy": "spec.policy", "NodePolicy": "spec.nodes[]", "Reserve": "spec.nodes[].reserve", "Model": "spec.models[]",
    "Placement": "placement", "Spread": "spread", "Restart": "restart", "Update": "update",
    "WorkerGroup": "workers[]",
    "Member": "members[]", "Resources": "resources", "Engine": "engine", "FromNode": "A value of engine.env",
    "Probe": "readiness, liveness", "HttpProbe": "http", "TcpProbe": "tcp", "ExecProbe": "exec", "Metadata": "metadata",
}


def fields() -> str:
    """One table per mapping of the format, in the order of TITLES."""
    schema = json_schema("fleet")
    definitions = {"FleetDocument": schema, **schema["$defs"]}
    assert set(definitions) == set(TITLES)
    return "\n".join(_table(title, definitions[name]) for name, title in TITLES.items())


def injected() -> str:
    """The variables fleetctl sets."""
    rows = (f"| `{name}` | {what} |" for name, what in INJECTED.items())
    return "\n".join(["| variable | what it holds |", "|---|---|", *rows])


def codes() -> str:
    """All codes with their meaning."""
    rows = (f"| {code} | {severity_of(code)} | {_cell(meaning)} |" for code, meaning in CODES.items())
    return "\n".join(["| code | severity | meaning |", "|---|---|---|", *rows])


KINDS = {
    "NodePolicy": "[node policies](#specnodes)", "Model": "[models](#specmodels)", "WorkerGroup": "[groups](#workers)",
    "Member": "[members](#members)", "Probe": "[a probe](#readiness-liveness)", "FromNode": "`{fromNode: NAME}`",
    "Reserve": "[reserve](#specnodesreserve)", "FleetSpec": "[spec](#spec)",
}

PARTS: dict[str, Callable[[], str]] = {"fields": fields, "injected": injected, "codes": codes}


def refreshed(page: str) -> str:
    """Return the page with its generated parts as they should be."""
    for name, part in PARTS.items():
        before, start, rest = page.partition(f"<!-- generated: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        assert start, name
        assert end, name
        page = f"{before}{start}\n{part()}\n\n{end}{after}"
    return page


def _table(title: str, definition: dict[str, Any]) -> str:
    required = set(definition.get("required", ()))
    properties = sorted(definition["properties"].items(), key=lambda item: item[0] not in required)
    rows = [f"| `{key}` | {_cell(_kind(value))} | {_default(value, key in required)} | {_cell(value['description'])} |"
            for key, value in properties]
    head = ["| key | value | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"### {title}\n", f"{definition['description']}\n", *head, *rows, ""])


def _default(value: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    return "" if value.get("default") is None else f"`{value['default']}`"


def _kind(value: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_kinds(value))) + _bounds(value)


def _kinds(value: dict[str, Any]) -> Iterator[str]:
    for part in (*value.get("anyOf", ()), *value.get("allOf", ())):
        yield from _kinds(part)
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        yield KINDS.get(name, f"[{TITLES[name]}](#{TITLES[name].replace('.', '')})")
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
