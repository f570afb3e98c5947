"""Properties of every plan, over random fleets and inventories."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from applied import check_that_one_apply_is_enough
from checker import check_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for

from fleetctl.documents.inventory import Inventory
from fleetctl.planner.stale import moved_since

many = settings(max_examples=cases(60), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
some = settings(many, max_examples=cases(25))


@many
@given(planning_inputs())
def test_every_plan_keeps_all_rules(inputs: PlanningInputs) -> None:
    """No removal, over-commitment or partial gang; missing replicas are placed or explained; bound >= placed."""
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    check_plan(plan, fleet, inventory)
    assert {action.op for action in plan.actions} <= {"create"}


@many
@given(planning_inputs(exact=True))
def test_a_plan_after_apply_is_empty(inputs: PlanningInputs) -> None:
    check_that_one_apply_is_enough(*inputs)


@some
@given(planning_inputs(), st.integers(0, 1000))
def test_the_order_of_the_inventory_does_not_matter(inputs: PlanningInputs, seed: int) -> None:
    fleet, inventory = inputs
    random = Random(seed)
    nodes, replicas = list(inventory.nodes), list(inventory.replicas)
    random.shuffle(nodes)
    random.shuffle(replicas)
    shuffled = inventory.model_copy(update={"nodes": nodes, "replicas": replicas})
    assert plan_for(fleet, shuffled).model_dump_json() == plan_for(fleet, inventory).model_dump_json()


@some
@given(planning_inputs())
def test_equal_input_gives_equal_bytes(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    again = Inventory.model_validate_json(inventory.model_dump_json(by_alias=True))
    assert plan_for(fleet, inventory).model_dump_json() == plan_for(fleet, again).model_dump_json()


@some
@given(planning_inputs(), st.integers(0, 4))
def test_lowering_targets_creates_less_and_removes_nothing(inputs: PlanningInputs, target: int) -> None:
    fleet, inventory = inputs
    models = tuple(replace(model, replicas=min(target, model.replicas)) for model in fleet.models)
    lowered = replace(fleet, models=models)
    plan = plan_for(lowered, inventory)
    check_plan(plan, lowered, inventory)
    assert plan.summary.live == plan_for(fleet, inventory).summary.live


@some
@given(planning_inputs())
def test_a_fresh_plan_is_never_stale(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    assert moved_since(plan_for(fleet, inventory), inventory) == []
