"""SARIF: valid by the published schema for any text, with fingerprints that do not depend on lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft7Validator
from random_cases import cases

from fleetctl.documents.position import Position
from fleetctl.render.report.annotations import RESULT_LIMIT, Checkout, render_sarif
from fleetctl.render.report.model import Finding
from tests.render.report.samples import hostile_texts, report

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
VALIDATOR = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)
CHECKOUT = Checkout("/repo", "/repo")


def run_of(**changes: Any) -> dict[str, Any]:
    log = json.loads(render_sarif(report("x", **changes), CHECKOUT))
    VALIDATOR.validate(log)
    run = log["runs"][0]
    assert isinstance(run, dict)
    return run


def lost(line: int, subject: str = "m") -> Finding:
    return Finding("warning", "LOST", subject, "gone", Position(file="fleets/a.yaml", line=line, column=5))


def test_each_finding_is_a_result_at_its_position_with_a_rule_and_its_help() -> None:
    run = run_of()
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [
        ("INSUFFICIENT_GPU", "error"), ("LOST", "warning"), ("CREATE", "note")]
    assert run["results"][0]["locations"] == [{"physicalLocation": {
        "artifactLocation": {"uri": "fleets/x.yaml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 7, "startColumn": 3}}}]
    rule = run["tool"]["driver"]["rules"][0]
    assert rule["id"] == "INSUFFICIENT_GPU"
    assert rule["help"]["text"] == "too few free GPUs on one node. See docs/placement.md."


def test_a_path_is_a_uri() -> None:
    place = Position(file="fleets/50% of a b#.yaml", line=1, column=1)
    result = run_of(findings=(Finding("error", "CODE", "m", "x", place),))["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "fleets/50%25%20of%20a%20b%23.yaml"


def test_a_finding_without_a_place_points_at_the_file() -> None:
    where = run_of()["results"][1]["locations"][0]["physicalLocation"]
    assert where == {"artifactLocation": {"uri": "fleets/a.yaml", "uriBaseId": "%SRCROOT%"}}


def test_the_run_has_totals_exit_code_and_identity() -> None:
    run = run_of()
    assert run["properties"] == {"wanted": 2, "blocked": 1}
    assert run["invocations"][0]["exitCode"] == 3
    assert run["automationDetails"]["id"] == "plan:x/"


def fingerprints(*findings: Finding) -> list[str]:
    return [one["partialFingerprints"]["primaryLocationLineHash"] for one in run_of(findings=findings)["results"]]


def test_a_fingerprint_survives_moved_lines_and_differs_between_equal_findings() -> None:
    before, after = fingerprints(lost(7), lost(7), lost(9, "n")), fingerprints(lost(70), lost(70), lost(90, "n"))
    assert before == after
    assert len(set(before)) == 3


def test_results_beyond_the_limit_omit_the_least_severe_with_a_notification() -> None:
    many = (*(Finding("notice", "CREATE", "m", "x") for _ in range(RESULT_LIMIT)), lost(1))
    run = json.loads(render_sarif(report("x", findings=many), CHECKOUT))["runs"][0]
    assert len(run["results"]) == RESULT_LIMIT
    assert run["results"][0]["level"] == "warning"
    notification = run["invocations"][0]["toolExecutionNotifications"][1]["message"]["text"]
    assert notification.startswith("1 finding of lower level omitted")


@pytest.mark.parametrize(("message", "escaped"), [
    ("fits [a, b]", "m: fits [a, b]"),
    ("[here](https://example.com)", "m: \\[here\\](https://example.com)"),
    ("\\[here](1)", "m: \\\\\\[here\\](1)"),
])
def test_a_message_contains_no_links(message: str, escaped: str) -> None:
    result = run_of(findings=(Finding("notice", "CREATE", "m", message),))["results"][0]
    assert result["message"]["text"] == escaped


@settings(max_examples=cases(50))
@given(hostile_texts)
def test_the_log_is_valid_for_any_text(text: str) -> None:
    VALIDATOR.validate(json.loads(render_sarif(report(text, findings=report(text).findings), CHECKOUT)))
