from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.schemas import json_schema, schema_names, schema_text
from fleetctl.fleetfile.load import load_fleet

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "schemas"


def fleet(**model: Any) -> dict[str, Any]:
    group = {"name": "main", "members": [{"resources": {"gpus": 1, "vram": "16Gi"}, "engine": {"command": ["a"]}}]}
    models = [{"key": "m", "replicas": 1, "workers": [group], **model}]
    return {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": models}}


def of(**member: Any) -> dict[str, Any]:
    members = [{"resources": {"gpus": 1}, "engine": {"command": ["a"]}, **member}]
    return {"workers": [{"name": "main", "members": members}]}


def errors(name: str, document: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(json_schema(name)).iter_errors(document)]


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


@pytest.mark.parametrize("name", schema_names())
def test_the_committed_schema_is_current(name: str) -> None:
    committed = (SCHEMAS / f"{name}.schema.json").read_text()
    assert committed == schema_text(name), "run `make schemas`"


def test_no_committed_schema_is_obsolete() -> None:
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}.schema.json" for name in schema_names()}


@pytest.mark.parametrize("name", schema_names())
def test_a_schema_is_valid_in_the_dialects_that_editors_support(name: str) -> None:
    schema = json_schema(name)
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert not {"prefixItems", "unevaluatedProperties", "dependentRequired"} & set(schema_text(name).split('"'))


@pytest.mark.parametrize("name", schema_names())
def test_a_reference_has_no_siblings_because_draft_07_ignores_them(name: str) -> None:
    def beside(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            if "$ref" in value and len(value) > 1:
                yield value
            for inner in value.values():
                yield from beside(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from beside(inner)

    assert list(beside(json_schema(name))) == []


def test_every_key_of_the_fleet_file_is_described_and_unknown_ones_are_refused() -> None:
    found = list(objects(json_schema("fleet")))
    assert len(found) > 15
    for schema in found:
        assert schema["additionalProperties"] is False
        for key, value in schema["properties"].items():
            assert value.get("description"), key


def test_stored_documents_allow_unknown_keys() -> None:
    for name in ("inventory", "plan", "event"):
        assert all(schema.get("additionalProperties") in (None, True) for schema in objects(json_schema(name))), name


def test_the_inventory_schema_requires_what_the_model_requires() -> None:
    assert set(json_schema("inventory")["required"]) == {"observedAt", "source"}


@pytest.mark.parametrize("model", [
    {}, {"startupTimeout": "1h30m", "restart": {"max": 0, "backoff": "500ms"}}, {"priority": -5},
    {"placement": {"sameLabel": "rack", "ranksPerNode": 2, "spread": None}}, {"key": "org/a:b#{c}"},
    of(nodeSelector={"ray.io/accelerator-type": " !in( L4,A10G) ", "zone": "a.b"}),
    of(engine={"command": ["a"], "readiness": {"http": {}, "tcp": None, "period": "2s"}, "liveness": None}),
    of(engine={"command": ["a"], "caches": ["VLLM_CACHE_ROOT", "_a0"]}), {"shape": None, "variants": None},
])
def test_valid_fleets_pass_the_schema(model: dict[str, Any]) -> None:
    assert errors("fleet", fleet(**model)) == []
    load_fleet(["-"], stdin=json.dumps(fleet(**model)).encode)


@pytest.mark.parametrize("model", [
    {"replica": 1}, {"replicas": -1}, {"replicas": "1"}, {"startupTimeout": 30}, {"startupTimeout": "soon"},
    {"workers": []}, {"restart": {"backoff": 10}}, {"key": "a b "}, {"placement": {"sameLabel": "a b"}},
    of(nodeSelector={"zone": "a|b"}), of(nodeSelector={"a b": "c"}), of(nodeSelector={"Zone.io/x": "c"}),
    of(engine={"command": ["a"], "readiness": {}}),
    of(engine={"command": ["a"], "readiness": {"http": {}, "tcp": {}}}),
    *(of(engine={"command": ["a"], "caches": [name]}) for name in ("", "a b", "FLEETCTL_X", "PATH")),
    {"shape": "s"}, {"variants": []},
])
def test_invalid_fleets_fail_the_schema(model: dict[str, Any]) -> None:
    assert errors("fleet", fleet(**model)) != []


def test_an_overlay_may_change_only_the_period_of_a_probe() -> None:
    assert errors("fleet-part", fleet(**of(engine={"readiness": {"period": "2s"}}))) == []


@pytest.mark.parametrize("member", [
    {"engine": {"readiness": {"period": "5s"}}}, {"engine": {"readiness": {"exec": {}}}},
    {"engine": {"stop": {"grace": "1m"}}}, {"weights": {"view": {"files": "*.json"}}}])
def test_a_change_of_a_shape_may_leave_out_what_the_shape_has(member: dict[str, Any]) -> None:
    document = fleet(shape={"name": "one", "workers": [{"name": "main", "members": [member]}]})
    del document["spec"]["models"][0]["workers"]
    assert errors("fleet", document) == []


@pytest.mark.parametrize(("member", "sound"), [
    ({"weights": {"index": "0" * 64, "view": {"shard": {"of": 2}}}}, True),
    ({"engine": {"readiness": {"period": "2s"}, "liveness": {"tcp": {}}, "env": {"TOKEN": {}}}}, True),
    ({"engine": {"readiness": {"exec": {}}, "stop": {"grace": "1m"}}, "weights": {"view": {"files": "*.json"}}}, True),
    ({"weights": {"from": [{}]}}, False),
])
def test_what_a_model_changes_of_its_shape_is_partial_down_to_the_lists_that_it_replaces(
    member: dict[str, Any], sound: bool
) -> None:
    document = fleet(shape={"name": "s", "workers": [{"name": "main", "members": [member]}]})
    del document["spec"]["models"][0]["workers"]
    assert (errors("fleet", document) == []) is sound


def test_defaults_in_the_schema_are_values_it_allows() -> None:
    for schema in objects(json_schema("fleet")):
        for key, value in schema["properties"].items():
            if "default" in value and "$ref" not in str(value):
                assert not list(jsonschema.Draft7Validator(value).iter_errors(value["default"])), key


@pytest.mark.parametrize("path", sorted((ROOT / "fleets").glob("*.yaml")), ids=lambda path: path.name)
def test_the_example_fleets_pass_the_published_schema(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        assert errors("fleet", document) == []


def test_an_inventory_passes_its_schema() -> None:
    inventory = Inventory.model_validate({
        "observedAt": "2026-01-01T00:00:00Z", "source": "test",
        "nodes": [{"id": "a", "name": "a", "resources": {"total": {"GPU": 8}}, "gpus": [{"index": 0}]}],
        "replicas": [{"model": "m", "members": [{"nodeId": "a"}]}],
    })
    document = json.loads(inventory.model_dump_json(by_alias=True))
    assert errors("inventory", document) == []
    assert errors("inventory", {**document, "nodes": [{"name": "a"}]}) != []


def test_events_match_their_schema_and_the_last_must_have_a_result() -> None:
    event = Event.model_validate({"seq": 1, "time": "t", "type": "progress", "message": "m", "more": 1})
    assert errors("event", json.loads(event.model_dump_json(by_alias=True))) == []
    summary = RunSummary.model_validate({"seq": 2, "time": "t", "message": "m", "exitCode": 3, "outcomes": [
        {"model": "m", "outcome": "ready", "replicaId": 0}]})
    document = json.loads(summary.model_dump_json(by_alias=True))
    assert errors("event", document) == []
    del document["exitCode"]
    assert errors("event", document) != []
