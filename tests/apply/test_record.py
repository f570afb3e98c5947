"""The record of an apply: the shapes as the fleet file set them, and no secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from small_plans import FLEET, small_plan

from fleetctl.apply.prepare import ApplyOptions, apply_record, apply_request
from fleetctl.documents.loading import load_plan
from fleetctl.documents.mask import MASK
from fleetctl.documents.record import ApplyRecord
from fleetctl.errors import DocumentError
from fleetctl.fleetfile.resolved import hash_of_shape
from fleetctl.render.plan_json import render_plan_json, saved_plan_json

OPEN_FLEET = FLEET.replace(', env: {TOKEN: "hush-hush"}', "")


def recorded(**plan: Any) -> ApplyRecord:
    return ApplyRecord.model_validate(apply_record(small_plan("a", "b", **plan)))


def test_every_model_acted_on_is_recorded_with_the_fields_outside_its_hash() -> None:
    one, gang = sorted(recorded().models, key=lambda model: model.key, reverse=True)
    assert (one.key, one.wanted, one.priority, one.lifecycle.startup_timeout) == ("org/one:1", 3, 0, 90)
    assert (gang.key, gang.wanted, gang.priority, gang.lifecycle.startup_timeout) == ("org/gang", 1, 10, 1800)


def test_the_recorded_shape_is_the_hashed_one() -> None:
    record = recorded(fleet=OPEN_FLEET)
    assert set(record.shapes) == {model.spec_hash for model in record.models}
    assert {key: hash_of_shape(shape) for key, shape in record.shapes.items()} == {key: key for key in record.shapes}


def test_only_the_settings_of_the_fleet_file_are_recorded() -> None:
    shapes = json.dumps(list(recorded().shapes.values()))
    assert "readiness" not in shapes
    assert "ranksPerNode" not in shapes


def test_environment_values_are_masked_in_the_record_and_their_names_are_kept() -> None:
    text = json.dumps(apply_request(small_plan("a"), "j", "ann", ApplyOptions(), may_replan=False)["record"])
    assert "hush-hush" not in text
    assert f'"TOKEN": "{MASK}"' in text


def test_every_replica_is_recorded_with_the_claims_and_nodes_of_its_members() -> None:
    plan = small_plan("a", "b")
    assert [(one.model, one.replica_id, one.spec_hash) for one in recorded().replicas] == [
        (action.model, action.replica_id, action.spec_hash) for action in plan.actions]
    for one, action in zip(recorded().replicas, plan.actions, strict=True):
        assert [(m.rank, m.node_id, m.slot, m.gpus, m.vram, m.cpus, m.memory) for m in one.members] == [
            (m.rank, m.node_id, m.slot, m.gpus, m.vram, m.cpus, m.memory) for m in action.members]


def test_a_reference_to_the_nodes_environment_is_not_a_secret() -> None:
    record = recorded(fleet=FLEET.replace('"hush-hush"', "{fromNode: HF_TOKEN}"))
    assert '"TOKEN": {"fromNode": "HF_TOKEN"}' in json.dumps(list(record.shapes.values()))


def test_a_plan_of_an_older_release_leaves_a_record_without_shapes() -> None:
    plan = small_plan("a", "b")
    old = plan.model_copy(update={"specs": {key: {**spec} for key, spec in plan.specs.items()}})
    for spec in old.specs.values():
        del spec["asSet"]
    record = ApplyRecord.model_validate(apply_record(old))
    assert (record.shapes, len(record.models)) == ({}, 2)


def test_a_printed_plan_also_masks_the_shape_as_set() -> None:
    text = render_plan_json(small_plan("a"))
    [spec] = json.loads(text)["specs"].values()
    assert spec["asSet"]["workers"][0]["members"][0]["engine"]["env"] == {"TOKEN": MASK}
    assert "hush-hush" not in text


def test_the_plan_id_covers_the_shape_as_set() -> None:
    saved = saved_plan_json(small_plan("a"))
    document = json.loads(saved)
    next(iter(document["specs"].values()))["asSet"]["workers"][0]["name"] = "other"
    assert load_plan(saved, "x").specs
    with pytest.raises(DocumentError):
        load_plan(json.dumps(document), "x")


def test_secrets_in_arguments_are_masked_in_the_record() -> None:
    fleet = OPEN_FLEET.replace("command: [", 'command: [serve, --api-key, "hush-hush", ', 1)
    assert fleet != OPEN_FLEET
    text = json.dumps(apply_record(small_plan("a", fleet=fleet)))
    assert "hush-hush" not in text
    assert f'"--api-key", "{MASK}"' in text
