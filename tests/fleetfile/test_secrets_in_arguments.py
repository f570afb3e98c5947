"""Arguments may hold secrets: a warning names each at its place, and no problem message contains one."""

from __future__ import annotations

import json

import pytest

from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.problem import Problem

from .fleets import fleet, model
from .memory_tree import inspect


def problems(engine: str) -> tuple[Problem, ...]:
    members = f"[{{name: main, members: [{{resources: {{gpus: 1}}, engine: {engine}}}]}}]"
    return inspect_fleet(["-"], stdin=lambda: fleet(model(workers=members)).encode()).problems


@pytest.mark.parametrize(("engine", "way_out"), [
    ("{command: [x, --api-key, hunter5]}", "$(API_KEY), with env: {API_KEY: {fromNode: API_KEY}}"),
    ("{command: [x], args: [--hf-token=hunter5]}", "$(HF_TOKEN), with env: {HF_TOKEN: {fromNode: HF_TOKEN}}"),
    ("{command: [x, 'https://me:hunter5@host/']}", "$(SECRET), with env: {SECRET: {fromNode: SECRET}}"),
    ("{command: [x], readiness: {http: {path: '/up?api_key=hunter5'}}}", "exec: a command, with $(API_KEY)"),
    ("{command: [x], liveness: {http: {path: '/up?token=hunter5'}}}", "exec: a command, with $(TOKEN)"),
    ("{command: [x], env: {DB_PASSWORD: hunter5}}", "{fromNode: DB_PASSWORD}, the variable DB_PASSWORD of the node"),
])
def test_the_warning_has_the_way_out_and_not_the_secret(engine: str, way_out: str) -> None:
    [found] = problems(engine)
    assert (found.code, found.severity, found.source_line) == ("FL070", "warning", None)
    assert way_out in (found.allowed or "")
    assert "hunter5" not in f"{found} {found.as_json()}"


def test_a_fleet_that_takes_the_way_out_has_no_warning() -> None:
    assert problems("{command: [x, --api-key, $(API_KEY)], env: {API_KEY: {fromNode: API_KEY}}}") == ()


@pytest.mark.parametrize(("engine", "code"), [
    ("{command: [x], args: '--api-key hunter5'}", "FL022"), ("{command: [x, --api-key, hunter5, $PORT]}", "FL062"),
    ("{command: [x, --api-key=hunter5, $(FLEETCTL_PROT)]}", "FL048"), ("{command: [x, --api-key, @hunter5]}", "FL008"),
    ("{command: [x], args: {--api-key=hunter5: 1}}", "FL022"),
    ("{command: [x, --api-key, hunter5], argz: []}", "FL020"),
])
def test_no_other_problem_shows_a_secret_or_its_line(engine: str, code: str) -> None:
    found = problems(engine)
    assert code in [problem.code for problem in found]
    assert not any("hunter5" in f"{problem} {problem.as_json()} {problem.source_line}" for problem in found)


@pytest.mark.parametrize("rule", [{"maxLength": 3}, {"pattern": "^-"}, {"enum": ["x", "--api-key"]}])
def test_a_broken_house_rule_shows_no_secret(rule: dict[str, object]) -> None:
    words = {"properties": {"command": {"items": rule}}}
    schema = {"properties": {"spec": {"properties": {"models": {"items": {"properties": {"workers": {"items": {
        "properties": {"members": {"items": {"properties": {"engine": words}}}}}}}}}}}}}
    text = fleet(model(workers="[{name: main, members: [{resources: {gpus: 1}, engine: "
                               "{command: [x, --api-key, hunter5]}}]}]"))
    text = text.replace("spec:\n", "spec:\n  policy: {schemas: [rules.json]}\n", 1)
    found = inspect({"fleet.yaml": text, "rules.json": json.dumps(schema)}).problems
    assert "FL038" in [problem.code for problem in found]
    assert not any("hunter5" in f"{problem} {problem.as_json()} {problem.source_line}" for problem in found)
