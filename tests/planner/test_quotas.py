"""Quotas on random fleets: totals hold, replicas blocked by a quota would exceed it, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from checker import check_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.families import BLIND, FAMILIES
from oracle.with_variants import draw_variants
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.fleet import Policy, Quota
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.pack import Packing
from fleetctl.planner.quotas import Quotas, pack_within

TEAMS: list[dict[str, str]] = [{}, {"team": "a"}, {"team": "b"}, {"team": "a", "tier": "t"}]
SELECTORS: list[dict[str, str]] = [{}, {"team": "a"}, {"team": "!a"}, {"team": "in(a, b)"}, {"tier": "t"}]
limits = st.fixed_dictionaries({"selector": st.sampled_from(SELECTORS)}, optional={
    "gpus": st.sampled_from([0, 0.25, 1, 2, 5]), "replicas": st.integers(0, 6)}).filter(lambda one: len(one) > 1)


def holds(quota: Quota, labels: Any) -> bool:
    """An independent implementation of selectors."""
    allowed = {"a": {"a"}, "!a": {"b", None}, "in(a, b)": {"a", "b"}, "t": {"t"}}
    return all(labels.get(key) in allowed[value] for key, value in quota.selector.items())


def totals(quota: Quota, fleet: ResolvedFleet, inventory: Inventory, plan: Plan) -> tuple[int, int, int]:
    """The new replicas, all replicas and all GPUs of the models of a quota."""
    keys = {model.key for model in fleet.models if holds(quota, model.labels)}
    state = sort_out(inventory, fleet.name, {model.key for model in fleet.models})
    live = [replica for key in keys for replica in state.models[key].live]
    new = [action for action in plan.actions if action.model in keys]
    held = [member.gpus for replica in live for member in replica.members]
    return len(new), len(live) + len(new), sum(held) + sum(member.gpus for one in new for member in one.members)


@settings(max_examples=cases(60), suppress_health_check=[HealthCheck.too_slow])
@given(planning_inputs(), st.lists(limits, min_size=1, max_size=3), st.data())
def test_no_plan_exceeds_a_quota_and_replicas_blocked_by_one_would_exceed_it(
    inputs: PlanningInputs, quotas: list[dict[str, Any]], data: st.DataObject
) -> None:
    fleet, inventory = inputs
    labelled = tuple(replace(model, labels=data.draw(st.sampled_from(TEAMS))) for model in fleet.models)
    fleet = replace(fleet, models=labelled, policy=Policy.model_validate({"quotas": quotas}))
    plan = plan_for(fleet, inventory)
    check_plan(plan, fleet, inventory)
    models = {model.key: model for model in fleet.models}
    for quota in fleet.policy.quotas:
        new, replicas, gpus = totals(quota, fleet, inventory, plan)
        assert not new or quota.replicas is None or replicas <= quota.replicas
        assert new == _without_gpus(quota, fleet, plan) or quota.gpus is None or gpus <= quota.gpus
    for blocked in plan.blocked:
        if blocked.code == "QUOTA":
            assert any(_is_over(quota, models[blocked.model], totals(quota, fleet, inventory, plan))
                       for quota in fleet.policy.quotas if holds(quota, models[blocked.model].labels))


def _without_gpus(quota: Quota, fleet: ResolvedFleet, plan: Plan) -> int:
    """The number of new replicas without GPUs: they are allowed even if running ones are over the quota's GPUs."""
    keys = {model.key for model in fleet.models if holds(quota, model.labels)}
    return sum(one.model in keys and not any(member.gpus for member in one.members) for one in plan.actions)


def _is_over(quota: Quota, model: Any, after: tuple[int, int, int]) -> bool:
    _, replicas, gpus = after
    shape = replica_shape(model)
    some = any(not member.claim.gpus and member.claim.vram for group in shape.groups for member in group.members)
    most = shape.gpu_units + 10_000 * shape.size * some  # a claim of only VRAM takes at most one card
    return (quota.replicas is not None and replicas + 1 > quota.replicas) or (
        quota.gpus is not None and gpus + most > quota.gpus)


@settings(max_examples=cases(20), suppress_health_check=[HealthCheck.too_slow])
@given(planning_inputs())
def test_a_quota_that_is_never_reached_changes_nothing(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    wide = replace(fleet, policy=Policy.model_validate({"quotas": [{"gpus": 10_000, "replicas": 1_000_000}]}))
    assert plan_for(wide, inventory) == plan_for(fleet, inventory)


def test_replicas_without_room_that_are_also_over_a_quota_have_both_reasons() -> None:
    fleet = short_fleet({"policy": {"quotas": [{"gpus": 6}]}, "models": [{"key": "m", "replicas": 9, "gpus": 1}]})
    (blocked,) = plan_for(fleet, short_inventory({"nodes": [{"name": "a", "gpus": 4}]})).blocked
    assert (blocked.code, blocked.replicas) == ("INSUFFICIENT_GPU", 5)
    assert blocked.message.endswith("; a quota leaves 2 of these 5")


def test_new_replicas_of_lower_priority_leave_their_quota_to_one_that_only_lacks_room() -> None:
    for priority, code in ((1, "INSUFFICIENT_GPU"), (0, "QUOTA"), (-1, "QUOTA")):
        small, big = {"key": "small", "replicas": 2, "gpus": 1}, {"key": "big", "replicas": 1, "gpus": 8}
        fleet = short_fleet({"policy": {"quotas": [{"gpus": 8}]}, "models": [small, {**big, "priority": priority}]})
        (blocked,) = plan_for(fleet, short_inventory({"nodes": [{"name": "a", "gpus": 4}]})).blocked
        assert blocked.code == code
        assert ("quota" in blocked.message) is (code == "QUOTA")


def test_a_bound_that_is_not_reached_before_others_get_the_quota_still_counts() -> None:
    fleet = short_fleet({"policy": {"quotas": [{"replicas": 6}]}, "models": [
        {"key": key, "replicas": 5, "gpus": 1, "priority": priority} for key, priority in (("m", 1), ("n", 0))]})
    shapes = {model.key: replica_shape(model) for model in fleet.models}
    demands = [Demand(shapes[model.key], 5, 0, model.priority, place) for place, model in enumerate(fleet.models)]

    def packed(asked: Sequence[Demand]) -> Packing:
        placed = [Placed(one, ()) for one in asked for _ in range(min(one.missing, 2 if one.place == 0 else 5))]
        everything = len(placed) == sum(one.missing for one in asked)
        return Packing(placed, len(placed)) if everything else Packing(placed, len(placed) + 1, "slots")

    quotas = Quotas(fleet, sort_out(short_inventory({}), fleet.name, shapes))
    found = pack_within(quotas, demands, packed, lambda: None)
    assert [one.missing for one in found.asked] == [2, 4]
    assert (len(found.packing.placed), found.packing.bound, found.packing.method) == (6, 7, "slots")


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - BLIND))
def test_what_a_quota_leaves_goes_to_a_variant_that_is_small_enough(family: str) -> None:
    """Random fleets with variants and their minimums: `check_plan` finds no room for what is blocked."""
    for seed in range(cases(8)):
        fleet, inventory = draw_variants(family, seed)
        draw = Random(f"quotas {family} {seed}")
        quota = draw.choice([{"replicas": draw.randint(1, 12)}, {"gpus": draw.randint(1, 16)}])
        fleet = replace(fleet, policy=Policy.model_validate({"quotas": [quota]}))
        plan = plan_for(fleet, inventory)
        check_plan(plan, fleet, inventory)
        assert len(plan.actions) <= quota.get("replicas", len(plan.actions))
        assert sum(member.gpus for one in plan.actions for member in one.members) <= quota.get("gpus", 999) * 10_000
