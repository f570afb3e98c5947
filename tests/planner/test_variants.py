"""Properties of plans of models with variants, over random fleets and inventories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from applied import apply_plan
from checker import check_plan
from hypothesis import HealthCheck, given, settings
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for
from simulated import live_replicas

from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.stale import moved_since

many = settings(max_examples=cases(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@many
@given(planning_inputs(variants=True))
def test_every_plan_keeps_all_rules_and_only_creates(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    check_plan(plan, fleet, inventory)
    assert {action.op for action in plan.actions} <= {"create"}
    assert moved_since(plan, inventory) == []


@many
@given(planning_inputs(exact=True, variants=True))
def test_a_plan_after_apply_is_empty(inputs: PlanningInputs) -> None:
    """What one variant lacks to its minimum never makes others grow with every apply."""
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    check_plan(plan, fleet, inventory)
    after = apply_plan(plan, fleet, inventory)
    again = plan_for(fleet, after)
    assert again.actions == []
    assert len(live_replicas(after)) == len(live_replicas(inventory)) + len(plan.actions)
    assert [(one.model, one.replicas) for one in again.blocked] == [(one.model, one.replicas) for one in plan.blocked]


def in_one_variant(model: ResolvedModel) -> ResolvedModel:
    return replace(model, variants=(replace(model, variant="only"),))


def without_names(plan: Plan) -> dict[str, Any]:
    document = plan.model_dump(by_alias=True, mode="json", exclude={"plan_id"})
    for part in (*document["actions"], *document["models"]):
        part.pop("variant", None)
        part.pop("variants", None)
    for drift in document["drift"]:
        drift["message"] = drift["message"].replace(" of variant only", "")
    return document


@many
@given(planning_inputs())
def test_a_model_with_one_variant_is_planned_like_one_without(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    named = [one.model_copy(update={"variant": "only"}) for one in inventory.replicas]
    one_each = replace(fleet, models=tuple(map(in_one_variant, fleet.models)))
    plan = plan_for(one_each, inventory.model_copy(update={"replicas": named}))
    assert {action.variant for action in plan.actions} <= {"only"}
    assert without_names(plan) == without_names(plan_for(fleet, inventory))
