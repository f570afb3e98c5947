"""Values of an engine's environment may be secrets: no problem message contains one, however it is written."""

from __future__ import annotations

import pytest

from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.problem import Problem

from .fleets import fleet, model


def problems(env: str) -> tuple[Problem, ...]:
    members = f"[{{name: main, members: [{{resources: {{gpus: 1}}, engine: {{command: [x], env: {env}}}}}]}}]"
    return inspect_fleet(["-"], stdin=lambda: fleet(model(workers=members)).encode()).problems


@pytest.mark.parametrize(("env", "message"), [
    ('{T: "a\\0hunter5"}', "the value of T has a NUL character, which no process can receive"),
    ("hunter5", "env is text, not a mapping"),
    ('"8775"', "env is text, not a mapping"),
    ("8775", "env is a number or boolean, not a mapping"),
    ("[hunter5]", "env is a list, not a mapping"),
    ("{T: 8775}", "the environment value T is a number or boolean, not text"),
    ("{T: {fromNode: 8775}}", "fromNode is a number or boolean, not text"),
    ("{T: {hunter5}}", "unknown key in the environment value T"),
    ("{T: {fromNode: X, hunter5: y}}", "unknown key in the environment value T"),
    ('{"T=hunter5": x}', '"T=***" is not an environment variable name'),
    ('{"T=hunter5": [x]}', "the environment value T=*** is a list"),
])
def test_a_problem_is_reported_without_the_value(env: str, message: str) -> None:
    found = problems(env)
    assert message in [problem.message for problem in found]
    assert not any(secret in f"{problem} {problem.as_json()} {problem.source_line}"
                   for problem in found for secret in ("hunter5", "8775"))


@pytest.mark.parametrize(("env", "code"), [
    ("{T: a, T: hunter5}", "FL010"), ("{1: hunter5}", "FL011"), ("{<<: hunter5}", "FL015"), ("{T: @hunter5}", "FL008"),
    ("{T: hunter5", "FL008"),
])
def test_a_line_with_a_value_is_not_shown_if_its_yaml_is_invalid(env: str, code: str) -> None:
    found = problems(env)
    assert code in [problem.code for problem in found]
    assert not any("hunter5" in f"{problem} {problem.source_line}" for problem in found)


def test_a_misspelled_from_node_is_still_suggested() -> None:
    assert [(problem.message, problem.suggestion) for problem in problems("{T: {fromnode: X}}")] == [
        ('unknown key "fromnode"', "fromNode")]
