"""A saved plan is stale if and only if something it relies on has changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory, short_node, short_replica

from fleetctl.documents.plan import Plan
from fleetctl.planner.stale import moved_since

pytestmark = pytest.mark.usefixtures("few_trials")
some = settings(max_examples=cases(20))

NODES: list[dict[str, Any]] = [{"name": "a", "gpus": 2, "labels": {"pool": "x"}}, {"name": "b", "gpus": 2}]
MODEL = {"key": "m", "replicas": 2, "gpus": 1, "cpus": 4, "selector": {"pool": "x"}}


def made(nodes: list[dict[str, Any]] = NODES, **fleet: Any) -> Plan:
    fleet.setdefault("models", [MODEL])
    return plan_for(short_fleet(fleet), short_inventory({"nodes": nodes}))


def moved(plan: Plan, **inventory: Any) -> list[str]:
    inventory.setdefault("nodes", NODES)
    return moved_since(plan, short_inventory(inventory))


def test_a_plan_is_not_stale_if_nothing_changed() -> None:
    assert moved(made()) == []


def test_a_new_session_makes_a_plan_stale() -> None:
    assert moved(made(), session="s2") == ["the cluster has a new session: s1 when planned, s2 now"]


def test_an_unknown_session_makes_no_plan_stale() -> None:
    plan = made()
    assert moved(plan, session=None) == []
    unknown = plan.inventory.model_copy(update={"session_id": None})
    assert moved(plan.model_copy(update={"inventory": unknown})) == []


def test_what_a_plan_did_not_record_may_change() -> None:
    plan = made().model_copy(update={"observed": {"m": {}}})
    assert moved(plan, replicas=[{"model": "m", "id": 7, "node": "b"}]) == []
    assert moved(plan.model_copy(update={"specs": {}}), nodes=[{**NODES[0], "labels": {}}]) == []
    bare = {"workers": [{"name": "main", "members": [{"role": "Standalone"}]}]}
    plan = plan.model_copy(update={"specs": dict.fromkeys(plan.specs, bare)})
    assert moved(plan, nodes=[{**NODES[0], "labels": {}}]) == []


def test_a_new_live_replica_of_a_planned_model_is_reported() -> None:
    assert moved(made(), replicas=[{"model": "m", "id": 0, "node": "b"}]) == [
        "m: 0 live when planned, 1 now", "m: highest id none when planned, 0 now"]


def test_a_lost_replica_changes_only_the_highest_id() -> None:
    assert moved(made(), nodes=[*NODES, {"name": "gone", "state": "DEAD"}],
                 replicas=[{"model": "m", "id": 0, "node": "gone"}]) == ["m: highest id none when planned, 0 now"]


def test_models_without_actions_may_change() -> None:
    plan = made(models=[MODEL, {"key": "idle", "replicas": 0, "gpus": 1}])
    assert moved(plan, replicas=[{"model": "idle", "id": 0, "node": "b"}, {"model": "new", "id": 0, "node": "b"}]) == []


def test_a_dead_target_node_is_reported() -> None:
    assert moved(made(), nodes=[{**NODES[0], "state": "DEAD"}, NODES[1]]) == [
        "node a: was alive when planned, is dead now"]


def test_a_missing_target_node_is_reported() -> None:
    assert moved(made(), nodes=[NODES[1]]) == ["node a: was alive when planned, is not listed now"]


def test_an_unrelated_node_may_join() -> None:
    joined = {"name": "c", "gpus": 8, "labels": {"pool": "x"}}
    assert moved(made(), nodes=[joined, *NODES]) == []


def test_a_target_node_that_filled_up_is_reported_once() -> None:
    taken = [{"model": "theirs", "fleet": None, "foreign": f"f{number}", "node": "a", "gpus": 1} for number in (0, 1)]
    assert moved(made(), replicas=taken) == ["node a: less is free than m/0 claims: needs 1 free GPU, has 0"]


def test_another_model_may_get_a_replica_elsewhere_but_not_in_the_room_the_plan_needs() -> None:
    plan = made(models=[MODEL, {"key": "other", "replicas": 0, "gpus": 1}])
    assert moved(plan, replicas=[{"model": "other", "id": 0, "node": "b"}]) == []
    assert moved(plan, replicas=[{"model": "other", "id": 0, "node": "a"}]) == [
        "node a: less is free than m/1 claims: needs 1 free GPU, has 0"]


@pytest.mark.parametrize("replica_id", [0, 5])
def test_a_model_that_another_fleet_has_started_is_reported_once(replica_id: int) -> None:
    theirs = [{"model": "m", "id": replica_id, "node": "b", "fleet": fleet} for fleet in ("other", "more")]
    assert moved(made(), replicas=theirs) == ["m: live under fleets more, other now"]
    assert moved(made(), replicas=theirs[:1]) == ["m: live under fleet other now"]


def test_replicas_of_the_adopted_fleet_do_not_make_a_plan_stale() -> None:
    before = [{"model": "m", "id": 0, "node": "b", "fleet": "old"}]
    plan = plan_for(short_fleet({"models": [MODEL]}), short_inventory({"nodes": NODES, "replicas": before}),
                    adopt_from="old")
    assert moved(plan, replicas=before) == []


def test_a_planned_name_that_is_taken_is_reported() -> None:
    assert moved(made(), replicas=[{"model": "m", "id": 1, "node": "b", "fleet": None}]) == [
        "m: the name ModelActor:m:1 is taken now"]


def test_planned_names_that_are_taken_are_reported_in_order() -> None:
    nodes = [{"name": "a", "gpus": 9}]
    plan = made(nodes, models=[{"key": "m", "replicas": 9, "gpus": 1}])
    assert moved(plan, nodes=nodes, replicas=[{"model": "m", "id": number, "fleet": None} for number in (8, 1)]) == [
        "m: the name ModelActor:m:1 is taken now", "m: the name ModelActor:m:8 is taken now"]


def test_a_replica_of_ours_on_another_level_raises_the_highest_id() -> None:
    assert moved(made(), replicas=[{"model": "m", "id": 1, "node": "b", "level": "WARM"}]) == [
        "m: highest id none when planned, 1 now"]


def test_a_taken_name_that_the_plan_does_not_use_is_allowed() -> None:
    theirs = [{"model": "m", "id": 0, "node": "b", "fleet": None}]
    plan = plan_for(short_fleet({"models": [MODEL]}), short_inventory({"nodes": NODES, "replicas": theirs}))
    assert [action.replica_id for action in plan.actions] == [1, 2]
    assert moved(plan, replicas=theirs) == []
    assert moved(plan, replicas=[{**theirs[0], "id": 7}]) == []


def test_a_replica_that_ended_is_reported() -> None:
    before = [{"model": "m", "id": 0, "node": "b"}]
    plan = plan_for(short_fleet({"models": [MODEL]}), short_inventory({"nodes": NODES, "replicas": before}))
    assert moved(plan, replicas=before) == []
    assert moved(plan) == ["m: 1 live when planned, 0 now", "m: highest id 0 when planned, none now"]


def test_a_draining_target_node_is_reported() -> None:
    assert moved(made(), nodes=[{**NODES[0], "state": "DRAINING"}]) == [
        "node a: is draining now, so it offers nothing"]


def test_a_target_node_cordoned_by_a_note_is_reported() -> None:
    assert moved(made(), nodes=[{**NODES[0], "cordon": {"by": "ana", "reason": "new driver"}}]) == [
        "node a: is cordoned now (note of ana: new driver)"]


def test_another_node_may_die() -> None:
    assert moved(made(), nodes=[NODES[0], {**NODES[1], "state": "DEAD"}]) == []


def test_a_relabeled_target_node_is_reported_only_if_the_selector_no_longer_matches() -> None:
    assert moved(made(), nodes=[{**NODES[0], "labels": {"pool": "y"}}]) == ["node a: was relabeled; m/0 needs pool=x"]
    assert moved(made(), nodes=[{**NODES[0], "labels": {"pool": "x", "rack": "9"}}]) == []


def test_all_labels_that_a_member_needs_are_named_in_order() -> None:
    nodes = [{**NODES[0], "labels": {"zone": "9", "pool": "x"}}]
    plan = made(nodes, models=[{**MODEL, "selector": {"zone": "9", "pool": "x"}}])
    assert moved(plan, nodes=[{**NODES[0], "labels": {"zone": "9"}}]) == [
        "node a: was relabeled; m/0 needs pool=x, zone=9"]


def test_every_missing_node_of_a_plan_is_reported_once() -> None:
    member = {"resources": {"gpus": 1}}
    plan = made(models=[{"key": "m", "replicas": 1, "workers": [
        {"name": "first", "copies": 2, "members": [{**member, "nodeSelector": {"pool": "x"}}]},
        {"name": "second", "members": [{"resources": {"gpus": 2}}]}]}])
    assert [one.node for one in plan.actions[0].members] == ["a", "a", "b"]
    assert moved(plan, nodes=[]) == ["node a: was alive when planned, is not listed now",
                                     "node b: was alive when planned, is not listed now"]


def test_less_free_than_the_total_claims_of_the_plan_is_reported() -> None:
    assert moved(made(), nodes=[{**NODES[0], "used": {"GPU": 1}}]) == [
        "node a: less is free than m/1 claims: needs 1 free GPU, has 0"]


def test_less_but_enough_free_is_allowed() -> None:
    assert moved(made(), nodes=[{**NODES[0], "used": {"CPU": 50}}]) == []
    assert moved(made(), nodes=[{**NODES[0], "used": {"CPU": 60}}]) == [
        "node a: less is free than m/1 claims: needs 4 free CPUs, has 0"]


def test_card_memory_known_only_from_a_policy_is_not_checked() -> None:
    plan = made(models=[{**MODEL, "vram": "10Gi"}], nodes=[dict(NODES[0])])
    assert plan.actions == []
    fleet = short_fleet({"nodes": [{"gpuMemory": "24Gi"}], "models": [{**MODEL, "vram": "10Gi"}]})
    plan = plan_for(fleet, short_inventory({"nodes": NODES}))
    assert len(plan.actions) == 2
    assert moved(plan) == []


def test_card_memory_that_the_cluster_reports_is_checked() -> None:
    nodes = [{"name": "a", "gpus": 1, "vram": "24Gi"}]
    plan = made(nodes, models=[{"key": "m", "replicas": 1, "vram": "10Gi"}])
    assert moved(plan, nodes=[{**nodes[0], "vram": "10Gi"}]) == []
    assert moved(plan, nodes=[{**nodes[0], "vram": "9Gi"}]) == [
        "node a: less is free than m/0 claims: needs 10Gi free VRAM on a card, has 9Gi"]
    inventory = short_inventory({"nodes": [{**nodes[0], "gpus": 2, "vram": "9Gi"}]})
    [node] = inventory.nodes
    unknown = node.model_copy(update={"gpus": [node.gpus[0], node.gpus[1].model_copy(update={"memory_total": None})]})
    assert moved_since(plan, inventory.model_copy(update={"nodes": [unknown]})) == [], "policies are not known here"


def test_the_selector_of_each_rank_counts() -> None:
    member = {"resources": {"gpus": 1}}
    gang = {"key": "m", "replicas": 1, "workers": [{"name": "main", "members": [
        {**member, "role": "Worker", "nodeSelector": {"pool": "x"}}, {**member, "role": "Leader"}]}]}
    plan = made(models=[gang])
    assert [member.node for member in plan.actions[0].members] == ["b", "a"]
    assert moved(plan, nodes=[{**NODES[0], "labels": {}}, NODES[1]]) == ["node a: was relabeled; m/0 needs pool=x"]


def test_every_worker_of_every_group_needs_its_labels() -> None:
    member, labeled = {"resources": {"gpus": 1}}, {"labels": {"pool": "x"}, "gpus": 1}
    worker = {**member, "role": "Worker", "count": 2, "nodeSelector": {"pool": "x"}}
    groups = [{"name": "first", "members": [{**member, "nodeSelector": {"pool": "y"}}]},
              {"name": "gang", "members": [worker, {**member, "role": "Leader"}]}]
    nodes = [{"name": "a", "gpus": 1, "labels": {"pool": "y"}}, {"name": "b", "gpus": 1},
             *({"name": name, **labeled} for name in ("c", "d"))]
    plan = made(nodes, models=[{"key": "m", "replicas": 1, "workers": groups}])
    assert [member.node for member in plan.actions[0].members] == ["a", "b", "c", "d"]
    assert moved(plan, nodes=nodes) == []
    for place, wanted in ((0, "y"), (2, "x"), (3, "x")):
        relabeled = [{**node, "labels": {}} if at == place else node for at, node in enumerate(nodes)]
        assert moved(plan, nodes=relabeled) == [f"node {nodes[place]['name']}: was relabeled; m/0 needs pool={wanted}"]


@some
@given(planning_inputs())
def test_a_node_that_joins_does_not_make_a_plan_stale_whatever_runs_on_it(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    joined = short_node({"name": "unrelated", "gpus": 8, "labels": {"pool": "x", "zone": "z"}})
    theirs = short_replica({"model": "theirs", "id": 0, "node": "unrelated", "gpus": 8, "fleet": None})
    now = inventory.model_copy(update={"nodes": [joined, *inventory.nodes], "replicas": [theirs, *inventory.replicas]})
    assert moved_since(plan_for(fleet, inventory), now) == []


@some
@given(planning_inputs(), st.data())
def test_a_missing_target_node_makes_the_plan_stale_and_is_named(inputs: PlanningInputs, data: st.DataObject) -> None:
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    targets = sorted({member.node_id for action in plan.actions for member in action.members})
    assume(targets)
    missing = data.draw(st.sampled_from(targets))
    left = [node for node in inventory.nodes if node.id != missing]
    changes = moved_since(plan, inventory.model_copy(update={"nodes": left}))
    assert f"node {missing}: was alive when planned, is not listed now" in changes


@some
@given(planning_inputs(), st.data())
def test_another_replica_of_a_planned_model_makes_the_plan_stale(inputs: PlanningInputs, data: st.DataObject) -> None:
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    assume(plan.actions)
    model = data.draw(st.sampled_from(sorted({action.model for action in plan.actions})))
    new = short_replica({"model": model, "id": 99, "node": inventory.nodes[0].id, "gpus": 0})
    now = inventory.model_copy(update={"replicas": [*inventory.replicas, new]})
    assert any(line.startswith(f"{model}: ") for line in moved_since(plan, now))
