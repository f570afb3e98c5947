"""Never down, by types and imports: a plan can only create, and the planner cannot act."""

from __future__ import annotations

import ast
from pathlib import Path

from source_code import listed, nodes_of, place, sources

import fleetctl.planner
from fleetctl.documents.plan import Plan

PURE = {
    "__future__", "abc", "bisect", "collections", "collections.abc", "contextlib", "dataclasses", "difflib", "enum",
    "fractions", "functools", "heapq", "itertools", "math", "numpy", "numpy.typing", "operator", "pydantic", "re", "scipy.optimize",
    "scipy.sparse", "shlex", "statistics", "typing", "fleetctl.collector", "fleetctl.documents", "fleetctl.errors",
    "fleetctl.planner", "fleetctl.problem", "fleetctl.fleetfile", "fleetctl.silence", "fleetctl.agent.weights.views",
    "fleetctl.sizing.card_bytes", "fleetctl.sizing.fit", "fleetctl.sizing.groups",
}


def test_actions_are_the_only_parts_of_a_plan_with_an_operation() -> None:
    schema = Plan.model_json_schema(by_alias=True)
    with_op = [name for name, part in schema["$defs"].items() if "op" in part.get("properties", {})]
    assert with_op == ["Action"]
    assert "op" not in schema["properties"]


def test_the_planner_imports_only_values_and_pure_modules() -> None:
    foreign = []
    for path in sources(Path(fleetctl.planner.__path__[0])):
        for node in nodes_of(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
                [f"{'.' * node.level}{node.module or ''}"] if isinstance(node, ast.ImportFrom) else [])
            foreign += [f"{place(path, node.lineno)} imports {name}" for name in names
                        if name not in PURE and ".".join(name.split(".")[:2]) not in PURE]
    assert not foreign, listed("the planner imports only values and pure modules, by their full names", foreign)
