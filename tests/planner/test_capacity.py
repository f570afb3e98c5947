"""How many more replicas fit: counted by the planner, by a simulated cluster, and by a plan that places them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from applied import apply_plan
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory
from simulated import simulate

from fleetctl.documents.answers import CapacityRow, Room
from fleetctl.documents.fleet import Policy, Spread
from fleetctl.documents.inventory import Inventory
from fleetctl.errors import FleetctlError, InventoryError
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.questions.capacity import capacity
from fleetctl.planner.questions.scenario import NO_FLEET, Scenario

TWO_NODES = {"nodes": [{"name": "a", "gpus": 8, "vram": "80Gi"}, {"name": "b", "gpus": 4, "vram": "80Gi"}]}


def room(shape: str, inventory: dict[str, Any] = TWO_NODES, **more: Any) -> Room:
    answer = capacity(Scenario(NO_FLEET, short_inventory(inventory)), shapes=[shape], **more)
    (row,) = answer.rows
    assert row.after_plan is None
    return row.now


@pytest.mark.parametrize(("shape", "fits"), [
    ("8", 1), ("4", 3), ("1", 12), ("0.5", 24), ("2x4", 1), ("3x4", 0), ("4x2,ranksPerNode=4", 1), ("gpus=0.6", 12),
    ("gpus=1,vram=81Gi", 0), ("gpus=4,cpus=30", 3), ("gpus=4,cpus=33", 2), ("cpus=1", 2),
])
def test_a_shape_fits_as_many_times_as_there_is_room(shape: str, fits: int) -> None:
    found = room(shape)
    assert (found.fits, found.capped) == (fits, False)
    assert found.at_most >= fits


def test_the_reason_against_one_more_shows_its_arithmetic() -> None:
    found = room("8")
    assert (found.code, found.status, found.at_most) == ("INSUFFICIENT_GPU", "optimal", 1)
    assert "needs 8 free GPUs" in found.message
    assert "short 4" in found.message


def test_equal_nodes_with_equal_counts_share_an_entry() -> None:
    nodes = [{"name": f"n{number}", "gpus": 8, "labels": {"ray.io/accelerator-type": "H200"}} for number in range(3)]
    found = room("4", {"nodes": [*nodes, {"name": "small", "gpus": 4}]})
    assert [(equal.hardware, equal.members_each, equal.nodes) for equal in found.where] == [
        ("8xH200", 2, ["n0", "n1", "n2"]), ("4xGPU", 1, ["small"])]


def test_nodes_of_another_price_are_an_entry_of_their_own() -> None:
    fleet = short_fleet({"nodes": [{"price": 8}, {"selector": {"ray.io/node-id": "b"}, "price": 3}],
                         "models": [{"key": "m", "replicas": 0, "gpus": 2}]})
    seen = {"nodes": [{"name": name, "gpus": 4} for name in "abc"]}
    [row] = capacity(Scenario(fleet, short_inventory(seen))).rows
    assert [(equal.nodes, equal.members_each, equal.price) for equal in row.now.where] == [
        (["a", "c"], 2, 4_000_000), (["b"], 2, 1_500_000)]
    assert [equal.price for equal in room("4", seen).where] == [None]


def test_the_members_of_gangs_are_counted_on_their_nodes() -> None:
    found = room("2x4")
    assert {name: equal.members_each for equal in found.where for name in equal.nodes} == {"a": 1, "b": 1}


def test_counting_stops_at_the_limit_and_reports_that() -> None:
    found = room("0.001", limit=50)
    assert (found.fits, found.capped, found.code, found.status) == (50, True, None, "feasible")


@pytest.mark.parametrize(("shape", "fits"), [("vram=100Mi", 9228), ("vram=81Gi", 0), ("vram=40Gi", 24)])
def test_many_shares_of_equal_cards_are_counted_node_by_node(shape: str, fits: int) -> None:
    found = room(shape)
    assert (found.fits, found.at_most, found.method) == (fits, fits, "each node counted by itself")


def test_shares_of_unequal_cards_of_one_node_are_packed() -> None:
    inventory = json.loads(json.dumps(short_inventory(TWO_NODES).model_dump(by_alias=True, mode="json")))
    inventory["nodes"][1]["gpus"][0]["memoryTotal"] = 40 << 30
    answer = capacity(Scenario(NO_FLEET, Inventory.model_validate(inventory)), shapes=["vram=30Gi"])
    assert (answer.rows[0].now.fits, answer.rows[0].now.method) == (23, "slots per model")


def test_the_count_after_the_plan_excludes_room_of_planned_replicas() -> None:
    fleet = short_fleet({"models": [{"key": "m", "replicas": 3, "gpus": 2}, {"key": "n", "replicas": 1, "gpus": 4}]})
    answer = capacity(Scenario(fleet, short_inventory(TWO_NODES)))
    rows = {row.model: (row.create, row.now.fits, row.after_plan.fits if row.after_plan else None)
            for row in answer.rows}
    assert rows == {"m": (3, 6, 1), "n": (1, 3, 0)}


def test_policies_of_the_fleet_apply_to_a_typed_shape() -> None:
    fleet = short_fleet({"nodes": [{"selector": {"ray.io/node-id": "a"}, "cordon": True}]})
    answer = capacity(Scenario(fleet, short_inventory(TWO_NODES)), shapes=["1"])
    assert answer.rows[0].now.fits == 4


def test_models_of_one_shape_with_a_cap_are_counted_separately() -> None:
    fleet = short_fleet({"nodes": [{"maxReplicasPerModel": 1}], "models": [
        {"key": key, "replicas": 0, "gpus": 1} for key in "mn"]})
    inventory = short_inventory({**TWO_NODES, "replicas": [{"model": "m", "id": 0, "node": "a"}]})
    answer = capacity(Scenario(fleet, inventory))
    assert {row.model: row.now.fits for row in answer.rows} == {"m": 1, "n": 2}


def test_a_model_that_another_fleet_runs_has_no_room() -> None:
    fleet = short_fleet({"models": [{"key": key, "replicas": 1, "gpus": 1} for key in "mn"]})
    inventory = short_inventory({**TWO_NODES, "replicas": [{"model": "m", "id": 0, "node": "a", "fleet": "other"}]})
    answer = capacity(Scenario(fleet, inventory))
    rows = {row.model: (row.now.fits, row.now.code, row.after_plan and row.after_plan.fits) for row in answer.rows}
    assert rows == {"m": (0, "CLAIMED_BY_FLEET", 0), "n": (11, "INSUFFICIENT_GPU", 10)}
    adopted = capacity(Scenario(fleet, inventory, adopt_from="other"))
    assert [row.now.fits for row in adopted.rows] == [11, 11]


def test_one_model_can_be_counted_and_an_unknown_one_gets_the_nearest_name() -> None:
    models = [{"key": key, "replicas": 1, "gpus": 1} for key in ("org/one", "org/two")]
    scenario = Scenario(short_fleet({"models": models}), short_inventory(TWO_NODES))
    assert [row.model for row in capacity(scenario, models=["org/two"]).rows] == ["org/two"]
    with pytest.raises(FleetctlError) as caught:
        capacity(scenario, models=["org/tow"])
    assert "org/two" in (caught.value.hint or "")


def test_an_incomplete_inventory_is_not_counted() -> None:
    with pytest.raises(InventoryError):
        room("1", {**TWO_NODES, "complete": False})


def is_single(model: ResolvedModel) -> bool:
    return len(model.workers) == 1 and model.workers[0].copies == 1 and len(model.workers[0].members) == 1


def by_key(fleet: ResolvedFleet, inventory: Inventory, *, single: bool = False) -> dict[str, CapacityRow]:
    keys = [model.key for model in fleet.models if is_single(model) or not single]
    return {row.model or "": row for row in (capacity(Scenario(fleet, inventory), models=keys).rows if keys else ())}


@settings(max_examples=cases(25), deadline=None)
@given(planning_inputs(exact=True))
def test_a_simulated_cluster_holds_exactly_the_counted_number(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    rows = by_key(fleet, inventory, single=True)
    for model in filter(is_single, fleet.models):
        want = model.workers[0].members[0]
        if want.resources.vram and not want.resources.gpus:
            continue  # a share that differs by card: covered by the test of the bound
        if isinstance(model.placement.spread, Spread):
            continue  # this count ignores such limits
        taken = 0
        for node in simulate(inventory, fleet.policies, fleet.name, None).values():
            cap = node.cap if node.cap is not None else None if want.resources.gpus or want.resources.vram else 1
            labels = {"ray.io/node-id": node.node.id, **node.node.labels}
            there = node.slots.get(model.key, 0)
            while (node.takes_new and selected(want.node_selector, labels) and (cap is None or there < cap)
                   and node.take(want.resources.gpus, want.resources.vram, want.resources.cpus, want.resources.memory)
                   is not None):
                there += 1
                taken += 1
        assert rows[model.key].now.fits == taken
        assert rows[model.key].now.at_most == taken


def selected(selector: dict[str, str], labels: dict[str, str]) -> bool:
    from simulated import selects

    return selects(selector, labels)


@settings(max_examples=cases(25), deadline=None)
@given(planning_inputs(exact=True))
def test_the_count_after_the_plan_equals_the_count_once_it_is_applied(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    claims = [member.resources for model in fleet.models for group in model.workers for member in group.members]
    # a running share without a memory claim counts with its part of the card's memory, a planned one does not
    assume(all(one.vram or not one.gpus for one in claims) or not any(one.vram for one in claims))
    before = by_key(fleet, inventory, single=True)
    after = by_key(fleet, apply_plan(plan_for(fleet, inventory), fleet, inventory), single=True)
    for model in filter(is_single, fleet.models):
        promised = before[model.key].after_plan
        assert promised is not None
        assert promised.fits == after[model.key].now.fits


@settings(max_examples=cases(12), deadline=None)
@given(planning_inputs())
def test_no_count_exceeds_its_bound_and_a_lower_count_has_a_reason(inputs: PlanningInputs) -> None:
    for row in by_key(*inputs).values():
        for found in filter(None, (row.now, row.after_plan)):
            assert found.fits <= found.at_most
            assert found.code
            assert found.message
            members = sum(equal.members_each * len(equal.nodes) for equal in found.where)
            assert members >= found.fits


def test_a_quota_limits_the_count_and_is_named_with_its_arithmetic() -> None:
    models = [{"key": "m", "replicas": 3, "gpus": 1, "labels": {"team": "a"}},
              {"key": "n", "replicas": 0, "gpus": 2, "labels": {"team": "a"}},
              {"key": "free", "replicas": 0, "gpus": 2}]
    fleet = replace(short_fleet({"models": models}), policy=Policy.model_validate(
        {"quotas": [{"selector": {"team": "a"}, "gpus": 6}]}))
    replicas = [{"model": "m", "id": 0, "node": "a", "gpus": 1}]
    answer = capacity(Scenario(fleet, short_inventory({**TWO_NODES, "replicas": replicas})))
    rows = {row.model: (row.now.fits, row.after_plan.fits, row.after_plan.at_most, row.after_plan.code)
            for row in answer.rows if row.after_plan}
    assert rows == {"m": (5, 3, 3, "QUOTA"), "n": (2, 1, 1, "QUOTA"), "free": (5, 4, 4, "INSUFFICIENT_GPU")}
    after = next(row.after_plan for row in answer.rows if row.model == "n")
    assert after is not None
    assert after.message == "needs 2 GPUs, 1 left of 6 GPUs: 1 live, 4 new; spec.policy.quotas: team=a"


def test_a_quota_of_gpus_counts_the_shares_that_a_claim_of_vram_takes() -> None:
    fleet = replace(short_fleet({"models": [{"key": "m", "replicas": 0, "vram": "60Gi"}]}),
                    policy=Policy.model_validate({"quotas": [{"gpus": 2}]}))
    [row] = capacity(Scenario(fleet, short_inventory(TWO_NODES))).rows
    assert (row.now.fits, row.now.at_most, row.now.code) == (2, 2, "QUOTA")
    assert row.now.message.startswith("needs 0.75 GPU, 0.5 left of 2 GPUs: 0 live, 1.5 new; ")


def test_a_quota_below_one_share_of_a_card_is_the_reason() -> None:
    fleet = replace(short_fleet({"models": [{"key": "m", "replicas": 1, "vram": "60Gi"}]}),
                    policy=Policy.model_validate({"quotas": [{"gpus": 1}]}))
    [row] = capacity(Scenario(fleet, short_inventory(TWO_NODES))).rows
    assert row.after_plan is not None
    assert [(one.fits, one.code, one.message.partition(";")[0]) for one in (row.now, row.after_plan)] == [
        (1, "QUOTA", "needs 0.75 GPU, 0.25 left of 1 GPU: 0 live, 0.75 new"),
        (0, "QUOTA", "needs 0.75 GPU, 0.25 left of 1 GPU: 0 live, 0.75 new")]


@settings(max_examples=cases(60), suppress_health_check=[HealthCheck.too_slow])
@given(planning_inputs(), st.lists(st.fixed_dictionaries({"selector": st.sampled_from([{}, {"team": "a"}])}, optional={
    "gpus": st.sampled_from([0, 0.25, 1, 2, 5]), "replicas": st.integers(0, 6)}).filter(lambda one: len(one) > 1),
    min_size=1, max_size=2))
def test_a_plan_within_quotas_places_as_many_as_were_counted_and_no_more(
    inputs: PlanningInputs, quotas: list[dict[str, Any]]
) -> None:
    fleet, inventory = inputs
    fleet = replace(fleet, policy=Policy.model_validate({"quotas": quotas}), models=tuple(
        replace(one, replicas=0, surge=0, labels={"team": "a"} if number % 2 else {})
        for number, one in enumerate(fleet.models)))
    state = Scenario(fleet, inventory).sorted_out()
    for number, (row, model) in enumerate(zip(capacity(Scenario(fleet, inventory)).rows, fleet.models, strict=True)):
        live = len(state.models[model.key].live)
        wanted = replace(model, replicas=live + row.now.fits + 1)
        plan = plan_for(replace(fleet, models=(*fleet.models[:number], wanted, *fleet.models[number + 1:])), inventory)
        only_vram = any(member.resources.vram and not member.resources.gpus
                        for group in model.workers for member in group.members)
        assert only_vram or plan.models[number].create == row.now.fits, row.now
        assert only_vram or (plan.blocked[0].code == "QUOTA") == (row.now.code == "QUOTA")


def test_variants_are_counted_together_and_each_by_itself() -> None:
    nodes = [{"name": "h", "gpus": 3, "labels": {"pool": "h"}}, {"name": "a", "gpus": 5, "labels": {"pool": "a"}}]
    variants = [{"name": "fast", "gpus": 1, "selector": {"pool": "h"}},
                {"name": "wide", "gpus": 2, "selector": {"pool": "a"}}, {"name": "any", "gpus": 4}]
    fleet = short_fleet({"models": [{"key": "m", "replicas": 1, "variants": variants}]})
    rows = capacity(Scenario(fleet, short_inventory({"nodes": nodes}))).rows
    assert [(row.model, row.variant, row.create, row.now.fits, row.after_plan and row.after_plan.fits)
            for row in rows] == [
        ("m", None, 1, 5, 4), ("m", "fast", 1, 3, 2), ("m", "wide", 0, 2, 2), ("m", "any", 0, 1, 1)]
    assert rows[0].need == "any of fast, wide, any"
    assert (rows[0].now.at_most, rows[0].now.status, rows[0].now.method) == (5, "optimal", "free GPU share")
    assert rows[0].now.message.startswith("neither fast (needs 1 free GPU")
    quota = short_fleet({"models": [{"key": "m", "replicas": 1, "variants": variants}],
                         "policy": {"quotas": [{"gpus": 4}]}})
    limited = capacity(Scenario(quota, short_inventory({"nodes": nodes}))).rows
    assert [row.now.fits for row in limited] == [3, 3, 2, 1]


def test_the_maximum_of_a_variant_limits_how_many_more_of_it_are_counted() -> None:
    nodes = [{"name": "h", "gpus": 6, "labels": {"pool": "h"}}, {"name": "a", "gpus": 5, "labels": {"pool": "a"}}]
    variants = [{"name": "fast", "gpus": 1, "selector": {"pool": "h"}, "max": 4},
                {"name": "wide", "gpus": 2, "selector": {"pool": "a"}}]
    fleet = short_fleet({"models": [{"key": "m", "replicas": 2, "variants": variants}]})
    live = {"model": "m", "id": 0, "node": "h", "variant": "fast"}
    rows = capacity(Scenario(fleet, short_inventory({"nodes": nodes, "replicas": [live]}))).rows
    assert [(row.variant, row.now.fits, row.now.at_most, row.after_plan and row.after_plan.fits) for row in rows] == [
        (None, 5, 5, 4), ("fast", 3, 3, 2), ("wide", 2, 2, 2)]
    assert rows[1].after_plan is not None
    assert (rows[1].after_plan.code, rows[1].after_plan.message) == (
        "VARIANT_FULL", "its maximum of 4 replicas is reached: 1 live and 3 new")
    assert rows[0].now.code == "INSUFFICIENT_GPU"
    [row] = capacity(Scenario(fleet, short_inventory({"nodes": nodes})), limit=4).rows[1:2]
    assert (row.now.fits, row.now.capped, row.now.code) == (4, False, "VARIANT_FULL"), "the limit is no reason for more"


@pytest.mark.parametrize("shape", [{"gpus": 2}, {"gpus": 1, "gang": {"gpus": 1, "workers": 1}}])
@pytest.mark.parametrize(("most", "fits"), [(0, 0), (2, 2), (9, 4)])
def test_a_single_variant_has_one_row_within_its_maximum(shape: dict[str, Any], most: int, fits: int) -> None:
    fleet = short_fleet({"models": [{"key": "m", "replicas": 0, "variants": [{"name": "v", "max": most, **shape}]}]})
    [row] = capacity(Scenario(fleet, short_inventory({"nodes": [{"name": name, "gpus": 2} for name in "abcd"]}))).rows
    assert (row.now.fits, row.now.at_most) == (fits, fits)
    assert (row.now.code == "VARIANT_FULL") == (most == fits)


def test_variants_are_packed_together_where_one_after_the_other_would_be_too_few() -> None:
    """`lean` would fill a, the only node with CPUs for `rich`."""
    nodes = [{"name": "a", "gpus": 2, "cpus": 8}, {"name": "b", "gpus": 2, "cpus": 2}]
    variants = [{"name": "lean", "gpus": 1, "cpus": 1, "max": 2}, {"name": "rich", "gpus": 1, "cpus": 4}]
    fleet = short_fleet({"models": [{"key": "m", "replicas": 0, "variants": variants}]})
    [together, *_] = capacity(Scenario(fleet, short_inventory({"nodes": nodes}))).rows
    assert (together.now.fits, together.now.status) == (4, "optimal")
    assert sum(place.members_each * len(place.nodes) for place in together.now.where) == 4


def test_a_new_node_costs_what_its_type_says() -> None:
    node = {"gpus": 4, "cpus": 8, "memory": "64Gi", "labels": {"pool": "new"}}
    fleet = short_fleet({
        "nodes": [{"price": 8}], "models": [{"key": "m", "replicas": 0, "gpus": 2}],
        "grow": [{"name": "odd name!", "max": 2, "price": 4, "node": node}, {"name": "plain", "max": 2, "node": node}]})
    [row] = capacity(Scenario(fleet, short_inventory({"nodes": [{"name": "a", "gpus": 4}]}))).rows
    assert row.with_new_nodes is not None
    assert {equal.price: equal.nodes for equal in row.with_new_nodes.where} == {
        4_000_000: ["a", "new-plain-1", "new-plain-2"], 2_000_000: ["new-odd name!-1", "new-odd name!-2"]}
