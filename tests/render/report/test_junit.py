"""JUnit: valid by a published schema for any text; a test case per model, which fails if there is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import xmlschema
from hypothesis import given, settings
from random_cases import cases

from fleetctl.render.report.annotations import render_junit
from fleetctl.render.visible import visible
from tests.render.report.samples import hostile_texts, report

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).parent / "schemas" / "junit-10.xsd"))


def suite_of(text: str = "x", **changes: Any) -> ElementTree.Element:
    written = render_junit(report(text, **changes))
    root = ElementTree.fromstring(written)
    SCHEMA.validate(root)
    suite = root.find("testsuite")
    assert suite is not None
    assert {key: root.get(key) for key in ("tests", "failures", "errors")} == {
        key: suite.get(key) for key in ("tests", "failures", "errors")}
    return suite


def test_every_model_and_every_other_subject_is_a_test_case() -> None:
    suite = suite_of()
    assert [(case.get("classname"), case.get("name")) for case in suite.iter("testcase")] == [
        ("x", "x"), ("x", "quiet"), ("x", "other")]
    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "0"]


def test_an_error_is_a_failure_with_its_position_and_other_findings_are_output() -> None:
    case = next(suite_of().iter("testcase"))
    failure = case.find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("INSUFFICIENT_GPU", "x")
    assert failure.text == "fleets/x.yaml:7:3: error INSUFFICIENT_GPU: x\nx\nx"
    assert case.findtext("system-out") == "notice CREATE: x\nx"


def test_totals_and_exit_code_are_properties() -> None:
    properties = {one.get("name"): one.get("value") for one in suite_of().iter("property")}
    assert properties == {"wanted": "2", "blocked": "1", "commit": "x", "exitCode": "3"}


@settings(max_examples=cases(80))
@given(hostile_texts)
def test_the_document_is_valid_for_any_text(text: str) -> None:
    case = next(suite_of(text).iter("testcase"))
    failure = case.find("failure")
    assert case.get("name") == visible(text)
    assert failure is not None
    assert failure.get("message") == visible(text)
    assert failure.text == f"fleets/{visible(text)}.yaml:7:3: error INSUFFICIENT_GPU: " + "\n".join([visible(text)] * 3)
