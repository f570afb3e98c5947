"""A model with a shape equals the model with that shape written out, in its spec hash and in every diff."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.cli.entry import run
from fleetctl.documents.schemas import json_schema

from .memory_tree import inspect, load, messages
from .split_fleets import HEAD, fleets, split
from .test_merge import meaning

LAB = Path(__file__).parents[2] / "fleets" / "large-lab" / "fleet.yaml"
MEMBER = {"resources": {"gpus": 1, "vram": "16Gi"}, "engine": {"command": ["serve", "$(FLEETCTL_MODEL)"]}}
WORKERS = [{"name": "main", "members": [MEMBER]}]
SHAPE = {"shapes": {"one": {"startupTimeout": "20m", "workers": WORKERS}}}


def text(spec: dict[str, Any], **head: Any) -> str:
    return json.dumps({**HEAD, **head, "spec": spec})


def fleet(*models: dict[str, Any]) -> dict[str, Any]:
    return {**SHAPE, "models": [{"key": f"m{number}", "replicas": 1, **model} for number, model in enumerate(models)]}


def written_out(document: dict[str, Any]) -> dict[str, Any]:
    """The long form, by a minimal merge that supports only this fleet."""
    long = copy.deepcopy(document)
    shapes = long["spec"].pop("shapes")
    for model in long["spec"]["models"]:
        use = model.pop("shape")
        shape = copy.deepcopy(shapes[use if isinstance(use, str) else use["name"]])
        for group in use["workers"] if isinstance(use, dict) else ():
            there = next(one for one in shape["workers"] if one["name"] == group["name"])["members"][0]
            there["resources"] |= group["members"][0]["resources"]
        model |= {key: value for key, value in shape.items() if key not in model}
    return long


def test_a_lab_of_forty_models_in_under_200_lines_is_equal_to_its_long_form(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = yaml.safe_load(LAB.read_text())
    assert len(LAB.read_text().splitlines()) < 200
    assert len(short["spec"]["models"]) == 40
    long = tmp_path / "long.yaml"
    long.write_text(yaml.safe_dump(written_out(short), sort_keys=False))
    assert run(["diff", str(long), str(LAB), "--detailed-exitcode"]) == 0, capsys.readouterr().out
    capsys.readouterr()
    assert run(["render", "-f", str(LAB), "--no-origin", "--show-env"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == written_out(short)
    assert meaning(load({"fleet.yaml": LAB.read_text()})) == meaning(load({"fleet.yaml": long.read_text()}))


@settings(max_examples=cases(40))
@given(fleets, st.data())
def test_moving_workers_into_shapes_does_not_change_the_fleet(whole: Any, data: st.DataObject) -> None:
    short: Any = copy.deepcopy(whole)
    shapes = short["spec"]["shapes"] = {}
    for number, model in enumerate(short["spec"]["models"]):
        workers = model.pop("workers")
        moved = {key: model.pop(key) for key in ("placement", "priority") if key in model and data.draw(st.booleans())}
        shapes[f"s{number}"] = {"workers": workers, **moved}
        _, again = data.draw(split(workers, ("spec", "models", "workers")))
        model["shape"] = data.draw(st.sampled_from([f"s{number}", {"name": f"s{number}", "workers": again}]))
    assert meaning(load({"fleet.yaml": json.dumps(short)})) == meaning(load({"fleet.yaml": json.dumps(whole)}))


def test_a_model_wins_over_its_shape_and_its_changes_merge_by_name_and_role() -> None:
    changed = [{"name": "main", "members": [{"resources": {"vram": "40Gi"}}]},
               {"name": "side", "members": [{"resources": {"cpus": 1}, "engine": {"command": ["proxy"]}}]}]
    found = inspect({"fleet.yaml": text(fleet({"shape": "one", "startupTimeout": "1h"},
                                              {"shape": {"name": "one", "workers": changed}}))})
    own, merged = found.documents[0].value["spec"]["models"]
    assert own == {"key": "m0", "replicas": 1, "startupTimeout": "1h", "workers": WORKERS}
    assert merged == {"key": "m1", "replicas": 1, "startupTimeout": "20m", "workers": [
        {"name": "main", "members": [{**MEMBER, "resources": {"gpus": 1, "vram": "40Gi"}}]}, changed[1]]}


def test_an_overlay_may_change_a_shape_and_give_a_model_another_shape_or_its_own_workers() -> None:
    own = [{"name": "main", "members": [{"resources": {"gpus": 2}, "engine": {"command": ["big"]}}]}]
    over = {"shapes": {"one": {"workers": [{"name": "main", "members": [{"resources": {"vram": "8Gi"}}]}]},
                       "two": {"workers": own}},
            "models": [{"key": "m1", "workers": own}, {"key": "m2", "shape": "two"}]}
    base = fleet({"shape": "one"}, {"shape": "one"}, {"workers": WORKERS})
    files = {"base.yaml": text(base), "fleet.yaml": text(over, extends="base.yaml")}
    assert messages(files) == []
    found = [model.workers[0].members[0].resources for model in load(files).models]
    assert [(resources.gpus // 10_000, resources.vram >> 30) for resources in found] == [(1, 8), (2, 0), (2, 0)]


def test_a_shape_may_be_in_another_file_and_is_only_missed_if_all_files_could_be_read() -> None:
    one = text({"models": fleet({"shape": "one"})["models"]})
    assert load({"a.yaml": one, "b.yaml": text(SHAPE)}, "a.yaml", "b.yaml").models[0].startup_timeout_s == 1200
    codes = [problem.code for problem in inspect({"a.yaml": one, "b.yaml": "a: [\n"}, "a.yaml", "b.yaml").problems]
    assert codes == ["FL008"]


@pytest.mark.parametrize(("model", "sound"), [
    ({"shape": "one"}, True), ({"workers": WORKERS}, True), ({"shape": {"name": "one"}}, True),
    ({"shape": {"name": "one", "workers": [{"name": "main", "members": [{"engine": {"args": ["-v"]}}]}]}}, True),
    ({}, False), ({"shape": "one", "workers": WORKERS}, False), ({"shape": {"workers": WORKERS}}, False),
    ({"shape": {"name": "one", "workers": [{"name": "main", "members": [{"engine": {"arg": []}}]}]}}, False),
])
def test_the_editor_schema_agrees(model: dict[str, Any], sound: bool) -> None:
    document = json.loads(text(fleet({"shape": "one"}, model)))
    assert jsonschema.Draft7Validator(json_schema("fleet")).is_valid(document) is sound
    assert (inspect({"fleet.yaml": json.dumps(document)}).fleet is not None) is sound


def test_house_rules_see_models_with_the_workers_of_their_shape_and_point_into_it() -> None:
    rule = {"properties": {"spec": {"properties": {"shapes": False, "models": {"items": {
        "required": ["workers"], "properties": {"shape": False, "workers": {"items": {"properties": {
            "copies": {"const": 2, "description": "two copies of each"}}}}}}}}}}}
    shapes = {"one": {"workers": [{**WORKERS[0], "copies": 1}]}}
    spec = {**fleet({"shape": "one"}, {"shape": "one"}), "shapes": shapes, "policy": {"schemas": ["rules.json"]}}
    found = inspect({"fleet.yaml": text(spec), "rules.json": json.dumps(rule)}).problems
    assert [(problem.code, problem.message) for problem in found] == [("FL038", "two copies of each")]


@pytest.mark.slow
def test_a_shape_counts_in_full_for_each_model_like_an_alias() -> None:
    large = [{"name": "main", "members": [{**MEMBER, "engine": {"command": ["serve"] * 5_000}}]}]
    spec = {"shapes": {"large": {"workers": large}},
            "models": [{"key": f"m{number}", "replicas": 1, "shape": "large"} for number in range(300)]}
    found = inspect({"fleet.yaml": text(spec)})
    assert [(problem.code, problem.path) for problem in found.problems] == [("FL014", "spec.models[39].shape")]


def test_a_wrong_shape_name_lists_only_a_few_of_many_shapes() -> None:
    spec = {"shapes": {f"shape-{number:03}": {"workers": WORKERS} for number in range(300)},
            "models": [{"key": "m", "replicas": 1, "shape": "shape-07"}]}
    problem = next(one for one in inspect({"a.yaml": text(spec)}, "a.yaml").problems if one.code == "FL039")
    assert problem.suggestion == "shape-207"
    assert str(problem.allowed).endswith("shape-019 and 280 more")
