"""The remedies in a plan work: nodes to add and replicas to end; and the counted amounts exist."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from absence import extended, name_of, without
from applied import apply_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory
from simulated import SimNode, live_replicas, selects, simulate

from fleetctl.documents.fleet import Spread
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Blocked, Plan
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel


@st.composite
def crowded(draw: st.DrawFn) -> PlanningInputs:
    """Return a nearly full cluster: replicas on one or two nodes, and gangs and shares that do not fit."""
    nodes = [{"name": f"n{number}", "gpus": 4, "cpus": 16, "labels": {"fabric": draw(st.sampled_from("xxy"))}}
             for number in range(draw(st.integers(2, 4)))]
    replicas: list[dict[str, Any]] = []
    free = {node["name"]: [0, 1, 2, 3] for node in nodes}
    for number in range(draw(st.integers(2, 9))):
        on = draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=2, unique=True))
        cards = next((free[on[0]][:size] for size in (draw(st.integers(1, 3)), 1)
                      if all(free[name][:size] == free[on[0]][:size] and len(free[name]) >= size for name in on)), None)
        if cards:
            for name in on:
                free[name] = [card for card in free[name] if card not in cards]
            replicas.append({"model": draw(st.sampled_from(["low", "same", "high", "unlisted"])), "id": number,
                             "nodes": on, "gpus": len(cards), "cards": cards, "cpus": draw(st.sampled_from([0, 1, 5])),
                             "fleet": draw(st.sampled_from(["lab", "lab", "lab", "prod", None]))})
    waiting: dict[str, Any] = draw(st.sampled_from([
        {"gpus": 3}, {"gpus": 4, "cpus": 2}, {"gpus": 0.6}, {"gpus": 1, "cpus": 12},
        {"gang": {"gpus": 3, "workers": 1}}, {"gang": {"gpus": 4, "workers": 2}},
        {"gang": {"gpus": 2, "workers": 3}, "ranksPerNode": 2},
        {"gang": {"gpus": 4, "workers": 1}, "sameLabel": "fabric"}, {"gpus": 2, "copies": 3},
        {"gpus": 3, "copies": 2, "sameLabel": {"label": "fabric", "scope": "replica"}},
        {"gang": {"gpus": 2, "workers": 1}, "copies": 2, "sameLabel": {"label": "fabric", "scope": "replica"}},
    ]))
    models = [{"key": "waiting", "replicas": draw(st.integers(1, 3)), "priority": 3, **waiting}]
    models += [{"key": key, "replicas": draw(st.integers(0, 4)), "priority": priority,
                "gpus": draw(st.sampled_from([1, 2]))}
               for key, priority in (("low", 0), ("same", 3), ("high", 6))]
    return short_fleet({"models": models}), short_inventory({"nodes": nodes, "replicas": replicas})


crowded_or_not = st.one_of(planning_inputs(exact=True), crowded(), crowded())
many = settings(max_examples=cases(20), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def _explained(plan: Plan, fleet: ResolvedFleet) -> list[tuple[Blocked, ResolvedModel]]:
    models = {model.key: model for model in fleet.models}
    return [(blocked, models[blocked.model]) for blocked in plan.blocked if blocked.code != "CLAIMED_BY_FLEET"]


def _would_create(fleet: ResolvedFleet, model: ResolvedModel, inventory: Inventory, more: int) -> int:
    """Return how many of `more` replicas of one model are placed if the fleet has no other model."""
    counted = [replica for replica in live_replicas(inventory)
               if replica.model == model.key and replica.fleet == fleet.name and replica.level == "HOT"]
    alone = replace(fleet, models=(replace(model, replicas=len(counted) + more, surge=0),))
    return len(plan_for(alone, inventory).actions)


def _size(model: ResolvedModel) -> int:
    return sum(group.copies * (member.count or 1) for group in model.workers for member in group.members)


@many
@given(crowded_or_not)
def test_without_the_replicas_in_the_way_one_more_fits(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    for blocked, model in _explained(plan, fleet):
        if not blocked.make_room:
            continue
        ended = {one.replica for one in blocked.make_room}
        assert model.key not in {one.model for one in blocked.make_room if one.owner == "fleet"}
        assert _would_create(fleet, model, _after(plan, fleet, inventory, ended), 1) == 1


@many
@given(crowded_or_not)
def test_on_one_node_no_smaller_set_of_replicas_makes_room(inputs: PlanningInputs) -> None:
    """For models of one member: neither replicas of an earlier step nor a smaller set of the same step would help."""
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    priorities = {model.key: model.priority for model in fleet.models}
    for blocked, model in _explained(plan, fleet):
        if not blocked.make_room or _size(model) > 1:
            continue
        needed = {one.replica for one in blocked.make_room if not one.surplus}
        spare = all(one.owner == "fleet" and (one.surplus or (one.priority or 0) < model.priority)
                    for one in blocked.make_room)
        if not spare:
            continue
        others = [action.id for action in plan.actions if priorities[action.model] < model.priority]
        others += [name_of(replica) for replica in live_replicas(inventory)
                   if replica.fleet == fleet.name and replica.replica_id is not None
                   and priorities.get(replica.model, 0) < model.priority]
        names = sorted({*others, *needed} - {name for name in others if name.startswith(f"{model.key}/")})
        for size in range(1, len(blocked.make_room)):
            for ended in combinations(names, size):
                assert _would_create(fleet, model, _after(plan, fleet, inventory, set(ended)), 1) == 0


def _after(plan: Plan, fleet: ResolvedFleet, inventory: Inventory, ended: set[str]) -> Inventory:
    """Return the inventory after the plan is applied, without the replicas named in `ended`."""
    kept = plan.model_copy(update={"actions": [action for action in plan.actions if action.id not in ended]})
    return apply_plan(kept, fleet, without(inventory, ended))


@many
@given(crowded_or_not)
def test_the_counted_amounts_exist(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    nodes = simulate(apply_plan(plan, fleet, inventory), fleet.policies, fleet.name, None)
    alive = [node for node in nodes.values() if node.node.state != "DEAD"]
    for blocked, model in _explained(plan, fleet):
        if blocked.counted is None or _size(model) > 1 or not all(node.exact for node in alive):
            continue
        if isinstance(model.placement.spread, Spread):
            continue  # the limit of a spread also excludes nodes
        member, counted = model.workers[0].members[0], blocked.counted
        want = member.resources
        wants_cards = bool(want.gpus or want.vram)
        selected = [node for node in alive
                    if selects(member.node_selector, {"ray.io/node-id": node.node.id, **node.node.labels})]
        usable = [node for node in selected if node.takes_new and _has_slot(node, model.key, wants_cards)]
        free = [_free(node, want.gpus >= 10_000) if wants_cards else 0 for node in usable]
        assert (counted.nodes, counted.selected, counted.usable, counted.fitting) == (
            len(alive), len(selected), len(usable), 0)
        assert (counted.free_gpus, counted.on_nodes, counted.most_on_one) == (
            sum(free), sum(amount > 0 for amount in free), max(free, default=0))
        assert sum(reason.node_count for reason in blocked.reasons) == (len(alive) or len(nodes))


def _has_slot(node: SimNode, key: str, wants_cards: bool) -> bool:
    cap = node.cap if node.cap is not None else None if wants_cards else 1
    return cap is None or node.slots.get(key, 0) < cap


def _free(node: SimNode, whole: bool) -> int:
    clean = [card for card in node.cards if not card.dirty]
    if whole:
        return min(sum(card.share == 0 for card in clean), node.gpus // 10_000) * 10_000
    return min(sum(10_000 - card.share for card in clean), node.gpus)


@pytest.mark.parametrize(("gang", "fewest"), [({"gpus": 1, "workers": 1}, 38), ({"gpus": 2, "workers": 3}, 151)])
def test_many_replicas_of_a_gang_share_the_nodes_that_are_added(gang: dict[str, Any], fewest: int) -> None:
    fleet = short_fleet({"models": [{"key": "m", "replicas": 151, "gang": gang}]})
    other = {"model": "other", "id": 0, "node": "full", "gpus": 8, "cards": [*range(8)], "fleet": None}
    inventory = short_inventory({"nodes": [{"name": "full", "gpus": 8}], "replicas": [other]})
    (blocked,) = plan_for(fleet, inventory).blocked
    (add,) = blocked.would_fit
    assert fewest <= add.nodes_for_all <= 1.2 * fewest
    assert _would_create(fleet, fleet.models[0], extended(inventory, [add], [add.nodes_for_all]), 151) == 151
