"""The example of policy as code in docs/policy, run by a Rego interpreter: on its own cases and on real plans."""

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


def evaluated(
    rule: str, document: object = None, *, quotas: dict[str, Any] | None, modules: tuple[str, ...]
) -> Any:
    """Evaluate `data.main.<rule>`; sets arrive as lists. conftest merges data files as `add_data` does."""
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
    return sorted(evaluated("deny", plan, quotas=quotas, modules=("plan.rego",)))


CASES = evaluated("cases", quotas={}, modules=("plan_cases.rego",))


@pytest.mark.parametrize("name", CASES)
def test_the_rules_hold_in_every_case(name: str) -> None:
    case = CASES[name]
    assert denied(case["plan"], **case["quotas"]) == sorted(case["deny"])


def test_every_case_is_a_test_for_conftest_and_opa() -> None:
    text = (FOLDER / "plan_test.rego").read_text()
    rules = dict(re.findall(r"^test_(\w+) if holds\(cases\.(\w+)\)$", text, re.MULTILINE))
    assert rules == {name: name for name in CASES}
    Interpreter().add_module("plan_test.rego", text)  # raises where it is not Rego


def shown(fleet: str = FLEET, **facts: Any) -> Any:
    """A real plan, as `plan --format json` prints it."""
    return json.loads(render_plan_json(small_plan("a", "b", fleet=fleet, **facts)))


def test_a_real_plan_above_its_quota_and_with_a_secret_is_denied() -> None:
    assert denied(shown(), org=8) == [
        "org/one:1: TOKEN is in the fleet file; write {fromNode: TOKEN}",
        "team org: the plan takes 16 GPUs, the quota is 8",
    ]


def test_a_real_plan_within_its_quota_is_allowed() -> None:
    assert denied(shown(NO_SECRET), org=16) == []
    assert denied(shown(FLEET.replace('"hush-hush"', "{fromNode: TOKEN}")), org=16) == []


@pytest.mark.parametrize(("git", "warnings"), [
    (None, []), (GitFacts(commit="0" * 40), []),
    (GitFacts(commit="1" * 40, dirty=True), [f"commit {'1' * 40} has changes that are not committed"]),
])
def test_a_dirty_checkout_is_a_warning(git: GitFacts | None, warnings: list[str]) -> None:
    assert evaluated("warn", shown(git=git), quotas={}, modules=("plan.rego",)) == warnings


def test_the_quotas_are_what_the_rule_reads() -> None:
    assert yaml.safe_load((FOLDER / "quotas.yaml").read_text()) == {
        "quotas": {"meta-llama": 16, "openai-community": 2}}


def test_without_the_file_of_quotas_no_team_has_one() -> None:
    assert evaluated("deny", shown(NO_SECRET), quotas=None, modules=("plan.rego",)) == [
        "team org: the plan takes 16 GPUs, the quota is 0"]
