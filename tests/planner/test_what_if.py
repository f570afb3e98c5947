"""The plan after nodes are lost, cordoned or added, or a model is scaled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from applied import apply_plan
from hypothesis import HealthCheck, assume, given, settings
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.answers import ModelChange, WhatIf
from fleetctl.errors import FleetctlError, InventoryError, UsageError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.questions.changes import Changes
from fleetctl.planner.questions.scenario import Scenario
from fleetctl.planner.questions.what_if import what_if

NODES = [{"name": name, "gpus": 4, "vram": "80Gi", "labels": {"pool": name[0]}} for name in ("a1", "a2", "b1")]


def ask(fleet: dict[str, Any], inventory: dict[str, Any], *, each_node: bool = False, **supposed: Any) -> WhatIf:
    scenario = Scenario(short_fleet(fleet), short_inventory(inventory))
    return what_if(scenario, Changes(**supposed), each_node=each_node)


def live(model: str, number: int, node: str, gpus: float = 4, **more: Any) -> dict[str, Any]:
    return {"model": model, "id": number, "node": node, "gpus": gpus, **more}


def fate(row: ModelChange) -> tuple[int, int, int, int]:
    return row.lost, row.replaced, row.missing, row.surplus


M = {"key": "m", "replicas": 2, "gpus": 4}


def test_lost_replicas_are_planned_again_on_the_remaining_nodes() -> None:
    answer = ask({"models": [M]}, {"nodes": NODES, "replicas": [live("m", 0, "a1"), live("m", 1, "a2")]},
                 lose=("a1",))
    assert fate(answer.models[0]) == (1, 1, 0, 0)
    assert [(one.model, one.replica_id, one.members[0].node) for one in answer.created] == [("m", 2, "b1")]
    assert (answer.before.live, answer.after.live, answer.exit_code) == (2, 1, 2)


def test_replicas_without_a_place_have_a_reason() -> None:
    answer = ask({"models": [M]}, {"nodes": NODES[:2], "replicas": [live("m", 0, "a1"), live("m", 1, "a2")]},
                 lose=("a1",))
    assert fate(answer.models[0]) == (1, 0, 1, 0)
    assert [(one.model, one.replicas, one.code) for one in answer.blocked] == [("m", 1, "INSUFFICIENT_GPU")]
    assert answer.exit_code == 3


def test_all_nodes_with_a_label_may_be_lost_at_once() -> None:
    running = [live("m", 0, "a1"), live("m", 1, "a2"), live("m", 2, "b1", 2)]
    answer = ask({"models": [{**M, "replicas": 3, "gpus": 2}]}, {"nodes": NODES, "replicas": running}, lose=("pool=a",))
    assert [(one.message, one.nodes) for one in answer.changes] == [("loses a1, a2", ["a1", "a2"])]
    assert fate(answer.models[0]) == (2, 1, 1, 0)
    one_by_one = ask({"models": [M]}, {"nodes": NODES, "replicas": running[:2]}, lose=("a1", "a2"))
    at_once = ask({"models": [M]}, {"nodes": NODES, "replicas": running[:2]}, lose=("pool=in(a, c)",))
    assert at_once.model_copy(update={"changes": one_by_one.changes}) == one_by_one


def test_lost_replicas_beyond_the_target_are_not_missing() -> None:
    answer = ask({"models": [{**M, "replicas": 1}]},
                 {"nodes": NODES[:2], "replicas": [live("m", 0, "a1"), live("m", 1, "a2")]}, lose=("a1",))
    assert fate(answer.models[0]) == (1, 0, 0, 1)
    assert answer.exit_code == 0


def test_a_gang_that_loses_a_node_frees_its_other_nodes() -> None:
    gang = {"key": "g", "replicas": 1, "gang": {"gpus": 4, "workers": 1}}
    inventory = {"nodes": [{**node, "used": {"GPU": 4, "CPU": 0} if node["name"] != "b1" else {"GPU": 0}}
                           for node in NODES],
                 "replicas": [{"model": "g", "id": 0, "nodes": ["a1", "a2"], "gpus": 4}]}
    answer = ask({"models": [gang]}, inventory, lose=("a1",))
    assert fate(answer.models[0]) == (1, 1, 0, 0)
    assert {member.node for member in answer.created[0].members} == {"a2", "b1"}


def test_a_gang_that_loses_two_nodes_frees_the_third_once() -> None:
    gang = {"key": "g", "replicas": 1, "gang": {"gpus": 2, "workers": 2}}
    inventory = {"nodes": [{**node, "used": {"GPU": 4}} for node in NODES],
                 "replicas": [{"model": "g", "id": 0, "nodes": ["a1", "a2", "b1"], "gpus": 2}]}
    fleet = {"models": [gang, {"key": "m", "replicas": 1, "gpus": 4}]}
    answer = ask(fleet, inventory, lose=("a1", "a2"))
    assert answer.after.create == 0, "a foreign actor holds 2 of the 4 GPUs of b1"
    assert ask({"models": [gang, {"key": "m", "replicas": 1, "gpus": 2}]}, inventory, lose=("a1", "a2")
               ).after.create == 1


def test_a_cordon_keeps_running_replicas_and_takes_no_new_ones() -> None:
    answer = ask({"models": [M]}, {"nodes": NODES[:2], "replicas": [live("m", 0, "a1")]}, cordon=("a2",))
    assert fate(answer.models[0]) == (0, 0, 0, 0)
    assert answer.blocked[0].code in {"CORDONED", "INSUFFICIENT_GPU"}
    assert (answer.before.create, answer.after.create) == (1, 0)


@pytest.mark.parametrize("typed", ["pool=a", "pool=!b", "pool=in(a, z)"])
def test_a_cordon_takes_a_selector(typed: str) -> None:
    answer = ask({"models": [M]}, {"nodes": NODES}, cordon=(typed,))
    assert answer.changes[0].nodes == ["a1", "a2"]
    assert (answer.before.create, answer.after.create) == (2, 1)


def test_a_hypothetical_cordon_is_named_by_its_flag() -> None:
    answer = ask({"models": [M]}, {"nodes": NODES[:1]}, cordon=("a1",))
    document = answer.model_dump_json()
    assert "--cordon" in document
    assert "spec.nodes" not in document


def test_a_new_node_makes_room() -> None:
    answer = ask({"models": [{**M, "replicas": 5}]}, {"nodes": NODES}, add=("like:a1 x2",))
    assert (answer.before.blocked, answer.after.blocked) == (2, 0)
    assert answer.changes[0].nodes == ["new-1", "new-2"]


def test_replicas_added_by_scaling_do_not_count_as_lost() -> None:
    inventory = {"nodes": NODES, "replicas": [live("m", 0, "a1"), live("m", 1, "a2")]}
    answer = ask({"models": [M]}, inventory, lose=("a1",), scale=("m=5",))
    assert fate(answer.models[0]) == (1, 1, 0, 0)
    assert answer.after.blocked == 3


def test_a_smaller_target_removes_nothing() -> None:
    answer = ask({"models": [M]}, {"nodes": NODES, "replicas": [live("m", 0, "a1"), live("m", 1, "a2")]},
                 scale=("m=0",))
    assert (answer.before.live, answer.after.live) == (2, 2)


def test_all_changes_apply_in_whatever_order_they_are_given() -> None:
    answer = ask({"models": [M]}, {"nodes": NODES[:1]}, lose=("new-1",), add=("like:a1 x2",))
    assert (answer.before.create, answer.after.create) == (1, 2)


def test_unmanaged_replicas_that_would_be_lost_are_named() -> None:
    foreign = {"model": "x", "foreign": "ab:ModelActor:x", "node": "a1", "fleet": None}
    answer = ask({"models": [M]}, {"nodes": NODES, "replicas": [foreign, live("n", 3, "a1", 1, fleet="other")]},
                 lose=("a1",))
    assert answer.unmanaged_lost == ["n/3", "ab:ModelActor:x"]


@pytest.mark.parametrize(("supposed", "message"), [
    ({"lose": ("a3",)}, "did you mean a"), ({"cordon": ("c1",)}, "did you mean"),
    ({"cordon": ("pool=c",)}, "did you mean pool="), ({"lose": ("pool=c",)}, "did you mean pool="),
    ({"scale": ("mm=1",)}, "did you mean m?"), ({"scale": ("m",)}, "MODEL=N"), ({"scale": ("m=-1",)}, "MODEL=N"),
    ({"scale": ("m=9999999",)}, "100000"), ({"scale": ("m=0000001999999",)}, "100000"),
    ({"cordon": ("pool=[",)}, "selector"), ({}, "--lose-node"),
    ({"add": ("like:a9",)}, "did you mean a"),
])
def test_an_invalid_change_is_an_error_with_a_hint(supposed: dict[str, Any], message: str) -> None:
    with pytest.raises(FleetctlError) as caught:
        ask({"models": [M]}, {"nodes": NODES}, **supposed)
    assert isinstance(caught.value, UsageError) != message.startswith("did you mean")
    assert message in f"{caught.value.message} {caught.value.hint}"


def test_an_ambiguous_node_name_is_refused() -> None:
    nodes = [{**NODES[0], "id": "x"}, {**NODES[0], "id": "y"}]
    with pytest.raises(UsageError, match="2 nodes have this name"):
        ask({"models": [M]}, {"nodes": nodes}, lose=("a1",))
    assert ask({"models": [M]}, {"nodes": nodes}, lose=("y",)).after.create == 1


def test_an_incomplete_inventory_is_refused() -> None:
    with pytest.raises(InventoryError):
        ask({"models": [M]}, {"nodes": NODES, "complete": False}, lose=("a1",))


def test_the_answer_does_not_change_the_scenario() -> None:
    inventory = short_inventory({"nodes": NODES, "replicas": [live("m", 0, "a1")]})
    before = inventory.model_dump_json()
    what_if(Scenario(short_fleet({"models": [M]}), inventory), Changes(lose=("a1",), cordon=("a2",), add=("like:a1",)))
    assert inventory.model_dump_json() == before


def alone(fleet: ResolvedFleet) -> bool:
    """Return whether every model fits on one node, as any of its variants."""
    return all(len(one.workers) == 1 and one.workers[0].copies == 1 and len(one.workers[0].members) == 1
               for model in fleet.models for one in model.alternatives)


@pytest.mark.usefixtures("few_trials")
@settings(max_examples=cases(15), deadline=None)
@given(planning_inputs() | planning_inputs(variants=True))
def test_losing_a_node_equals_planning_without_it(inputs: PlanningInputs) -> None:
    """The independent answer: plan on an inventory without the node and its replicas."""
    fleet, inventory = inputs
    for node in [node for node in inventory.nodes if node.state != "DEAD"][:2]:
        answer = what_if(Scenario(fleet, inventory), Changes(lose=(node.id,)))
        bare = inventory.model_copy(update={
            "nodes": [one for one in inventory.nodes if one.id != node.id],
            "replicas": [one for one in inventory.replicas if all(m.node_id != node.id for m in one.members)]})
        plan = plan_for(fleet, bare)
        found = {row.key: (row.after.live, row.after.create, row.after.blocked) for row in answer.models}
        assert found == {row.key: (row.live, row.create, row.blocked) for row in plan.models}
        of_each = {row.key: [(one.name, one.live + one.create) for one in row.variants] for row in plan.models}
        assert of_each == {row.key: [(one.name, one.after) for one in row.variants] for row in answer.models}
        for row in answer.models:
            assert row.lost == row.replaced + row.missing + row.surplus


@pytest.mark.usefixtures("few_trials")
@settings(max_examples=cases(15), deadline=None,
          suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(planning_inputs(exact=True) | planning_inputs(exact=True, variants=True))
def test_each_node_agrees_with_losing_that_node(inputs: PlanningInputs) -> None:
    drawn, inventory = inputs
    fleet = replace(drawn, models=tuple(one.with_changes(surge=0) for one in drawn.models))  # every live replica counts
    keys = {model.key for model in fleet.models}
    # No claim of another fleet may end with a node.
    assume(all(one.fleet in (fleet.name, None) or one.model not in keys for one in inventory.replicas))
    plan = plan_for(fleet, inventory)
    assume(alone(fleet) or not plan.blocked)  # resources freed by a lost gang may help a blocked replica
    settled = Scenario(fleet, apply_plan(plan, fleet, inventory))
    losses = what_if(settled, Changes(), each_node=True).each_node or []
    ids = {node.name: node.id for node in inventory.nodes}
    by_node = {name: {one.model: (one.lost, one.replaced, one.missing, one.surplus) for one in loss.models}
               for loss in losses for name in loss.nodes}
    assert set(by_node) == {node.name for node in inventory.nodes if node.state != "DEAD"}
    for name, models in by_node.items():
        answer = what_if(settled, Changes(lose=(ids[name],)))
        assert models == {row.key: fate(row) for row in answer.models if row.lost}


def test_equal_nodes_share_one_row_and_the_worst_come_first() -> None:
    nodes = [{"name": f"n{number}", "gpus": 4} for number in range(6)]
    replicas = [live("m", number, f"n{number}") for number in range(4)]
    replicas += [live("big", 0, "n4", 4), live("tiny", 0, "n5", 1)]
    fleet = {"models": [{"key": "m", "replicas": 4, "gpus": 4}, {"key": "big", "replicas": 1, "gpus": 4},
                        {"key": "tiny", "replicas": 1, "gpus": 1}]}
    losses = ask(fleet, {"nodes": nodes, "replicas": replicas}, each_node=True).each_node
    assert losses is not None
    assert [loss.nodes for loss in losses] == [["n0", "n1", "n2", "n3"], ["n4"], ["n5"]]
    assert [loss.models[0].code for loss in losses] == ["INSUFFICIENT_GPU"] * 3


def test_each_node_counts_with_the_plan_applied() -> None:
    answer = ask({"models": [{**M, "replicas": 1}]}, {"nodes": NODES[:2]}, each_node=True)
    assert answer.each_node is not None
    lost = {name: [(model.lost, model.replaced) for model in loss.models]
            for loss in answer.each_node for name in loss.nodes}
    assert sorted(lost.values()) == [[], [(1, 1)]]
    assert answer.exit_code == 2


def test_each_node_frees_the_other_nodes_of_a_gang() -> None:
    gang = {"key": "g", "replicas": 1, "gang": {"gpus": 4, "workers": 1}}
    inventory = {"nodes": [{**node, "used": {"GPU": 4 if node["name"] != "b1" else 0}} for node in NODES],
                 "replicas": [{"model": "g", "id": 0, "nodes": ["a1", "a2"], "gpus": 4}]}
    losses = ask({"models": [gang]}, inventory, each_node=True).each_node or []
    assert {name: [(one.lost, one.replaced, one.missing) for one in loss.models]
            for loss in losses for name in loss.nodes} == {"a1": [(1, 1, 0)], "a2": [(1, 1, 0)], "b1": []}


@pytest.mark.parametrize("owner", [{"model": "gone"}, {"model": "theirs", "fleet": "other"}])
def test_each_node_frees_the_other_nodes_of_an_unmanaged_gang(owner: dict[str, Any]) -> None:
    inventory = {"nodes": [{"name": name, "gpus": 4} for name in ("a1", "a2")],
                 "replicas": [{**owner, "id": 0, "nodes": ["a1", "a2"], "gpus": 2, "cards": [0, 1]},
                              {"model": "m", "id": 0, "node": "a1", "gpus": 2, "cards": [2, 3]},
                              {"model": "m", "id": 1, "node": "a2", "gpus": 2, "cards": [2, 3]}]}
    fleet = {"models": [{"key": "m", "replicas": 2, "gpus": 2}]}
    assert fate(ask(fleet, inventory, lose=("a1",)).models[0]) == (1, 1, 0, 0)
    losses = ask(fleet, inventory, each_node=True).each_node or []
    assert {name: [(one.lost, one.replaced, one.missing) for one in loss.models]
            for loss in losses for name in loss.nodes} == {"a1": [(1, 1, 0)], "a2": [(1, 1, 0)]}


def test_a_node_whose_loss_leaves_replicas_without_a_place_is_exit_3() -> None:
    inventory = {"nodes": NODES[:2], "replicas": [live("m", 0, "a1"), live("m", 1, "a2")]}
    assert ask({"models": [M]}, inventory, each_node=True).exit_code == 3


def test_the_answer_says_what_the_fleet_costs_before_and_after() -> None:
    policies = [{"selector": {"pool": "a"}, "price": 8}, {"selector": {"pool": "b"}, "price": 2}]
    seen = {"nodes": NODES, "replicas": [live("m", 0, "a1")]}

    def totals(answer: WhatIf) -> tuple[int, int, int]:
        assert answer.price
        return answer.price.before.total, answer.price.after.total, answer.price.after.unpriced

    on_b = {**M, "selector": {"pool": "in(a, b)"}, "replicas": 1}
    assert totals(ask({"models": [on_b], "nodes": policies}, seen, scale=("m=3",))) == (8_000_000, 18_000_000, 0)
    assert totals(ask({"models": [on_b], "nodes": policies[1:]}, seen, lose=("a1",)))[0] == 0
    assert ask({"models": [M]}, seen, lose=("a1",)).price is None


def test_the_loss_of_a_node_is_made_up_for_by_another_variant() -> None:
    nodes = [{"name": "h1", "gpus": 2, "labels": {"pool": "h"}}, {"name": "a1", "gpus": 8, "labels": {"pool": "a"}},
             {"name": "b1", "gpus": 8, "labels": {"pool": "b"}}]
    variants = [{"name": "h", "gpus": 1, "selector": {"pool": "h"}},
                {"name": "a", "gpus": 2, "selector": {"pool": "a"}}]
    fleet = short_fleet({"models": [{"key": "m", "replicas": 2, "variants": variants}]})
    answer = what_if(Scenario(fleet, short_inventory({"nodes": nodes})), Changes(), each_node=True)
    lost = {loss.nodes[0]: [(one.lost, one.replaced, one.missing) for one in loss.models] for loss in answer.each_node}
    assert lost["h1"] == [(2, 2, 0)]
    assert answer.exit_code != 3
    one_more = [variants[0], {**variants[1], "max": 1}]
    limited = short_fleet({"models": [{"key": "m", "replicas": 2, "variants": one_more}]})
    answer = what_if(Scenario(limited, short_inventory({"nodes": nodes})), Changes(), each_node=True)
    lost = {loss.nodes[0]: [(one.lost, one.replaced, one.missing) for one in loss.models] for loss in answer.each_node}
    assert lost["h1"] == [(2, 1, 1)]
    kept = [{**variants[0], "max": 1}, variants[1]]
    seen = {"nodes": nodes, "replicas": [live("m", 0, "h1", 1, hash="x", variant="h"),
                                         live("m", 1, "a1", 2, hash="y", variant="a")]}
    full = Scenario(short_fleet({"models": [{"key": "m", "replicas": 2, "variants": kept}]}), short_inventory(seen))
    [of_a1] = [loss.models for loss in what_if(full, Changes(), each_node=True).each_node or [] if "a1" in loss.nodes]
    assert [(one.replaced, one.missing) for one in of_a1] == [(0, 1)], "h is at its maximum"
    assert "its maximum of 1 replica is reached" in of_a1[0].message


TWO_WAYS = [{"name": "h", "gpus": 1, "selector": {"pool": "h"}}, {"name": "a", "gpus": 2, "selector": {"pool": "a"}}]
POOLS = [{"name": "h1", "gpus": 2, "labels": {"pool": "h"}}, {"name": "h2", "gpus": 1, "labels": {"pool": "h"}},
         {"name": "a1", "gpus": 8, "labels": {"pool": "a"}}]


def test_what_would_run_as_another_variant_is_counted_for_each_variant() -> None:
    fleet = {"models": [{"key": "m", "replicas": 3, "variants": TWO_WAYS}]}
    seen = {"nodes": POOLS, "replicas": [live("m", number, "h1", 1, variant="h", hash="x") for number in (0, 1)]}
    answer = ask(fleet, seen, lose=("h1",), each_node=True)
    assert [(one.name, one.before, one.after) for one in answer.models[0].variants] == [("h", 3, 1), ("a", 0, 2)]
    assert fate(answer.models[0]) == (2, 2, 0, 0)
    [of_h2] = [loss.models for loss in answer.each_node or [] if "h2" in loss.nodes]
    assert [(one.name, one.lost, one.replaced) for one in of_h2[0].variants] == [("h", 1, 0), ("a", 0, 1)]
    cordoned = ask(fleet, seen, cordon=("h2",))
    assert [(one.name, one.before, one.after) for one in cordoned.models[0].variants] == [("h", 3, 2), ("a", 0, 1)]


def test_nodes_with_different_variants_of_a_model_are_not_equal() -> None:
    nodes = [{"name": name, "gpus": 2} for name in ("n1", "n2")]
    ways = [{"name": "a", "gpus": 2}, {"name": "b", "gpus": 2, "min": 1, "selector": {"none": "here"}}]
    seen = {"nodes": nodes, "replicas": [live("m", number, f"n{number + 1}", 2, variant=name, hash=name)
                                         for number, name in enumerate("ab")]}
    losses = ask({"models": [{"key": "m", "replicas": 2, "variants": ways}]}, seen, each_node=True).each_node or []
    assert sorted(loss.nodes for loss in losses) == [["n1"], ["n2"]]


def test_a_lost_replica_that_only_the_minimum_of_its_variant_needs_is_not_beyond_the_target() -> None:
    ways = [TWO_WAYS[0], {**TWO_WAYS[1], "min": 1}]
    fleet = {"models": [{"key": "m", "replicas": 2, "variants": ways}]}
    running = [*(live("m", number, "h1", 1, variant="h", hash="x") for number in (0, 1)),
               live("m", 2, "a1", 2, variant="a", hash="y")]
    answer = ask(fleet, {"nodes": [*POOLS, {**POOLS[2], "name": "a2"}], "replicas": running}, lose=("a1",))
    assert fate(answer.models[0]) == (1, 1, 0, 0)
    answer = ask(fleet, {"nodes": POOLS, "replicas": running}, lose=("a1",))
    assert fate(answer.models[0]) == (1, 0, 1, 0)


def test_more_replicas_than_the_variants_allow_are_blocked_with_the_maximum() -> None:
    only = [{**TWO_WAYS[0], "max": 1}]
    answer = ask({"models": [{"key": "m", "replicas": 1, "variants": only}]}, {"nodes": POOLS}, scale=("m=3",))
    assert [(one.replicas, one.code) for one in answer.blocked] == [(2, "VARIANT_FULL")]
