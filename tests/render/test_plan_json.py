from __future__ import annotations

import json
from typing import Any

from render_plans import plan

from fleetctl.documents.plan import Plan
from fleetctl.render.plan_json import render_plan_json, saved_plan_json


def spec(env: dict[str, Any]) -> dict[str, Any]:
    return {"hash": {"workers": [{"members": [{"engine": {"command": ["x"], "env": env}}]}], "placement": {}}}


def env_of(text: str) -> Any:
    return json.loads(text)["specs"]["hash"]["workers"][0]["members"][0]["engine"]["env"]


def test_env_values_are_masked_in_output_and_complete_in_the_saved_file() -> None:
    document = plan(specs=spec({"TOKEN": "hush", "FROM": {"fromNode": "HF_TOKEN"}}))
    assert env_of(render_plan_json(document)) == {"TOKEN": "***", "FROM": {"fromNode": "HF_TOKEN"}}
    assert "hush" not in render_plan_json(document)
    assert env_of(saved_plan_json(document))["TOKEN"] == "hush"


def test_a_masked_document_says_that_it_is_one() -> None:
    assert json.loads(render_plan_json(plan(specs=spec({"TOKEN": "hush"}))))["masked"] is True


def test_without_masking_the_bytes_equal_the_saved_document() -> None:
    for document in (plan(), plan(specs=spec({})), plan(specs=spec({"FROM": {"fromNode": "HF_TOKEN"}}))):
        assert render_plan_json(document) == saved_plan_json(document)


def test_the_saved_document_is_the_plan() -> None:
    document = plan(specs=spec({"TOKEN": "hush", "ÜMLAUT": "ß"}))
    assert Plan.model_validate_json(saved_plan_json(document)) == document


def test_secrets_in_arguments_are_masked_in_output_and_complete_in_the_saved_file() -> None:
    engine = {"command": ["serve", "--token"], "args": ["hush", "--api-key=hush", "--port", "1"], "env": {}}
    document = plan(specs={"hash": {"workers": [{"members": [{"engine": engine}]}], "placement": {}}})
    shown = json.loads(render_plan_json(document))
    assert shown["masked"] is True
    assert shown["specs"]["hash"]["workers"][0]["members"][0]["engine"]["args"] == [
        "***", "--api-key=***", "--port", "1"]
    assert Plan.model_validate_json(saved_plan_json(document)) == document
