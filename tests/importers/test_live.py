"""A fleet file from the live fleet: an empty plan, no drift if the cluster has all values, the rest listed."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given, settings
from live_fleets import any_inventory, applied, as_text, created, fleets, inventory_of, plan_of, recorded_by
from random_cases import cases

from fleetctl.documents.inventory import Inventory
from fleetctl.errors import FleetctlError, InventoryError, UsageError
from fleetctl.importers.draft import PLACEHOLDER, Draft
from fleetctl.importers.live import choose_fleet, live_draft, live_replicas, wanted_specs
from fleetctl.importers.write import problems_of, write_draft

SHAPE: dict[str, Any] = {"name": "main", "members": [
    {"role": "Leader", "resources": {"gpus": 2, "vram": "16Gi"}, "nodeSelector": {"pool": "x"},
     "engine": {"command": ["lead"], "env": {"TOKEN": "hush-hush", "HF_TOKEN": {"fromNode": "HF_TOKEN"}}}},
    {"role": "Worker", "count": 2, "resources": {"gpus": 1, "cpus": "500m"}, "engine": {"command": ["work"]}}]}


def model(key: str = "org/m", replicas: int = 2, **more: Any) -> dict[str, Any]:
    return {"key": key, "replicas": replicas, "placement": {"ranksPerNode": 3}, "workers": [SHAPE], **more}


def plain(key: str = "org/m", replicas: int = 2, **resources: Any) -> dict[str, Any]:
    member = {"resources": resources or {"gpus": 1}, "engine": {"command": ["serve"], "args": ["--fast"]}}
    return {"key": key, "replicas": replicas, "workers": [{"name": "main", "members": [member]}]}


def fleet(*models: dict[str, Any], name: str = "lab") -> str:
    return as_text({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": name},
                    "spec": {"models": list(models)}})


def written(draft: Draft) -> str:
    text = write_draft(draft)
    assert problems_of(text, "imported.yaml") == ()
    return text


def assert_empty(text: str, inventory: Inventory) -> None:
    plan = plan_of(text, inventory)
    assert (plan.actions, plan.blocked, plan.holds) == ([], [], [])


def drifting(text: str, inventory: Inventory) -> set[str]:
    return {f"{one.model}/{one.replica_id}" for one in plan_of(text, inventory).drift}


@settings(max_examples=cases(25))
@given(fleets())
def test_an_imported_fleet_has_an_empty_plan_and_no_drift(source: dict[str, Any]) -> None:
    inventory, recorded = applied(as_text(source))
    assume(inventory.replicas)
    draft = live_draft(inventory, choose_fleet(inventory, None), recorded, "fleet")
    text = written(draft)
    assert_empty(text, inventory)
    assert drifting(text, inventory) == set()
    assert draft.losses == []
    live = Counter(replica.model for replica in inventory.replicas)
    assert {row.key: row.wanted for row in plan_of(text, inventory).models} == live


@settings(max_examples=cases(12))
@given(fleets())
def test_the_plan_is_empty_even_without_any_log(source: dict[str, Any]) -> None:
    inventory, _ = applied(as_text(source))
    assume(inventory.replicas)
    draft = live_draft(inventory, "lab", {}, "fleet")
    text = written(draft)
    assert_empty(text, inventory)
    assert {loss.model for loss in draft.losses if loss.kind == "todo"} == {one.model for one in inventory.replicas}
    assert drifting(text, inventory) == {f"{one.model}/{one.replica_id}" for one in inventory.replicas}


@settings(max_examples=cases(25))
@given(any_inventory())
def test_the_plan_of_any_imported_fleet_is_empty(inventory: Inventory) -> None:
    assume(any(one.fleet == "lab" for one in live_replicas(inventory)))
    draft = live_draft(inventory, choose_fleet(inventory, "lab"), {}, "fleet")
    assume(draft.models)
    assert_empty(written(draft), inventory)
    reported = {loss.path for loss in draft.losses}
    assert {replica.model for replica in live_replicas(inventory) if replica.fleet == "lab"} <= reported


def test_fields_outside_the_spec_hash_are_imported_too() -> None:
    source = fleet(model(priority=7, startupTimeout="90s", restart={"backoff": "200ms"}))
    inventory, recorded = applied(source)
    [imported] = live_draft(inventory, "lab", recorded, "ns").models
    assert {key: imported.value[key] for key in ("replicas", "priority", "startupTimeout", "restart")} == {
        "replicas": 2, "priority": 7, "startupTimeout": "90s", "restart": {"backoff": "0.2s"}}
    assert "schedulingTimeout" not in imported.value


def test_the_file_names_its_cluster() -> None:
    inventory, recorded = applied(fleet(plain()))
    cluster = live_draft(inventory, "lab", recorded, "ns").cluster
    assert cluster == {"address": "http://192.0.2.1:8265", "namespace": "ns"}


def test_a_masked_value_is_left_out_named_and_shows_as_drift() -> None:
    inventory, recorded = applied(fleet(model()))
    draft = live_draft(inventory, "lab", recorded, "fleet")
    text = written(draft)
    [loss] = draft.losses
    assert (loss.kind, loss.model) == ("todo", "org/m")
    assert "1 env value unknown to the cluster: TOKEN" in loss.message
    assert "hush" not in text
    assert "***" not in text
    assert "HF_TOKEN: {fromNode: HF_TOKEN}" in text
    assert "# todo: 1 env value" in text
    assert_empty(text, inventory)
    assert drifting(text, inventory) == {"org/m/0", "org/m/1"}


def test_putting_the_masked_value_back_ends_the_drift() -> None:
    inventory, recorded = applied(fleet(model()))
    text = written(live_draft(inventory, "lab", recorded, "fleet"))
    assert drifting(text.replace("env: {", 'env: {TOKEN: "hush-hush", '), inventory) == set()


def test_an_estimated_claim_becomes_that_of_the_replica() -> None:
    auto = {**plain(gpus=1, vram="auto"), "model": {"parameters": "8B"}}
    auto["workers"][0]["members"][0]["engine"] = {"command": ["vllm", "serve", "m"]}
    inventory, recorded = applied(fleet(auto))
    draft = live_draft(inventory, "lab", recorded, "fleet")
    text = written(draft)
    [loss] = draft.losses
    assert loss.kind == "todo"
    assert "this is the claim of replica 1; until both are set, replicas show as drift" in loss.message
    assert_empty(text, inventory)
    again = re.sub(r"vram: [0-9]+", "vram: auto", text)
    again = again.replace("replicas: 2", "replicas: 2\n    model: {parameters: 8B}")
    assert drifting(again, inventory) == set()


def test_a_real_value_of_three_stars_is_kept() -> None:
    honest = plain()
    honest["workers"][0]["members"][0]["engine"]["env"] = {"STARS": "***"}
    inventory, recorded = applied(fleet(honest))
    draft = live_draft(inventory, "lab", recorded, "fleet")
    assert draft.losses == []
    assert drifting(written(draft), inventory) == set()


def test_without_a_log_a_shape_is_written_as_the_inventory_shows_it() -> None:
    source = fleet(model(workers=[SHAPE, {"name": "router", "copies": 2, "members": [
        {"resources": {"cpus": 1}, "engine": {"command": ["route"]}}]}], replicas=1))
    inventory, _ = applied(source)
    draft = live_draft(inventory, "lab", {}, "fleet")
    [imported] = draft.models
    engine = {"command": [PLACEHOLDER]}
    assert imported.value["workers"] == [
        {"name": "main", "members": [
            {"role": "Leader", "resources": {"gpus": 2, "vram": "16Gi"}, "engine": engine},
            {"role": "Worker", "count": 2, "resources": {"gpus": 1, "cpus": 0.5}, "engine": engine}]},
        {"name": "router", "copies": 2, "members": [{"resources": {"cpus": 1}, "engine": engine}]}]
    [loss] = draft.losses
    assert (loss.kind, loss.model) == ("todo", "org/m")
    assert "no apply log on this cluster has spec" in loss.message


def test_the_spec_of_the_newest_replica_wins_and_the_others_are_reported() -> None:
    first, recorded = applied(fleet(plain()))
    changed = plain(replicas=3)
    changed["workers"][0]["members"][0]["engine"]["args"] = ["--faster"]
    plan = plan_of(fleet(changed), first)
    [action] = plan.actions
    inventory = inventory_of(*first.replicas, created(action))
    draft = live_draft(inventory, "lab", {**recorded, **recorded_by(plan)}, "fleet")
    text = written(draft)
    assert "--faster" in text
    assert [loss.message.partition(" run ")[0] for loss in draft.losses] == ["replicas 0, 1"]
    assert_empty(text, inventory)
    assert drifting(text, inventory) == {"org/m/0", "org/m/1"}


def test_lost_replicas_are_not_counted() -> None:
    inventory, recorded = applied(fleet(plain(replicas=9)))
    down = {node for replica in inventory.replicas for node in {member.node_id for member in replica.members}}
    assert len(down) > 1
    dead = sorted(down, key=str)[0] or ""
    after = inventory_of(*inventory.replicas, dead=(dead.removeprefix("id-"),))
    draft = live_draft(after, "lab", recorded, "fleet")
    lost = sum(any(member.node_id == dead for member in replica.members) for replica in inventory.replicas)
    assert draft.models[0].value["replicas"] == 9 - lost
    assert len([loss for loss in draft.losses if "its node is dead" in loss.message]) == lost
    assert_empty(written(draft), after)


def test_replicas_without_a_fleet_are_reported_and_not_imported() -> None:
    inventory, recorded = applied(fleet(plain()))
    foreign = {"model": "org/m", "foreignId": "6f1a:ModelActor:org/m", "members": [{"nodeId": "id-a", "gpus": 10_000}]}
    after = inventory_of(*inventory.replicas, foreign, {**foreign, "model": "other"})
    draft = live_draft(after, "lab", recorded, "fleet")
    assert [(loss.path, loss.kind) for loss in draft.losses] == [("org/m", "lost"), ("other", "lost")]
    assert [one.key for one in draft.models] == ["org/m"]
    assert_empty(written(draft), after)


def test_with_several_fleets_one_must_be_chosen() -> None:
    inventory, recorded = applied(fleet(plain()))
    other = {"model": "x", "replicaId": 0, "fleet": "theirs", "specHash": "a", "members": [{"nodeId": "id-d"}]}
    both = inventory_of(*inventory.replicas, other)
    with pytest.raises(UsageError, match="lab, theirs") as caught:
        choose_fleet(both, None)
    assert "--fleet" in (caught.value.hint or "")
    assert choose_fleet(both, "lab") == "lab"
    draft = live_draft(both, "lab", recorded, "fleet")
    assert [one.key for one in draft.models] == ["org/m"]
    assert any("theirs (1)" in note for note in draft.notes)
    assert_empty(written(draft), both)


@pytest.mark.parametrize("wanted", [None, "lab"])
def test_without_live_replicas_there_is_nothing_to_import(wanted: str | None) -> None:
    with pytest.raises(FleetctlError, match="runs here"):
        choose_fleet(inventory_of(), wanted)


def test_an_incomplete_inventory_is_not_imported() -> None:
    inventory, _ = applied(fleet(plain()))
    with pytest.raises(InventoryError):
        choose_fleet(inventory.model_copy(update={"complete": False}), None)


def test_only_the_required_shapes_are_looked_up() -> None:
    inventory, recorded = applied(fleet(plain("a"), plain("b", replicas=0)))
    assert set(wanted_specs(inventory, "lab")) == set(recorded)
    assert {key for key, _ in recorded} == {"a"}


def test_a_raised_cap_is_reported_if_it_would_show_as_drift() -> None:
    source = json.loads(fleet(plain(replicas=6, cpus=1)))
    source["spec"]["nodes"] = [{"maxReplicasPerModel": 4}]
    inventory, recorded = applied(json.dumps(source))
    draft = live_draft(inventory, "lab", recorded, "fleet")
    [loss] = draft.losses
    assert "maxReplicasPerModel" in loss.message
    text = written(draft)
    assert_empty(text, inventory)
    assert drifting(text, inventory) != set()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("damage", [
    {}, {"workers": "x"}, {"workers": [], "x": "***"}, {"placement": 1}, {"workers": [{"name": "a", "members": [3]}]},
    {"workers": [{"name": "main", "members": [{"resources": {"gpus": "***"}, "engine": {"command": ["x"]}}]}]},
])
def test_a_damaged_record_counts_as_missing(damage: dict[str, Any], *, whole: bool) -> None:
    inventory, recorded = applied(fleet(plain()))
    [(spec, known)] = recorded.items()
    broken = type(known)(damage, known.model, known.job, whole=whole)
    draft = live_draft(inventory, "lab", {spec: broken}, "fleet")
    assert "no apply log on this cluster has" in draft.losses[0].message
    assert_empty(written(draft), inventory)


@pytest.mark.parametrize("key", ["a b", "", "x" * 600, "\x1b[2J"])
def test_a_replica_with_an_invalid_key_is_reported_and_left_alone(key: str) -> None:
    inventory, recorded = applied(fleet(plain()))
    odd = {"model": key, "replicaId": 0, "fleet": "lab", "specHash": "a", "members": [{"nodeId": "id-d"}]}
    after = inventory_of(*inventory.replicas, odd)
    draft = live_draft(after, "lab", recorded, "fleet")
    assert [loss.path for loss in draft.losses] == [key]
    assert_empty(written(draft), after)


def test_a_replica_without_claims_makes_no_model_and_is_reported() -> None:
    inventory, recorded = applied(fleet(plain()))
    odd = {"model": "m", "replicaId": 0, "fleet": "lab", "members": [{"nodeId": "id-a"}]}
    inventory = inventory_of(*inventory.replicas, odd)
    draft = live_draft(inventory, "lab", recorded, "fleet")
    assert [(loss.path, loss.kind) for loss in draft.losses] == [("m", "lost")]
    assert_empty(written(draft), inventory)


@pytest.mark.parametrize("mark", [
    {"group": "No Label!"}, {"role": "Emperor"}, {"group": "g", "copy": 7}, {"group": None}, {"rank": 5}, {"gpus": 0},
])
def test_odd_marks_still_make_a_valid_file(mark: dict[str, Any]) -> None:
    odd = {"model": "m", "replicaId": 0, "fleet": "lab", "members": [
        {"nodeId": "id-a", "gpus": 10_000, **mark}, {"nodeId": "id-b", "group": "main", "gpus": 5_000}]}
    inventory = inventory_of(odd)
    assert_empty(written(live_draft(inventory, "lab", {}, "fleet")), inventory)


def test_a_masked_argument_becomes_a_variable_of_the_node() -> None:
    secret = plain()
    secret["workers"][0]["members"][0]["engine"]["args"] = ["--api-key", "hush-hush", "--hf-token=hush-hush", "--fast"]
    inventory, recorded = applied(fleet(secret))
    draft = live_draft(inventory, "lab", recorded, "fleet")
    text = written(draft)
    [loss] = draft.losses
    assert "2 secrets in arguments unknown to the cluster, now variables of the node: API_KEY, HF_TOKEN" in loss.message
    assert "***" not in text
    assert "--api-key, $(API_KEY), --hf-token=$(HF_TOKEN), --fast" in text.replace('"', "")
    assert "API_KEY: {fromNode: API_KEY}" in text
    assert drifting(text, inventory) == {"org/m/0", "org/m/1"}
