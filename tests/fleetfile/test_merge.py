"""How two files merge: by key, by name, by role, or one value replacing the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args, get_origin

import yaml
from hypothesis import given, settings
from pydantic import BaseModel
from random_cases import cases

from fleetctl.documents.base import OneOf
from fleetctl.documents.fleet import FleetDocument
from fleetctl.documents.position import Position
from fleetctl.fleetfile.keys import exclusive_keys
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import SourceBytes

from .memory_tree import inspect, load, messages
from .split_fleets import fleets, fleets_in_files

HEAD = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}}
ENGINE = {"command": ["serve"], "args": ["--a", "--b"], "env": {"A": "1", "B": "2"},
          "readiness": {"http": {"path": "/h"}}}
NO_PLACE: dict[str, Any] = {"files": (), "policy_places": {}}


def merged(base: dict[str, Any], over: dict[str, Any]) -> Any:
    """The models of a fleet of two files, as plain values."""
    loaded = inspect({"base.yaml": json.dumps({**HEAD, "spec": base}),
                      "fleet.yaml": json.dumps({**HEAD, "extends": "base.yaml", "spec": over})})
    assert loaded.fleet is not None, "\n".join(map(str, loaded.problems))
    return loaded.documents[0].value["spec"]


def models(*members: dict[str, Any], **model: Any) -> dict[str, Any]:
    return {"models": [{"key": "m", "workers": [{"name": "main", "members": list(members)}], **model}]}


def member(**more: Any) -> dict[str, Any]:
    return {"resources": {"gpus": 1, "vram": "16Gi"}, "engine": ENGINE, **more}


def members_of(spec: Any) -> Any:
    return spec["models"][0]["workers"][0]["members"]


def meaning(fleet: ResolvedFleet) -> ResolvedFleet:
    """A fleet without its places."""
    nowhere = Position(file="", line=1, column=1)
    return replace(fleet, models=tuple(replace(model, source=nowhere) for model in fleet.models), **NO_PLACE)


def test_members_merge_by_role_and_their_lists_are_replaced() -> None:
    spec = merged(models(member(), replicas=1), models(
        {"resources": {"vram": "40Gi"}, "engine": {"args": ["--c"], "env": {"B": "3", "C": {"fromNode": "C"}}}}))
    assert members_of(spec) == [{
        "resources": {"gpus": 1, "vram": "40Gi"},
        "engine": {**ENGINE, "args": ["--c"], "env": {"A": "1", "B": "3", "C": {"fromNode": "C"}}}}]


def test_leader_and_workers_merge_separately_and_workers_in_order() -> None:
    gang = [member(role="Leader"), member(role="Worker", count=1), member(role="Worker", count=2)]
    over = [{"role": "Worker"}, {"role": "Worker", "count": 5}, {"role": "Leader", "resources": {"gpus": 8}}]
    spec = merged(models(*gang, replicas=1), models(*over))
    assert [(one["role"], one.get("count"), one["resources"]["gpus"]) for one in members_of(spec)] == [
        ("Leader", None, 8), ("Worker", 1, 1), ("Worker", 5, 1)]


def test_a_gang_replaces_a_standalone_and_never_merges_with_it() -> None:
    gang = [member(role="Leader"), member(role="Worker")]
    assert members_of(merged(models(member(), replicas=1), models(*gang))) == gang
    assert members_of(merged(models(*gang, replicas=1), models(member()))) == [member()]


def test_a_view_of_another_kind_replaces_the_first_and_origins_are_replaced() -> None:
    weights = {"from": [{"path": "/a"}, {"hf": "org/a"}], "index": "a" * 64, "view": {"files": "a-*"}}
    over = {"weights": {"from": [{"path": "/b"}], "view": {"tensors": "b"}}}
    assert members_of(merged(models(member(weights=weights), replicas=1), models(over)))[0]["weights"] == {
        "from": [{"path": "/b"}], "index": "a" * 64, "view": {"tensors": "b"}}


def test_a_probe_of_another_kind_replaces_the_first() -> None:
    over = models({"engine": {"readiness": {"tcp": {"port": 80}, "period": "5s"}}})
    assert members_of(merged(models(member(), replicas=1), over))[0]["engine"]["readiness"] == {
        "tcp": {"port": 80}, "period": "5s"}


def test_no_mapping_with_one_of_several_kinds_is_forgotten() -> None:
    found, todo, seen = dict[str, tuple[str, ...]](), [FleetDocument], set[type[BaseModel]]()
    while todo:
        model = todo.pop()
        for field in model.model_fields.values() if model not in seen else ():
            in_list = get_origin(field.annotation) is list  # an overlay replaces a whole list
            held = () if in_list else (field.annotation, *get_args(field.annotation))
            found |= {str(field.alias): one.KINDS for one in held if isinstance(one, type) and issubclass(one, OneOf)}
            todo += models_in(field.annotation)
        seen.add(model)
    assert found.items() <= exclusive_keys().items(), "a mapping of another kind must replace the first"


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def test_an_environment_value_may_become_a_reference_and_back() -> None:
    def env(base: Any, over: Any) -> Any:
        below = member(engine={"command": ["x"], "env": {"A": base}})
        spec = merged(models(below, replicas=1), models({"engine": {"env": {"A": over}}}))
        return members_of(spec)[0]["engine"]["env"]

    assert env("1", {"fromNode": "A"}) == {"A": {"fromNode": "A"}}
    assert env({"fromNode": "A"}, "1") == {"A": "1"}
    assert env({"fromNode": "A"}, {"fromNode": "B"}) == {"A": {"fromNode": "B"}}


def test_groups_merge_by_name_and_new_groups_and_models_come_last() -> None:
    spec = merged(
        {"models": [{"key": "a", "replicas": 1, "workers": [{"name": "x", "members": [member()]}]},
                    {"key": "b", "replicas": 1, "workers": [{"name": "x", "members": [member()]}]}]},
        {"models": [{"key": "c", "replicas": 1, "workers": [{"name": "x", "members": [member()]}]},
                    {"key": "a", "workers": [{"name": "y", "members": [member()]}, {"name": "x", "copies": 2}]}]})
    assert [model["key"] for model in spec["models"]] == ["a", "b", "c"]
    assert [(group["name"], group.get("copies")) for group in spec["models"][0]["workers"]] == [("x", 2), ("y", None)]


def test_node_policies_are_concatenated_and_other_lists_are_replaced() -> None:
    base = {"nodes": [{"cordon": True}], "policy": {"protectedModels": ["m"], "maxNewReplicas": 1}}
    spec = merged({**models(member(), replicas=1), **base},
                  {"nodes": [{"cordon": True}, {"cordon": False}], "policy": {"protectedModels": []}})
    assert spec["nodes"] == [{"cordon": True}, {"cordon": True}, {"cordon": False}]
    assert spec["policy"] == {"protectedModels": [], "maxNewReplicas": 1}


def test_an_overlay_cannot_remove_a_model() -> None:
    assert merged(models(member(), replicas=3), {"models": []})["models"][0]["replicas"] == 3
    assert merged(models(member(), replicas=3), {"models": [{"key": "m", "replicas": 0}]})["models"][0]["replicas"] == 0


def test_a_value_of_another_type_is_reported_and_not_merged() -> None:
    files = {"base.yaml": json.dumps({**HEAD, "spec": models(member(), replicas=1)}),
             "fleet.yaml": json.dumps({**HEAD, "extends": "base.yaml", "spec": {"models": {"m": 1}}})}
    assert [line.split(": ", 1)[1] for line in messages(files)] == ["error FL022: models is a mapping, not a list"]


@settings(max_examples=cases(20))
@given(fleets_in_files())
def test_a_fleet_in_several_files_is_the_fleet_in_one(fleet_and_files: Any) -> None:
    whole, files = fleet_and_files
    alone = inspect_bytes([SourceBytes("whole.yaml", json.dumps(whole).encode())]).fleet
    assert alone is not None
    assert meaning(load(files)) == meaning(alone)


@settings(max_examples=cases(20))
@given(fleets_in_files())
def test_a_chain_of_files_equals_the_list_of_them(fleet_and_files: Any) -> None:
    _, files = fleet_and_files
    listed = {**files, "middle.yaml": unextended(files["middle.yaml"]),
              "fleet.yaml": extending(files["fleet.yaml"], ["base.yaml", "middle.yaml"])}
    assert meaning(load(listed)) == meaning(load(files))


@settings(max_examples=cases(20))
@given(fleets)
def test_an_empty_file_over_a_fleet_changes_nothing(whole: Any) -> None:
    over = json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "extends": "whole.yaml", "spec": {}})
    files = {"whole.yaml": json.dumps(whole), "fleet.yaml": over}
    assert meaning(load(files)) == meaning(load(files, "whole.yaml"))


@settings(max_examples=cases(20))
@given(fleets_in_files())
def test_every_place_points_at_its_value(fleet_and_files: Any) -> None:
    _, files = fleet_and_files
    (document,) = inspect(files).documents
    for path, value in leaves(document.value):
        place = document.position(path)
        line = files[place.file].splitlines()[place.line - 1]
        assert line[place.column - 1 :].startswith(beginnings(value)), (path, value, line)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for key, inner in below for leaf in leaves(inner, (*path, key))]
    return found or [(path, value)]


def beginnings(value: Any) -> tuple[str, ...]:
    """How JSON and YAML may begin to write a value."""
    if value in ([], {}):
        return ("[]", "{}")
    if isinstance(value, str):
        return (*("|" * ("\n" in value)), json.dumps(value)[:2], "'", value[:1])
    return (json.dumps(value),)


def unextended(text: str) -> str:
    return _changed(text, None)


def extending(text: str, bases: list[str]) -> str:
    return _changed(text, bases)


def _changed(text: str, bases: list[str] | None) -> str:
    document = yaml.safe_load(text)
    document.pop("extends")
    return json.dumps({**document, "extends": bases} if bases else document)
