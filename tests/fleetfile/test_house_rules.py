"""A team's rules as JSON Schema: each violation at its place in the fleet file, with the schema's description."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fleetctl.fleetfile.load import inspect_fleet

from .memory_tree import MemoryTree, inspect, messages

HEAD = "apiVersion: fleetctl/v1\nkind: Fleet\n"
SECRET = "sk-not-for-anyone"
FLEET = HEAD + """\
metadata: {name: lab}
spec:
  policy: {schemas: [rules.json]}
  models:
  - key: gpt2
    replicas: 9
    workers:
    - name: main
      members:
      - resources: {gpus: 1}
        engine:
          command: [run, "image:latest"]
"""


def of_models(**rules: Any) -> dict[str, Any]:
    """A schema with rules for each model."""
    return {"properties": {"spec": {"properties": {"models": {"items": {"properties": rules}}}}}}


def broken(schema: Any, fleet: str = FLEET, **files: str) -> list[str]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return messages({"fleet.yaml": fleet, "rules.json": text, **files})


def test_three_broken_rules_are_three_problems_with_the_descriptions_of_the_schema() -> None:
    image = {"description": "an image needs a version, never latest", "not": {"pattern": ":latest$"}}
    engine = {"properties": {"command": {"items": image}}}
    members = {"items": {"properties": {"engine": engine}}}
    schema = of_models(
        key={"description": "a model key names its owner: owner/model", "pattern": "/"},
        replicas={"description": "no model has more than 8 replicas", "maximum": 8},
        workers={"items": {"properties": {"members": members}}})
    assert broken(schema) == [
        "fleet.yaml:7:10: error FL038: a model key names its owner: owner/model; allowed: text that matches /",
        "fleet.yaml:8:15: error FL038: no model has more than 8 replicas; allowed: at most 8",
        "fleet.yaml:14:26: error FL038: an image needs a version, never latest"]


def test_a_rule_over_workers_holds_in_each_variant() -> None:
    image = {"items": {"description": "an image needs a version, never latest", "not": {"pattern": ":latest$"}}}
    members = {"items": {"properties": {"engine": {"properties": {"command": image}}}}}
    fleet = FLEET.replace("    workers:\n", """\
    variants:
    - name: a
      workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [run, "image:latest"]}}]}]
    - name: b
      placement: {spread: zone}
      workers: [{name: main, members: [{resources: {gpus: 2}, engine: {command: [run, "image:2"]}}]}]
    - name: c
      workers: [{name: main, members: [{resources: {gpus: 3}, engine: {command: [run, "image:latest"]}}]}]
  - key: plain
    replicas: 9
    workers:
""")
    rules = of_models(workers={"items": {"properties": {"members": members}}},
                      placement={"properties": {"spread": {"description": "no spread", "const": ""}}},
                      variants={"description": "at most two variants", "maxItems": 2})
    found = inspect({"fleet.yaml": fleet, "rules.json": json.dumps(rules)}).problems
    assert [(problem.line, problem.message, problem.path) for problem in found if problem.code == "FL038"] == [
        (10, "at most two variants", "spec.models[0].variants"),
        (11, "an image needs a version, never latest",
         "spec.models[0].variants[0].workers[0].members[0].engine.command[1]"),
        (13, "no spread", "spec.models[0].placement.spread"),
        (16, "an image needs a version, never latest",
         "spec.models[0].variants[2].workers[0].members[0].engine.command[1]"),
        (24, "an image needs a version, never latest", "spec.models[1].workers[0].members[0].engine.command[1]")]


def test_a_satisfied_rule_reports_nothing() -> None:
    assert broken(of_models(replicas={"maximum": 9})) == []
    assert broken({"$schema": "https://json-schema.org/draft/2020-12/schema", "required": ["spec"]}) == []


@pytest.mark.parametrize(("rules", "message"), [
    ({"maximum": 8}, "; allowed: at most 8"),
    ({"type": "string"}, "; allowed: text"),
    ({"enum": [1, 2, "x"]}, "; allowed: 1, 2, x"),
    (False, ""),
    ({"anyOf": [{"maximum": 1}, {"const": 3}]}, ""),
])
def test_without_a_description_the_message_says_what_was_found(rules: Any, message: str) -> None:
    found = "8:15: error FL038: replicas is 9, which is not allowed by the house rules in rules.json"
    assert broken(of_models(replicas=rules)) == [f"fleet.yaml:{found}{message}"]


def test_a_missing_key_is_shown_at_the_nearest_parent_and_an_extra_key_at_itself() -> None:
    schema = {"properties": {"spec": {"properties": {"models": {"items": {
        "required": ["priority", "key"], "additionalProperties": False,
        "properties": {"key": {}, "workers": {}}}}}}}}
    assert broken(schema) == [
        'fleet.yaml:7:5: error FL038: the key "priority" is missing but required by the house rules in rules.json',
        'fleet.yaml:8:5: error FL038: the key "replicas" is not allowed by the house rules in rules.json']


def test_the_nearest_description_counts_also_through_references() -> None:
    schema = {"description": "the rules of the lab", "$defs": {"few": {"$ref": "#/$defs/most"}, "most": {"maximum": 8}},
              **of_models(replicas={"description": "few replicas", "$ref": "#/$defs/few"}, key={"pattern": "/"})}
    found = [message.partition("FL038: ")[2] for message in broken(schema)]
    assert found == ["the rules of the lab; allowed: text that matches /", "few replicas; allowed: at most 8"]


def test_a_rule_includes_bases_and_defaults_and_points_at_the_file_that_sets_the_value() -> None:
    fleet = HEAD + ("extends: base.yaml\nmetadata: {name: lab}\nspec:\n  models:\n  - {key: m, replicas: 1}\n"
                    "  - {key: n, replicas: 1, priority: 7, restart: {max: 1}}\n")
    defaults = "  defaults: {priority: 500, restart: {backoff: 1h}}\n"
    base = FLEET.replace("gpt2", "m").replace("  models:", f"{defaults}  models:")
    base += "  - key: n\n" + base.partition("replicas: 9\n")[2]
    schema = of_models(priority={"maximum": 100}, restart={"required": ["max"]}, replicas={"maximum": 1})
    assert [re.split(", which| but", message)[0] for message in broken(schema, fleet, **{"base.yaml": base})] == [
        "base.yaml:6:24: error FL038: priority is 500", 'base.yaml:6:29: error FL038: the key "max" is missing']


def test_house_rules_check_all_files_as_one_document() -> None:
    models = FLEET.partition("models:\n")[2].replace("gpt2", "org/m")
    more = f"{HEAD}metadata: {{name: lab}}\nspec:\n  models:\n{models}"
    files = {"fleet.yaml": FLEET, "more.yaml": more, "rules.json": json.dumps(of_models(replicas={"maximum": 8}))}
    assert [message.partition(" error")[0] for message in messages(files, "fleet.yaml", "more.yaml")] == [
        "fleet.yaml:8:15:", "more.yaml:7:15:"]


def test_violations_are_listed_with_the_other_problems_of_the_fleet() -> None:
    codes = [problem.split()[2] for problem in broken(of_models(replicas={"maximum": 8}),
                                                      FLEET.replace("resources: {gpus: 1}", "resources: {gpus: x}"))]
    assert codes == ["FL038:", "FL025:"]


def test_a_name_is_relative_to_the_file_that_names_it() -> None:
    base = HEAD + "spec: {policy: {schemas: [rules/a.json]}}\n"
    files = {"fleets/prod/fleet.yaml": FLEET.replace("spec:\n  policy: {schemas: [rules.json]}\n",
                                                     "extends: ../base.yaml\nspec:\n"),
             "fleets/base.yaml": base, "fleets/rules/a.json": json.dumps(of_models(replicas={"maximum": 8}))}
    assert [message.partition(", which")[0] for message in messages(files, "fleets/prod/fleet.yaml")] == [
        "fleets/prod/fleet.yaml:8:15: error FL038: replicas is 9"]


@pytest.mark.parametrize(("text", "message"), [
    ("{\n\t\"type\": }", "rules.json:2:10: error FL037: this is not JSON: Expecting value"),
    ("", "rules.json:1:1: error FL037: this is not JSON: Expecting value"),
    ("[]", "rules.json:1:1: error FL037: this is not a JSON Schema; allowed: a JSON object"),
    ('{"properties": {"spec": {"maximum": "x"}}}', ('rules.json:1:37: error FL037: maximum is "x", which is not '
                                                   "allowed by JSON Schema; allowed: a number")),
    ('{"pattern": "("}', 'rules.json:1:13: error FL037: pattern is "(", which is not allowed by JSON Schema'),
    ('{"$schema": "http://json-schema.org/draft-07/schema#"}',
     ("rules.json:1:13: error FL037: house rules must be JSON Schema draft 2020-12; "
     "allowed: https://json-schema.org/draft/2020-12/schema")),
    ('{"$ref": "https://example.com/rules.json"}',
     ('rules.json:1:10: error FL037: "https://example.com/rules.json" is not in this schema; '
     "allowed: a reference into the same file, such as #/$defs/NAME; nothing is fetched")),
    ('{"then": {"$ref": "#/$defs/gone"}}',
     ('rules.json:1:19: error FL037: "#/$defs/gone" is not in this schema; '
     "allowed: a reference into the same file, such as #/$defs/NAME; nothing is fetched")),
    ('{"$ref": "#"}', "rules.json:1:1: error FL037: a $ref in this schema is circular or cannot be resolved"),
    ('{"$dynamicRef": "#gone"}',
     "rules.json:1:1: error FL037: a $ref in this schema is circular or cannot be resolved"),
    ('{"minimum": 1, "minimum": 2}',
     'rules.json:1:16: error FL037: duplicate key "minimum"; the first is at 1:2'),
    ('{"not": ' * 300 + "{}" + "}" * 300, "rules.json:1:1: error FL037: this schema is nested too deeply"),
    ('{"maxItems": ' + "9" * 5000 + "}", "rules.json:1:1: error FL037: a number in this schema is too long"),
    ("[" * 100_000, "rules.json:1:1: error FL037: this schema is nested too deeply"),
])
def test_a_file_that_is_not_a_schema_is_a_problem_at_its_own_place(text: str, message: str) -> None:
    assert broken(text) == [message]


def test_all_problems_of_a_schema_are_reported_at_once() -> None:
    assert len(broken('{"minimum": "x", "properties": {"a": {"type": "text"}}}')) == 2


@pytest.mark.parametrize(("name", "message"), [
    ("rule.json", "no such file: rule.json; did you mean rules.json?"),
    ("../rules.json", '"../rules.json" leads outside the checkout'),
    ("/etc/rules.json", ('"/etc/rules.json" is not a path relative to this file; allowed: a file in the same checkout; '
                        "nothing is fetched")),
    ("https://example.com/r.json", ('"https://example.com/r.json" is not a path relative to this file; allowed: a file '
                                   "in the same checkout; nothing is fetched")),
])
def test_a_file_that_cannot_be_read_is_a_problem_at_its_name(name: str, message: str) -> None:
    found = broken({}, FLEET.replace("[rules.json]", f"['{name}']"))
    assert [one.partition("; allowed: a file of the same git")[0] for one in found] == [
        f"fleet.yaml:5:22: error FL037: {message}"]


def test_a_schema_too_large_is_refused_at_its_name() -> None:
    assert broken(" " * (1 << 20) + "{}") == ["fleet.yaml:5:22: error FL037: rules.json: larger than 1 MiB"]


def test_a_link_outside_the_checkout_is_refused(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / ".git").mkdir(parents=True)
    (tmp_path / "rules.json").write_text("{}")
    (checkout / "rules.json").symlink_to(tmp_path / "rules.json")
    (checkout / "fleet.yaml").write_text(FLEET)
    found = inspect_fleet([str(checkout / "fleet.yaml")]).errors
    assert [(problem.code, problem.line, problem.message) for problem in found] == [
        ("FL037", 5, '"rules.json" leads outside the checkout')]


@pytest.mark.parametrize("rules", [
    {"additionalProperties": {"type": "object"}}, {"additionalProperties": {"const": "x"}}, {"const": {}},
    {"propertyNames": {"pattern": "^x$"}}, {"additionalProperties": False}, {"maxProperties": 0},
    {"additionalProperties": {"anyOf": [{"const": 1}, {"enum": [2]}]}}, {"not": {}}, {"minProperties": 9}, False,
    {"patternProperties": {"": {"pattern": "^x$"}}}, {"unevaluatedProperties": False},
    {"additionalProperties": {"additionalProperties": False, "items": False, "required": ["fromNode"]}},
    {"additionalProperties": {"additionalProperties": {"type": "string"}, "propertyNames": {"maxLength": 1}}},
])
@pytest.mark.parametrize("variable", [f"TOKEN: {SECRET}", f"'TOKEN={SECRET}': {{fromNode: X}}",
                                      f"TOKEN: {{{SECRET}: 3}}", f"TOKEN: [{SECRET}]"])
def test_no_message_contains_the_value_of_a_variable(rules: Any, variable: str) -> None:
    fleet = FLEET.replace("engine:\n", f"engine:\n          env: {{{variable}}}\n")
    engine = {"properties": {"env": rules}}
    around = {"not": {"required": ["env"]}, "const": {}, **engine}
    for schema in (engine, around):
        files = {"fleet.yaml": fleet, "rules.json": json.dumps(of_models(workers={"items": {"properties": {
            "members": {"items": {"properties": {"engine": schema}}}}}}))}
        problems = inspect(files).problems
        assert all(SECRET not in f"{problem}{problem.source_line}{problem.as_json()}" for problem in problems)
        assert problems or schema is engine


def test_descriptions_are_shown_on_one_line_without_control_characters() -> None:
    found = broken(of_models(replicas={"description": "few\n  \u001b[31mreplicas\u202e", "maximum": 8}))
    assert found == ["fleet.yaml:8:15: error FL038: few ?[31mreplicas?; allowed: at most 8"]


def test_a_schema_that_no_fleet_names_is_not_read() -> None:
    tree = MemoryTree({"fleet.yaml": FLEET.replace("[rules.json]", "[]"), "rules.json": "{"})
    assert inspect_fleet(["fleet.yaml"], tree=tree).problems == ()
    assert tree.read_paths == ["fleet.yaml"]
