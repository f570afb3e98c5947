"""The generated parts of docs/fleet-file.md: fields, injected variables and codes, from the program.

`make schemas` writes them again; a test checks that they are current.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetctl.documents.schemas import default_words, json_schema, kind_words
from fleetctl.fleetfile.command_line import INJECTED
from fleetctl.problem import CODES

PAGE = Path(__file__).parents[2] / "docs" / "fleet-file.md"
TITLES = {
    "FleetDocument": "A document", "FleetSpec": "spec", "Cluster": "spec.cluster",
    "GrowType": "spec.cluster.grow[]", "GrowNode": "spec.cluster.grow[].node",
    "ModelDefaults": "spec.defaults",
    "History": "spec.history", "Policy": "spec.policy", "NodePolicy": "spec.nodes[]", "Quota": "spec.policy.quotas[]",
    "Cooldown": "spec.policy.cooldown", "Pilot": "spec.policy.pilot",
    "Reserve": "spec.nodes[].reserve", "Resident": "spec.nodes[].residents[]",
    "Shape": "spec.shapes.NAME", "Model": "spec.models[]",
    "ShapeUse": "spec.models[].shape", "Variant": "spec.models[].variants[]",
    "Numbers": "model", "Serving": "serving", "Cold": "cold",
    "Placement": "placement", "SameLabel": "sameLabel", "Spread": "spread", "Restart": "restart", "Update": "update",
    "Reload": "update.reload", "HttpReload": "update.reload.http",
    "WorkerGroup": "workers[]",
    "Member": "members[]", "Resources": "resources", "Weights": "weights", "Origin": "weights.from[]",
    "View": "view", "Shard": "shard", "ShardRule": "shard.rules[]", "Engine": "engine",
    "FromNode": "A value of engine.env", "Probe": "readiness, liveness", "HttpProbe": "http", "TcpProbe": "tcp",
    "ExecProbe": "exec", "Stop": "stop", "Metadata": "metadata",
}


def fields() -> str:
    """One table per mapping of the format, or a list if it has few keys, in the order of TITLES."""
    schema = json_schema("fleet")
    definitions = {"FleetDocument": schema, **schema["$defs"]}
    parts = {f"{name}Part" for name in TITLES}  # the same keys as a shape, but fewer are required
    assert set(definitions) - parts == set(TITLES), "TITLES has a heading for each mapping of the fleet file"
    defaults = definitions["ModelDefaults"]["properties"]
    return "\n".join(_table(title, definitions[name], {} if name == "ModelDefaults" else defaults)
                     for name, title in TITLES.items())


def injected() -> str:
    """The environment variables that fleetctl sets."""
    rows = (f"| `{name}` | {what} |" for name, what in INJECTED.items())
    return "\n".join(["| variable | what it holds |", "|---|---|", *rows])


def codes() -> str:
    """All problem codes with their meanings."""
    return "\n".join(["```text", *(f"{code}  {meaning}" for code, meaning in CODES.items()), "```"])


KINDS = {
    "NodePolicy": "[node policies](#specnodes)", "Model": "[models](#specmodels)",
    "Shape": "[shapes](#specshapesname)", "ShapeUse": "[a change of one](#specmodelsshape)",
    "Variant": "[variants](#specmodelsvariants)",
    "Quota": "[quotas](#specpolicyquotas)",  "WorkerGroup": "[groups](#workers)",
    "Member": "[members](#members)", "Probe": "[a probe](#readiness-liveness)", "FromNode": "`{fromNode: NAME}`",
    "Origin": "[origins](#weightsfrom)", "ShardRule": "[rules](#shardrules)",
    "SameLabel": "[sameLabel](#samelabel)", "Reserve": "[reserve](#specnodesreserve)", "FleetSpec": "[spec](#spec)",
    "GrowType": "[node types](#specclustergrow)", "GrowNode": "[a node](#specclustergrownode)",
}

PARTS: dict[str, Callable[[], str]] = {"fields": fields, "injected": injected, "codes": codes}


def refreshed(page: str) -> str:
    """Return the page with current generated parts."""
    for name, part in PARTS.items():
        before, start, rest = page.partition(f"<!-- generated: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        assert start, name
        assert end, name
        page = f"{before}{start}\n{part()}\n\n{end}{after}"
    return page


def _table(title: str, definition: dict[str, Any], defaults: dict[str, Any]) -> str:
    required = set(definition.get("required", ()))
    properties = sorted(definition["properties"].items(), key=lambda item: item[0] not in required)
    cells = [(key, f"{kind_words(value, _kind)}{_default(value, key in required)}", value["description"])
             for key, value in properties]
    head = [f"### {title}\n", f"{definition['description']}\n"]
    if len(cells) <= 3:
        return "\n".join([*head, *(f"- `{key}`: {kind}; {meaning}" for key, kind, meaning in cells), ""])
    shared = defaults.keys() if defaults.keys() <= definition["properties"].keys() else set()
    rows = [f"| `{key}` | {_cell(kind)} | {_cell(meaning)} |" for key, kind, meaning in cells if key not in shared]
    also = [f"\nAnd every key of [{TITLES['ModelDefaults']}](#specdefaults)."] if shared else []
    return "\n".join([*head, "| key | value (default) | meaning |", "|---|---|---|", *rows, *also, ""])


def _kind(definition: str) -> str:
    name = definition.removesuffix("Part")
    return KINDS.get(name, f"[{TITLES[name]}](#{re.sub('[^a-z]', '', TITLES[name].lower())})")


def _default(value: dict[str, Any], required: bool) -> str:
    words = default_words(value, required=required)
    return f", {words}" if required else f" (`{words}`)" if words else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text()))
