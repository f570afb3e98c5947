"""The policy-as-code example in docs/policy, run by a Rego interpreter on its own cases and on real plans."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from regopy import Interpreter
from small_plans import FLEET, small_plan

from fleetctl.documents.plan import GitFacts
from fleetctl.render.plan_json import render_plan_json

FOLDER = Path(__file__).parents[2] / "docs" / "policy"
NO_SECRET = FLEET.replace(', env: {TOKEN: "hush-hush"}', "")


def evaluate(
    rule: str, document: object = None, *, quotas: dict[str, Any] | None, modules: tuple[str, ...]
) -> Any:
    """Evaluate `data.main.<rule>`; sets become lists. conftest merges data files as `add_data` does."""
    interpreter = Interpreter()
    if quotas is not None:
        interpreter.add_data({"quotas": quotas})
    for name in modules:
        interpreter.add_module(name, (FOLDER / name).read_text())
    if document is not None:
        interpreter.set_input(document)
    answer = interpreter.query(f"data.main.{rule}")
    assert answer.ok()
    return answer[0][0]


def denied(plan: object, **quotas: int) -> list[str]:
    return sorted(evaluate("deny", plan, quotas=quotas, modules=("plan.rego",)))


CASES = evaluate("cases", quotas={}, modules=("plan_cases.rego",))


@pytest.mark.parametrize("name", CASES)
def test_the_rules_hold_in_every_case(name: str) -> None:
    case = CASES[name]
    assert denied(case["plan"], **case["quotas"]) == sorted(case["deny"])


def test_every_case_is_a_test_of_conftest_and_opa() -> None:
    text = (FOLDER / "plan_test.rego").read_text()
    rules = dict(re.findall(r"^test_(\w+) if holds\(cases\.(\w+)\)$", text, re.MULTILINE))
    assert rules == {name: name for name in CASES}
    Interpreter().add_module("plan_test.rego", text)  # raises if it is not Rego


def printed_plan(fleet: str = FLEET, **facts: Any) -> Any:
    """A real plan as `plan --format json` prints it."""
    return json.loads(render_plan_json(small_plan("a", "b", fleet=fleet, **facts)))


def test_a_real_plan_above_its_quota_and_with_a_secret_is_denied() -> None:
    assert denied(printed_plan(), org=8) == [
        "org/one:1: TOKEN is in the fleet file; write {fromNode: TOKEN}",
        "team org: the plan takes 16 GPUs, the quota is 8",
    ]


def test_a_real_plan_within_its_quota_is_allowed() -> None:
    assert denied(printed_plan(NO_SECRET), org=16) == []
    assert denied(printed_plan(FLEET.replace('"hush-hush"', "{fromNode: TOKEN}")), org=16) == []


@pytest.mark.parametrize(("git", "warnings"), [
    (None, []), (GitFacts(commit="0" * 40), []),
    (GitFacts(commit="1" * 40, dirty=True), [f"commit {'1' * 40} has changes that are not committed"]),
])
def test_a_dirty_checkout_is_a_warning(git: GitFacts | None, warnings: list[str]) -> None:
    assert evaluate("warn", printed_plan(git=git), quotas={}, modules=("plan.rego",)) == warnings


def test_the_quota_file_has_the_structure_that_the_rule_reads() -> None:
    assert yaml.safe_load((FOLDER / "quotas.yaml").read_text()) == {
        "quotas": {"meta-llama": 16, "openai-community": 2}}


def test_without_a_quota_file_every_quota_is_0() -> None:
    assert evaluate("deny", printed_plan(NO_SECRET), quotas=None, modules=("plan.rego",)) == [
        "team org: the plan takes 16 GPUs, the quota is 0"]
