"""Never down, as a fact about types and imports: a plan cannot say anything but create, and the planner cannot act."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pydantic
import pytest

import fleetctl.planner
from fleetctl.documents.plan import Action, Plan

SOURCES = sorted(Path(fleetctl.planner.__path__[0]).rglob("*.py"))
PURE = {
    "__future__", "abc", "bisect", "collections", "collections.abc", "contextlib", "dataclasses", "difflib", "enum",
    "functools", "heapq", "itertools", "math", "numpy", "numpy.typing", "operator", "pydantic", "re", "scipy.optimize",
    "scipy.sparse", "shlex", "typing", "fleetctl.collector", "fleetctl.documents", "fleetctl.errors",
    "fleetctl.planner", "fleetctl.spec",
}


def test_create_is_the_only_operation_a_plan_can_hold() -> None:
    assert get_args(Action.model_fields["op"].annotation) == ("create",)


@pytest.mark.parametrize("op", ["delete", "evict", "restart", "scale", "move", ""])
def test_another_operation_cannot_be_read(op: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="op"):
        Action.model_validate({"id": "m/0", "op": op, "model": "m", "replicaId": 0, "specHash": "x", "wanted": 0,
                               "lifecycle": {"startupTimeout": 1, "schedulingTimeout": 1, "restartMax": 0,
                                             "restartBackoff": 1}, "members": []})


def test_actions_are_the_only_part_of_a_plan_with_an_operation() -> None:
    schema = Plan.model_json_schema(by_alias=True)
    with_op = [name for name, part in schema["$defs"].items() if "op" in part.get("properties", {})]
    assert with_op == ["Action"]
    assert "op" not in schema["properties"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_planner_imports_only_values_and_pure_modules(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module or "")
    foreign = {name for name in imported if name not in PURE and ".".join(name.split(".")[:2]) not in PURE}
    assert not foreign


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_planner_speaks_of_no_removal(path: Path) -> None:
    names = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
    assert not {name for name in names if any(word in name for word in ("delete", "evict", "kill", "stop_", "restart"))}
