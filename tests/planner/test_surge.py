"""Updates: evicting one outdated replica after each plan never leaves fewer than wanted, and terminates."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from applied import apply_plan
from checker import check_plan
from hypothesis import HealthCheck, given, settings
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet

from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.live import ModelState, is_outdated, sort_out
from fleetctl.planner.questions.changes import without_replica

pytestmark = pytest.mark.usefixtures("few_trials")
MOST = 12
[MODEL] = short_fleet({"models": [{"key": "m", "replicas": 0, "gpus": 1, "hash": "new"}]}).models
[NEW, OLD] = [Replica(model="m", spec_hash=spec) for spec in ("new", "old")]
MODELS = [[replace(MODEL, replicas=wanted, surge=surge) for surge in range(4)] for wanted in range(MOST)]


def to_create(wanted: int, current: int, outdated: int, surge: int) -> int:
    return ModelState(live=[NEW] * current + [OLD] * outdated).to_create(MODELS[wanted][surge])


def test_updating_never_leaves_fewer_than_the_target_and_ends_with_all_current() -> None:
    draw = random.Random(12).randrange
    for _ in range(40_000):
        wanted, current, outdated, surge = draw(MOST), draw(MOST), draw(MOST), draw(1, 4)
        least = min(wanted, current + outdated)
        most = max(current + outdated, wanted + min(surge, outdated))
        goal = max(wanted, current)
        while outdated:
            current += to_create(wanted, current, outdated, surge)
            assert wanted <= current + outdated <= most, (wanted, current, outdated, surge)
            outdated -= 1
            assert current + outdated >= least
        current += to_create(wanted, current, outdated, surge)
        assert current == goal
        assert to_create(wanted, current, outdated, surge) == 0, "creations must stop"


def test_without_a_surge_every_live_replica_counts() -> None:
    for wanted, current, outdated in ((w, c, o) for w in range(MOST) for c in range(MOST) for o in range(MOST)):
        assert to_create(wanted, current, outdated, 0) == max(0, wanted - current - outdated)


@settings(max_examples=cases(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(planning_inputs(exact=True))
def test_one_eviction_after_each_plan_updates_all_that_have_room(inputs: PlanningInputs) -> None:
    """With the planner: the live count never falls below min(target, before), and no more are current than planned."""
    fleet, inventory = inputs
    fleet = replace(fleet, models=tuple(replace(model, surge=model.surge or 1) for model in fleet.models))
    before = {key: len(state.live) for key, state in _states(fleet, inventory).items()}
    while True:
        plan = plan_for(fleet, inventory)
        check_plan(plan, fleet, inventory)
        inventory = apply_plan(plan, fleet, inventory)
        stuck = {blocked.model for blocked in plan.blocked}
        states = _states(fleet, inventory)
        ends = [one for model in fleet.models if model.key not in stuck and model.replicas
                for one in states[model.key].live if is_outdated(one, model)]
        if not ends:
            break
        inventory = without_replica(inventory, ends[0])
        for model in fleet.models:
            live = len(_states(fleet, inventory)[model.key].live)
            assert live >= min(model.replicas, before[model.key]), model.key
    final = plan_for(fleet, inventory)
    for model, row in zip(fleet.models, final.models, strict=True):
        if model.replicas and model.key not in {blocked.model for blocked in final.blocked}:
            assert (row.outdated, row.create) == (0, 0)
            assert row.live >= row.wanted


def _states(fleet: ResolvedFleet, inventory: Inventory) -> dict[str, ModelState]:
    return sort_out(inventory, fleet.name, [model.key for model in fleet.models]).models
