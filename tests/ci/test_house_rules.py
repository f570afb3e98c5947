"""House rules in a review: the team's own messages at their lines, in every output for reviewers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from github_stand_in import GitHubStandIn
from pull_request import FLEET, PullRequest

from fleetctl.fleetfile import rule_schema

RULED = FLEET.replace("spec:\n", "spec:\n  policy: {schemas: [house-rules.schema.json]}\n")
BREAKING = RULED.replace("org/one", "one").replace("replicas: 1", "replicas: 40").replace(
    "[serve, one]", "[serve, 'one:latest']")
BROKEN = [("FL038", 7, 10, "a model key names its owner, as in org/model"),
          ("FL038", 8, 15, "at most 16 replicas per model; ask the platform team for more"),
          ("FL038", 13, 35, "an image needs a version, never latest")]


def rules(**changed: Any) -> str:
    members = {"items": {"properties": {"engine": {"properties": {"command": {"items": {
        "description": BROKEN[2][3], "not": {"pattern": ":latest$"}}}}}}}}
    model = {"key": {"description": BROKEN[0][3], "pattern": "^[a-z-]+/"},
             "replicas": {"description": BROKEN[1][3], "maximum": 16},
             "workers": {"items": {"properties": {"members": members}}}}
    return json.dumps({"properties": {"spec": {"properties": {"models": {"items": {
        "properties": {**model, **changed}}}}}}}, indent=2)


@pytest.fixture
def ruled(pull: PullRequest) -> PullRequest:
    """The pull request, into a main branch whose fleet obeys its house rules."""
    pull.remote.commit("main", rules(), "house-rules.schema.json")
    pull.main = pull.remote.commit("main", RULED)
    return pull


def test_three_broken_rules_are_in_validate_plan_apply_sarif_and_the_comment(
    job, ruled: PullRequest, hub: GitHubStandIn, snapshot_file: Path
) -> None:
    place = ruled.push(BREAKING)
    validated = job("validate", "-f", "fleet.yaml", "--format", "json", "--report", "sarif=out.sarif")
    problems = json.loads(validated.log.partition("\nerror")[0])["problems"]
    assert validated.code == 1
    assert [(one["code"], one["line"], one["column"], one["message"]) for one in problems] == BROKEN
    [run] = json.loads((place / "out.sarif").read_text())["runs"]
    regions = [result["locations"][0]["physicalLocation"]["region"] for result in run["results"]]
    assert [(region["startLine"], region["startColumn"]) for region in regions] == [one[1:3] for one in BROKEN]
    assert all(one[3] in result["message"]["text"] for one, result in zip(BROKEN, run["results"], strict=True))

    planned = job("plan", "-f", "fleet.yaml", "--inventory", snapshot_file)
    applied = job("apply", "-f", "fleet.yaml", "--yes", "--address", "http://127.0.0.1:9")
    for result in (planned, applied):
        assert result.code == 1
        assert all(f"fleet.yaml:{line}:{column}: error {code}: {words}" in result.log
                   for code, line, column, words in BROKEN)

    reviewed = job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file)
    assert reviewed.code == 1
    [comment] = hub.of("github-actions[bot]")
    for _, line, column, words in BROKEN:
        assert words.replace("org/model", "`org/model`") in comment
        assert f"fleet.yaml:{line}" in comment
        assert f"::error file=fleet.yaml,line={line},col={column}" in reviewed.log
    assert "hush-hush" not in validated.log + planned.log + reviewed.log + comment


@pytest.mark.parametrize(("fleet", "schema", "difference"), [
    (FLEET, rules(), "house-rules.schema.json -> not set"),
    (RULED, rules(replicas={"maximum": 99}), "house-rules.schema.json@")])
def test_a_change_that_drops_or_rewrites_its_rules_is_reported(
    job, ruled: PullRequest, hub: GitHubStandIn, snapshot_file: Path, fleet: str, schema: str, difference: str
) -> None:
    ruled.remote.commit("change", schema + "\n", "house-rules.schema.json")
    ruled.push(fleet + "# pushed\n")
    reviewed = job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file)
    assert reviewed.code == 0
    assert f"This change alters the policy it is judged by: spec.policy.schemas: {difference}" in reviewed.log
    assert "This change alters the policy it is judged by" in hub.of("github-actions[bot]")[0]


@pytest.mark.slow
def test_rules_without_an_end_are_in_validate_plan_and_the_comment(
    job, ruled: PullRequest, hub: GitHubStandIn, snapshot_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_schema, "LONGEST_S", 0.5)
    ruled.remote.commit("main", rules(key={"pattern": "^([a-z]+)+$"}), "house-rules.schema.json")
    ruled.main = ruled.remote.commit("main", RULED.replace("org/one", "a" * 40 + "/0"))
    ruled.push(RULED.replace("org/one", "a" * 40 + "/1"))
    validated = job("validate", "-f", "fleet.yaml", "--format", "json")
    problems = json.loads(validated.log.partition("\nerror")[0])["problems"]
    assert (validated.code, [one["code"] for one in problems]) == (1, ["FL087"])
    assert job("plan", "-f", "fleet.yaml", "--inventory", snapshot_file).code == 1
    reviewed = job("ci", "review", "-f", "fleet.yaml", "--inventory", snapshot_file)
    assert reviewed.code == 1
    [comment] = hub.of("github-actions[bot]")
    assert "the house rules were ended after 0.5 s" in comment
    assert "::error file=house-rules.schema.json,line=" in reviewed.log
