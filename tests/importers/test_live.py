"""A fleet file of the live fleet: its plan is empty, it shows no drift if the cluster knows all, and lists the rest."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given, settings
from live_worlds import applied, as_text, created, crowds, fleets, inventory_of, plan_of, recorded_by
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


def assert_empty(text: str, seen: Inventory) -> None:
    plan = plan_of(text, seen)
    assert (plan.actions, plan.blocked, plan.holds) == ([], [], [])


def drifting(text: str, seen: Inventory) -> set[str]:
    return {f"{one.model}/{one.replica_id}" for one in plan_of(text, seen).drift}


@settings(max_examples=cases(25))
@given(fleets())
def test_the_plan_of_what_is_imported_is_empty_and_nothing_drifts(asked: dict[str, Any]) -> None:
    seen, recorded = applied(as_text(asked))
    assume(seen.replicas)
    draft = live_draft(seen, choose_fleet(seen, None), recorded, "fleet")
    text = written(draft)
    assert_empty(text, seen)
    assert drifting(text, seen) == set()
    assert draft.losses == []
    live = Counter(replica.model for replica in seen.replicas)
    assert {row.key: row.wanted for row in plan_of(text, seen).models} == live


@settings(max_examples=cases(12))
@given(fleets())
def test_the_plan_is_empty_even_without_any_log(asked: dict[str, Any]) -> None:
    seen, _ = applied(as_text(asked))
    assume(seen.replicas)
    draft = live_draft(seen, "lab", {}, "fleet")
    text = written(draft)
    assert_empty(text, seen)
    assert {loss.model for loss in draft.losses if loss.kind == "todo"} == {one.model for one in seen.replicas}
    assert drifting(text, seen) == {f"{one.model}/{one.replica_id}" for one in seen.replicas}


@settings(max_examples=cases(25))
@given(crowds())
def test_the_plan_of_any_imported_fleet_is_empty(seen: Inventory) -> None:
    assume(any(one.fleet == "lab" for one in live_replicas(seen)))
    draft = live_draft(seen, choose_fleet(seen, "lab"), {}, "fleet")
    assume(draft.models)
    assert_empty(written(draft), seen)
    told = {loss.path for loss in draft.losses}
    assert {replica.model for replica in live_replicas(seen) if replica.fleet == "lab"} <= told


def test_fields_outside_the_spec_hash_come_back_too() -> None:
    asked = fleet(model(priority=7, startupTimeout="90s", restart={"backoff": "200ms"}))
    seen, recorded = applied(asked)
    [imported] = live_draft(seen, "lab", recorded, "ns").models
    assert {key: imported.value[key] for key in ("replicas", "priority", "startupTimeout", "restart")} == {
        "replicas": 2, "priority": 7, "startupTimeout": "90s", "restart": {"backoff": "0.2s"}}
    assert "schedulingTimeout" not in imported.value


def test_the_file_says_which_cluster_it_is_of() -> None:
    seen, recorded = applied(fleet(plain()))
    assert live_draft(seen, "lab", recorded, "ns").cluster == {"address": "http://192.0.2.1:8265", "namespace": "ns"}


def test_a_masked_value_is_left_out_named_and_shows_as_drift() -> None:
    seen, recorded = applied(fleet(model()))
    draft = live_draft(seen, "lab", recorded, "fleet")
    text = written(draft)
    [loss] = draft.losses
    assert (loss.kind, loss.model) == ("todo", "org/m")
    assert "1 env value unknown to the cluster: TOKEN" in loss.message
    assert "hush" not in text
    assert "***" not in text
    assert "HF_TOKEN: {fromNode: HF_TOKEN}" in text
    assert "# todo: 1 env value" in text
    assert_empty(text, seen)
    assert drifting(text, seen) == {"org/m/0", "org/m/1"}


def test_putting_the_masked_value_back_ends_the_drift() -> None:
    seen, recorded = applied(fleet(model()))
    text = written(live_draft(seen, "lab", recorded, "fleet"))
    assert drifting(text.replace("env: {", 'env: {TOKEN: "hush-hush", '), seen) == set()


def test_a_real_value_of_three_stars_is_kept() -> None:
    honest = plain()
    honest["workers"][0]["members"][0]["engine"]["env"] = {"STARS": "***"}
    seen, recorded = applied(fleet(honest))
    draft = live_draft(seen, "lab", recorded, "fleet")
    assert draft.losses == []
    assert drifting(written(draft), seen) == set()


def test_a_shape_without_a_log_is_written_as_visible() -> None:
    asked = fleet(model(workers=[SHAPE, {"name": "router", "copies": 2, "members": [
        {"resources": {"cpus": 1}, "engine": {"command": ["route"]}}]}], replicas=1))
    seen, _ = applied(asked)
    draft = live_draft(seen, "lab", {}, "fleet")
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
    seen = inventory_of(*first.replicas, created(action))
    draft = live_draft(seen, "lab", {**recorded, **recorded_by(plan)}, "fleet")
    text = written(draft)
    assert "--faster" in text
    assert [loss.message.partition(" run ")[0] for loss in draft.losses] == ["replicas 0, 1"]
    assert_empty(text, seen)
    assert drifting(text, seen) == {"org/m/0", "org/m/1"}


def test_lost_replicas_are_not_counted() -> None:
    seen, recorded = applied(fleet(plain(replicas=9)))
    down = {node for replica in seen.replicas for node in {member.node_id for member in replica.members}}
    assert len(down) > 1
    dead = sorted(down, key=str)[0] or ""
    after = inventory_of(*seen.replicas, dead=(dead.removeprefix("id-"),))
    draft = live_draft(after, "lab", recorded, "fleet")
    gone = sum(any(member.node_id == dead for member in replica.members) for replica in seen.replicas)
    assert draft.models[0].value["replicas"] == 9 - gone
    assert len([loss for loss in draft.losses if "its node is dead" in loss.message]) == gone
    assert_empty(written(draft), after)


def test_replicas_of_no_fleet_are_reported_and_not_imported() -> None:
    seen, recorded = applied(fleet(plain()))
    foreign = {"model": "org/m", "foreignId": "6f1a:ModelActor:org/m", "members": [{"nodeId": "id-a", "gpus": 10_000}]}
    after = inventory_of(*seen.replicas, foreign, {**foreign, "model": "other"})
    draft = live_draft(after, "lab", recorded, "fleet")
    assert [(loss.path, loss.kind) for loss in draft.losses] == [("org/m", "lost"), ("other", "lost")]
    assert [one.key for one in draft.models] == ["org/m"]
    assert_empty(written(draft), after)


def test_one_of_several_fleets_has_to_be_chosen() -> None:
    seen, recorded = applied(fleet(plain()))
    other = {"model": "x", "replicaId": 0, "fleet": "theirs", "specHash": "a", "members": [{"nodeId": "id-d"}]}
    both = inventory_of(*seen.replicas, other)
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
    seen, _ = applied(fleet(plain()))
    with pytest.raises(InventoryError):
        choose_fleet(seen.model_copy(update={"complete": False}), None)


def test_only_the_required_shapes_are_looked_up() -> None:
    seen, recorded = applied(fleet(plain("a"), plain("b", replicas=0)))
    assert set(wanted_specs(seen, "lab")) == set(recorded)
    assert {key for key, _ in recorded} == {"a"}


def test_a_raised_cap_is_reported_if_it_would_show_as_drift() -> None:
    asked = json.loads(fleet(plain(replicas=6, cpus=1)))
    asked["spec"]["nodes"] = [{"maxReplicasPerModel": 4}]
    seen, recorded = applied(json.dumps(asked))
    draft = live_draft(seen, "lab", recorded, "fleet")
    [loss] = draft.losses
    assert "maxReplicasPerModel" in loss.message
    text = written(draft)
    assert_empty(text, seen)
    assert drifting(text, seen) != set()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("damage", [
    {}, {"workers": "x"}, {"workers": [], "x": "***"}, {"placement": 1}, {"workers": [{"name": "a", "members": [3]}]},
    {"workers": [{"name": "main", "members": [{"resources": {"gpus": "***"}, "engine": {"command": ["x"]}}]}]},
])
def test_a_damaged_record_counts_as_missing(damage: dict[str, Any], *, whole: bool) -> None:
    seen, recorded = applied(fleet(plain()))
    [(spec, known)] = recorded.items()
    broken = type(known)(damage, known.model, known.job, whole=whole)
    draft = live_draft(seen, "lab", {spec: broken}, "fleet")
    assert "no apply log on this cluster has" in draft.losses[0].message
    assert_empty(written(draft), seen)


@pytest.mark.parametrize("key", ["a b", "", "x" * 600, "\x1b[2J"])
def test_a_replica_with_an_invalid_key_is_reported_and_left_alone(key: str) -> None:
    seen, recorded = applied(fleet(plain()))
    odd = {"model": key, "replicaId": 0, "fleet": "lab", "specHash": "a", "members": [{"nodeId": "id-d"}]}
    after = inventory_of(*seen.replicas, odd)
    draft = live_draft(after, "lab", recorded, "fleet")
    assert [loss.path for loss in draft.losses] == [key]
    assert_empty(written(draft), after)


def test_a_replica_without_claims_makes_no_model_and_is_reported() -> None:
    seen, recorded = applied(fleet(plain()))
    seen = inventory_of(*seen.replicas, {"model": "m", "replicaId": 0, "fleet": "lab", "members": [{"nodeId": "id-a"}]})
    draft = live_draft(seen, "lab", recorded, "fleet")
    assert [(loss.path, loss.kind) for loss in draft.losses] == [("m", "lost")]
    assert_empty(written(draft), seen)


@pytest.mark.parametrize("mark", [
    {"group": "No Label!"}, {"role": "Emperor"}, {"group": "g", "copy": 7}, {"group": None}, {"rank": 5}, {"gpus": 0},
])
def test_odd_marks_still_make_a_valid_file(mark: dict[str, Any]) -> None:
    odd = {"model": "m", "replicaId": 0, "fleet": "lab", "members": [
        {"nodeId": "id-a", "gpus": 10_000, **mark}, {"nodeId": "id-b", "group": "main", "gpus": 5_000}]}
    seen = inventory_of(odd)
    assert_empty(written(live_draft(seen, "lab", {}, "fleet")), seen)
