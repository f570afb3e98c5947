"""Pilots: a plan with them is the plan without, of which a spec that never ran starts a few replicas first."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from applied import apply_plan
from checker import check_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.fleet import Pilot
from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.documents.plan import Action, Plan
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.questions.scenario import Scenario

pytestmark = pytest.mark.usefixtures("few_trials")
many = settings(max_examples=cases(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
Pilots = st.builds(lambda replicas, more: Pilot(replicas=replicas, over=replicas + more),
                   st.sampled_from([1, 1, 1, 2]), st.sampled_from([0, 0, 0, 1, 2]))
Spec = tuple[str, "str | None"]


def with_pilot(fleet: ResolvedFleet, pilot: Pilot | None) -> ResolvedFleet:
    return replace(fleet, policy=fleet.policy.model_copy(update={"pilot": pilot}))


def larger(inputs: PlanningInputs) -> PlanningInputs:
    """The same with larger targets and nodes, so that several new replicas of a spec find room."""
    fleet, inventory = inputs
    models = tuple(model.with_changes(replicas=model.replicas + 4) for model in fleet.models)
    nodes = [node.model_copy(update={"resources": node.resources.model_copy(update={
        "total": node.resources.total.model_copy(update={"cpu": 64, "memory": 1 << 40})})}) for node in inventory.nodes]
    return replace(fleet, models=models), inventory.model_copy(update={"nodes": nodes})


Large = planning_inputs().map(larger)


def specs(actions: list[Action]) -> Counter[Spec]:
    return Counter((action.model, action.spec_hash) for action in actions)


def places(actions: list[Action]) -> list[tuple[Any, ...]]:
    return sorted((one.model, one.variant or "", *((m.group, m.copy_index, m.rank, m.node_id, m.gpus, m.slot)
                                                   for m in one.members)) for one in actions)


def that_ran(inventory: Inventory) -> set[Spec]:
    return {(one.model, one.spec_hash) for one in inventory.replicas if one.state == "ALIVE" and one.constructed}


def starting_of(plan: Plan, inventory: Inventory, spec: Spec, variant: str | None) -> int:
    """Our live replicas that start with this spec, or with one that nobody knows."""
    dead = {node.id for node in inventory.nodes if node.state == "DEAD"}
    return sum(one.model == spec[0] and one.state in ("PENDING_CREATION", "RESTARTING") and one.constructed
               and one.fleet == plan.fleet.name and one.replica_id is not None and one.level == "HOT"
               and one.spec_hash in (spec[1], None) and (variant is None or one.variant in (variant, None, "gone"))
               and not dead.intersection(m.node_id for m in one.members) for one in inventory.replicas)


def check_pilots(plan: Plan, inventory: Inventory, pilot: Pilot) -> None:
    now, later = specs(plan.starts), specs(plan.after_pilot)
    variants = {(one.model, one.spec_hash): one.variant for one in plan.all_starts}
    for spec, count in (now + later).items():
        starting = starting_of(plan, inventory, spec, variants[spec])
        needed = spec not in that_ran(inventory) and count + starting > pilot.over
        expected = min(count, max(0, pilot.replicas - starting)) if needed else count
        assert now[spec] == expected, f"{spec}: {count} new, {starting} starting"


@many
@given(Large, Pilots)
def test_a_plan_with_pilots_is_the_plan_without_and_starts_fewer_of_a_spec_that_never_ran(
    inputs: PlanningInputs, pilot: Pilot
) -> None:
    fleet, inventory = inputs
    plan, without = plan_for(with_pilot(fleet, pilot), inventory), plan_for(fleet, inventory)
    check_plan(plan, with_pilot(fleet, pilot), inventory)
    check_pilots(plan, inventory, pilot)
    assert places(plan.all_starts) == places(without.starts)
    assert (plan.blocked, plan.growth, plan.holds, plan.drift) == (
        without.blocked, without.growth, without.holds, without.drift)
    assert plan.certificate.model_copy(update={"after_pilot": 0}) == without.certificate
    if not plan.after_pilot:
        assert plan.model_dump_json() == without.model_dump_json(), "without an effect not a byte differs"


@many
@given(planning_inputs(variants=True).map(larger), Pilots)
def test_each_variant_has_pilots_of_its_own(inputs: PlanningInputs, pilot: Pilot) -> None:
    fleet, inventory = inputs
    plan = plan_for(with_pilot(fleet, pilot), inventory)
    check_plan(plan, with_pilot(fleet, pilot), inventory)
    check_pilots(plan, inventory, pilot)
    assert places(plan.all_starts) == places(plan_for(fleet, inventory).starts)


def applied(plan: Plan, fleet: ResolvedFleet, inventory: Inventory, state: str) -> Inventory:
    """The inventory with what the plan starts now in this state."""
    after = apply_plan(plan, fleet, inventory)
    known = len(inventory.replicas)
    started = [one.model_copy(update={"state": state}) for one in after.replicas[known:]]
    return after.model_copy(update={"replicas": [*after.replicas[:known], *started]})


@many
@given(planning_inputs(exact=True).map(larger), Pilots)
def test_while_pilots_start_nothing_follows_and_once_they_are_ready_all_do(inputs: PlanningInputs, pilot: Pilot
                                                                           ) -> None:
    fleet, inventory = with_pilot(inputs[0], pilot), inputs[1]
    plan = plan_for(fleet, inventory)
    waiting = set(specs(plan.after_pilot))
    while_starting = applied(plan, fleet, inventory, "PENDING_CREATION")
    again = plan_for(fleet, while_starting)
    assert not waiting & specs(again.starts).keys()
    assert specs(again.after_pilot) == specs(plan.after_pilot)
    at_last = plan_for(fleet, ready := applied(plan, fleet, inventory, "ALIVE"))
    check_plan(at_last, fleet, ready)
    piloted = waiting & set(specs(plan.starts))
    assert not piloted & specs(at_last.after_pilot).keys()
    assert {spec: specs(at_last.starts)[spec] for spec in piloted} == {
        spec: specs(plan.after_pilot)[spec] for spec in piloted}


def four(pilot: dict[str, Any], **policy: Any) -> ResolvedFleet:
    return short_fleet({"policy": {"pilot": pilot, **policy}, "models": [
        {"key": "m", "replicas": 4, "gpus": 1, "hash": "one"}]})


def test_all_that_follows_a_pilot_counts_against_the_limits_of_one_plan() -> None:
    plan = plan_for(four({}, maxNewReplicas=3, maxNewGpus=3), short_inventory({"nodes": [{"name": "a", "gpus": 4}]}))
    assert [(one.code, one.found) for one in plan.policy] == [
        ("MAX_NEW_REPLICAS", "creates 4 replicas"), ("MAX_NEW_GPUS", "takes 4 GPUs")]
    assert plan.exit_code == 4


def test_a_replica_that_was_never_constructed_or_restarts_proves_nothing() -> None:
    for state, constructed in (("ALIVE", False), ("RESTARTING", True)):
        inventory = short_inventory({"nodes": [{"name": "a", "gpus": 8}], "replicas": [
            {"model": "m", "id": 0, "node": "a", "state": state, "constructed": constructed, "hash": "one"}]})
        assert plan_for(four({}), inventory).after_pilot, state


def test_a_former_spelling_of_the_hash_is_the_same_spec() -> None:
    fleet = four({})
    fleet = replace(fleet, models=tuple(replace(one, former_hash="former") for one in fleet.models))
    up = Replica(model="m", replica_id=0, fleet="lab", spec_hash="former")
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 8}]}).model_copy(update={"replicas": [up]})
    assert [len(plan_for(fleet, inventory).starts), plan_for(fleet, inventory).after_pilot] == [3, []]


def test_several_pilots_are_on_nodes_of_their_own_if_they_can_be() -> None:
    nodes = [{"name": "a", "gpus": 3}, {"name": "b", "gpus": 1}]
    plan = plan_for(four({"replicas": 2}), short_inventory({"nodes": nodes}))
    assert len(plan.after_pilot) == 2
    assert {one.members[0].node for one in plan.starts} == {"a", "b"}
    three = plan_for(four({"replicas": 3}), short_inventory({"nodes": nodes}))
    assert {one.members[0].node for one in three.starts} == {"a", "b"}
    alone = plan_for(four({"replicas": 2}), short_inventory({"nodes": [{"name": "a", "gpus": 4}]}))
    assert (len(alone.starts), len(alone.after_pilot)) == (2, 2), "on one node both start there"


def test_a_question_is_about_all_that_would_run() -> None:
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 4}]})
    assert len(Scenario(four({}), inventory).plan().starts) == 4


def test_the_breaker_allows_no_more_than_its_own_try() -> None:
    failures = [{"model": "m", "hash": "one", "node": name, "ago": "20m"} for name in "abc"]
    inventory = short_inventory({"nodes": [{"name": name, "gpus": 4} for name in "abc"], "failures": failures})
    plan = plan_for(four({}), inventory)
    assert (len(plan.starts), plan.after_pilot, [one.code for one in plan.blocked]) == (1, [], ["COOLING_DOWN"])


TYPE = {"name": "big", "node": {"gpus": 8, "cpus": 64, "memory": "64Gi", "labels": {"pool": "big"}}, "max": 6}


def growing(replicas: int, pilot: dict[str, Any] | None, *models: dict[str, Any], **more: Any) -> ResolvedFleet:
    return short_fleet({"policy": {"pilot": pilot} if pilot is not None else {}, "grow": [TYPE], **more, "models": [
        {"key": "m", "replicas": replicas, "gpus": 1, "hash": "one"}, *models]})


def requested(plan: Plan) -> list[tuple[int, int]]:
    """Of each type: the nodes that are requested now, and those that follow once a pilot is ready."""
    return [(one.nodes, one.after_pilot) for one in plan.growth]


def on_cards(count: int, *replicas: dict[str, Any]) -> Inventory:
    return short_inventory({"nodes": [{"name": "a", "gpus": count}] if count else [{"name": "head"}],
                            "replicas": [{"model": "m", "node": "a", "hash": "one", "gpus": 1, **one}
                                         for one in replicas]})


def test_nodes_are_requested_for_the_pilot_first_and_for_the_others_once_it_is_ready() -> None:
    fleet, without = growing(40, {}), growing(40, None)
    plan = plan_for(fleet, on_cards(0))
    assert requested(plan) == [(1, 4)]
    [row] = plan.blocked
    assert (row.code, row.on_new_nodes, row.message) == (
        "WAITS_FOR_NODES", 40, "would run on 5 new big nodes (5 of 6), 4 of them once a pilot is ready")
    assert requested(plan_for(without, on_cards(0))) == [(5, 0)]
    assert requested(plan_for(fleet, on_cards(1))) == [(0, 5)], "the pilot has room"
    assert requested(plan_for(fleet, on_cards(1, {"id": 0, "state": "PENDING_CREATION"}))) == [(0, 5)]
    assert requested(plan_for(fleet, on_cards(1, {"id": 0}))) == [(5, 0)], "it is ready"
    assert requested(plan_for(growing(3, {}), on_cards(0))) == [(1, 0)], "as many start without a pilot"
    assert requested(plan_for(growing(4, {"over": 1}), on_cards(2))) == [(0, 1)]
    assert requested(plan_for(growing(40, {"replicas": 9, "over": 9}), on_cards(0))) == [(2, 3)]
    assert requested(plan_for(growing(60, {}), on_cards(0))) == [(1, 5)]
    [row] = plan_for(growing(60, {}), on_cards(0)).blocked
    assert "too few big nodes (6 of 6)" in row.message


def test_the_nodes_of_a_model_that_ran_are_requested_at_once_beside_anothers_pilot() -> None:
    other = {"key": "n", "replicas": 9, "gpus": 1, "hash": "two"}
    fleet = growing(20, {}, other)
    ran = short_inventory({"nodes": [{"name": "a", "gpus": 1}], "replicas": [
        {"model": "n", "id": 0, "node": "a", "hash": "two", "gpus": 1}]})
    assert requested(plan_for(fleet, ran)) == [(2, 2)], "8 of n and the pilot of m; then the other 19"


def test_the_price_and_the_limits_of_a_plan_count_the_nodes_that_follow_a_pilot() -> None:
    kind = {**TYPE, "price": 8}
    limits = growing(40, {}, grow=[kind])
    limits = replace(limits, policy=limits.policy.model_copy(update={"max_new_replicas": 39}))
    plan = plan_for(limits, on_cards(0))
    assert plan.price is not None
    assert plan.price.new_nodes == 5 * 8 * 10 ** 6
    assert [one.code for one in plan.policy] == ["MAX_NEW_REPLICAS"]


def test_each_variant_grows_for_its_own_pilot() -> None:
    small = {"name": "small", "node": {"gpus": 1, "cpus": 8, "memory": "8Gi", "labels": {"pool": "small"}}, "max": 9}
    fleet = short_fleet({"policy": {"pilot": {}}, "grow": [TYPE, small], "models": [
        {"key": "m", "replicas": 16, "variants": [
            {"name": "a", "gpus": 1, "selector": {"pool": "big"}, "hash": "a", "max": 8},
            {"name": "b", "gpus": 1, "selector": {"pool": "small"}, "hash": "b"}]}]})
    assert requested(plan_for(fleet, on_cards(0))) == [(1, 0), (1, 7)]


def _grown(inventory: Inventory, plan: Plan, kinds: list[dict[str, Any]], turn: int) -> Inventory:
    """The inventory with the nodes that the plan requests now."""
    joined = [{"name": f"{kind['name']}-{turn}-{number}", "gpus": kind["node"]["gpus"],
               "labels": kind["node"]["labels"]}
              for kind, row in zip(kinds, plan.growth, strict=True) for number in range(row.nodes)]
    return inventory.model_copy(update={"nodes": [*inventory.nodes, *short_inventory({"nodes": joined}).nodes]})


def test_a_fleet_that_grows_with_pilots_ends_as_without_and_never_starts_too_many_of_an_unknown_spec() -> None:
    draw = random.Random("pilots that grow")
    grew = 0
    for number in range(cases(60)):
        kinds = [{"name": name, "max": draw.randint(1, 6), "node": {
            "gpus": gpus, "cpus": 64, "memory": "64Gi", "labels": {"pool": name}}}
            for name, gpus in (("big", 8), ("mid", 4), ("small", 1))[:draw.randint(1, 3)]]
        pilot = {"replicas": draw.randint(1, 2), "over": draw.randint(2, 4)}
        models: list[dict[str, Any]] = [
            {"key": "m", "replicas": draw.randint(0, 20), "gpus": draw.choice([1, 1, 2]), "hash": "one"},
            {"key": "n", "replicas": draw.randint(0, 9), "hash": "two", "gang": {"gpus": 4, "workers": 1}},
            {"key": "v", "replicas": draw.randint(0, 9), "variants": [
                {"name": "a", "gpus": 2, "hash": "a", "max": draw.randint(1, 4)},
                {"name": "b", "gpus": 1, "hash": "b", "selector": {"pool": draw.choice(["small", "big"])}}]}]
        short = {"grow": kinds, "models": draw.sample(models, draw.randint(1, 3))}
        fleet = short_fleet({**short, "policy": {"pilot": pilot}})
        inventory = short_inventory({"nodes": [{"name": "a", "gpus": draw.choice([1, 4, 8])}]})
        without = plan_for(short_fleet(short), inventory)
        for turn in range(60):
            plan = plan_for(fleet, inventory)
            if not turn:
                assert [one.in_all for one in plan.growth] == [one.nodes for one in without.growth], number
                grew += any(one.after_pilot for one in plan.growth)
            ran = that_ran(inventory)
            for spec, count in specs(plan.starts).items():
                assert spec in ran or count <= pilot["over"], (number, spec)
            before = len(inventory.replicas)
            if not plan.starts and not any(one.nodes for one in plan.growth):
                assert not plan.after_pilot, number
                assert not any(one.after_pilot for one in plan.growth), f"{number}: nothing would ever follow"
                break
            inventory = _grown(applied(plan, fleet, inventory, "ALIVE"), plan, kinds, turn)
            assert len(inventory.replicas) == before + len(plan.starts)
        else:
            raise AssertionError(f"{number}: it does not end")
        assert not any(row.on_new_nodes for row in plan.blocked), number
    assert grew > cases(60) // 10


def test_a_wrong_spec_for_forty_outdated_replicas_starts_once_whatever_the_surge() -> None:
    old = [{"model": "m", "id": number, "node": "a", "hash": "old", "gpus": 1} for number in range(40)]
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 80}], "replicas": old})
    for surge in (1, 3, 4, 40):
        fleet = short_fleet({"policy": {"pilot": {}}, "models": [
            {"key": "m", "replicas": 40, "gpus": 1, "hash": "one", "surge": surge}]})
        plan = plan_for(fleet, inventory)
        assert (len(plan.starts), len(plan.after_pilot)) == ((1, surge - 1) if surge > 3 else (surge, 0))


def test_a_file_that_changes_while_a_pilot_starts_gets_a_pilot_of_its_own() -> None:
    fleet = short_fleet({"policy": {"pilot": {}}, "models": [{"key": "m", "replicas": 9, "gpus": 1, "hash": "two"}]})
    starting = {"model": "m", "id": 0, "node": "a", "hash": "one", "gpus": 1, "state": "PENDING_CREATION"}
    plan = plan_for(fleet, short_inventory({"nodes": [{"name": "a", "gpus": 20}], "replicas": [starting]}))
    assert (len(plan.starts), len(plan.after_pilot)) == (1, 7)


def test_of_two_new_models_and_a_gang_each_has_a_pilot() -> None:
    fleet = short_fleet({"policy": {"pilot": {}}, "models": [
        {"key": "m", "replicas": 5, "gpus": 1, "hash": "one"}, {"key": "n", "replicas": 4, "hash": "two", "gang": {
            "gpus": 2, "workers": 1}}, {"key": "o", "replicas": 3, "gpus": 1, "hash": "three"}]})
    nodes = [{"name": name, "gpus": 8} for name in "abcd"]
    plan = plan_for(fleet, short_inventory({"nodes": nodes}))
    assert specs(plan.starts) == {("m", "one"): 1, ("n", "two"): 1, ("o", "three"): 3}
    lost = {"model": "m", "id": 0, "node": "a", "hash": "one", "gpus": 1, "state": "PENDING_CREATION"}
    dead = short_inventory({"nodes": [{"name": "a", "gpus": 8, "state": "DEAD"}, *nodes[1:]], "replicas": [lost]})
    again = plan_for(fleet, dead)
    assert specs(again.starts)["m", "one"] == 1, "the pilot's node has died: another one starts"
    assert specs(again.after_pilot)["m", "one"] == 4
