"""Promote: a new replica takes the node and id of a WARM replica of its model, never at another's expense."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checker import check_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_inputs import planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.documents.weights import Weights
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel, engine_hash
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.stale import moved_since

WANTED, OTHER = "1" * 64, "2" * 64
GIB = 1 << 30


def with_weights(model: ResolvedModel) -> ResolvedModel:
    weights = Weights.model_validate({"from": [{"path": "/m"}], "index": WANTED})
    workers = tuple(group.model_copy(update={"members": [
        member.model_copy(update={"weights": weights}) for member in group.members]}) for group in model.workers)
    return replace(model, workers=workers, engine_hash=engine_hash(workers, model.placement))


def warm(model: ResolvedModel, number: int, nodes: list[str], artifact: str = WANTED, **more: Any) -> Replica:
    """Return a WARM replica of a model, with one member on each of `nodes`."""
    members = [{"group": seat.group, "copy": seat.copy, "role": seat.role, "rank": seat.rank, "memory": GIB,
                "nodeId": nodes[place % len(nodes)], "weights": {"artifact": artifact, "port": 7000}}
               for place, seat in enumerate(replica_shape(model).seats)]
    return Replica.model_validate({"model": model.key, "replicaId": number, "fleet": "lab", "level": "WARM",
                                   "specHash": model.spec_hash, "members": members, **more})


def with_replicas(inventory: Inventory, replicas: list[Replica]) -> Inventory:
    return inventory.model_copy(update={"replicas": [*inventory.replicas, *replicas]})


@st.composite
def warm_inputs(draw: st.DrawFn) -> tuple[ResolvedFleet, Inventory, list[Replica]]:
    fleet, inventory = draw(planning_inputs())
    fleet = replace(fleet, models=tuple(map(with_weights, fleet.models)))
    names = [node.id for node in inventory.nodes] or ["gone"]
    found = [warm(model, number, draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)),
                  state=draw(st.sampled_from(["ALIVE"] * 5 + ["RESTARTING"])),
                  specHash=draw(st.sampled_from([model.spec_hash, "old"])),
                  fleet=draw(st.sampled_from(["lab"] * 6 + [None])))
             for model in fleet.models
             for number in draw(st.lists(st.integers(0, 7), max_size=3, unique=True))]
    return fleet, inventory, found


@settings(max_examples=cases(20), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(warm_inputs())
def test_a_promote_costs_no_other_replica_its_place(inputs: tuple[ResolvedFleet, Inventory, list[Replica]]) -> None:
    fleet, inventory, found = inputs
    useless = [one.model_copy(update={"members": [
        member.model_copy(update={"weights": member.weights and member.weights.model_copy(update={"artifact": OTHER})})
        for member in one.members]}) for one in found]
    without, warmed = plan_for(fleet, with_replicas(inventory, useless)), with_replicas(inventory, found)
    plan = plan_for(fleet, warmed)
    check_plan(plan, fleet, warmed)
    assert not any(action.op == "promote" for action in without.actions)
    assert [(row.key, row.create, row.blocked) for row in plan.models] == \
        [(row.key, row.create, row.blocked) for row in without.models]
    assert sum(member.gpus for action in plan.actions for member in action.members) <= \
        sum(member.gpus for action in without.actions for member in action.members)
    by_name = {(one.model, one.replica_id): one for one in found}
    hot = {(one.model, one.replica_id) for one in inventory.replicas}
    for action in plan.actions:
        if action.op == "promote":
            name = action.model, action.replica_id
            assert name not in hot
            assert by_name[name].state == "ALIVE"
            assert by_name[name].fleet == "lab"
            assert [(one.group, one.copy_index, one.rank, one.node_id) for one in action.members] == \
                [(one.group, one.copy_index, one.rank, one.node_id) for one in by_name[name].members]
    assert moved_since(plan, warmed) == []


def small(replicas: int = 1, gpus: float = 1, **more: Any) -> tuple[ResolvedFleet, ResolvedModel]:
    fleet = short_fleet({"models": [{"key": "m", "replicas": replicas, "gpus": gpus, **more}]})
    fleet = replace(fleet, models=tuple(map(with_weights, fleet.models)))
    return fleet, fleet.models[0]


def nodes(**gpus: int) -> Inventory:
    return short_inventory({"nodes": [{"name": name, "gpus": count, "vram": "80Gi"} for name, count in gpus.items()]})


def done(fleet: ResolvedFleet, inventory: Inventory, *found: Replica) -> list[tuple[str, int, str]]:
    plan = plan_for(fleet, with_replicas(inventory, list(found)))
    return [(one.op, one.replica_id, one.members[0].node) for one in plan.actions]


def test_a_replica_goes_where_it_is_warm_and_keeps_its_id() -> None:
    fleet, model = small(replicas=2)
    elsewhere = warm(model, 9, ["a"], artifact=OTHER)
    assert done(fleet, nodes(a=2, b=8), elsewhere) == [("create", 10, "a"), ("create", 11, "a")]
    assert done(fleet, nodes(a=2, b=8), elsewhere, warm(model, 3, ["b"])) == [("create", 10, "a"), ("promote", 3, "b")]


@pytest.mark.parametrize("more", [
    {"artifact": OTHER}, {"state": "RESTARTING"}, {"fleet": "other"}, {"nodes": ["full"]}, {"nodes": ["gone"]},
])
def test_a_replica_that_cannot_be_promoted_is_created_elsewhere(more: dict[str, Any]) -> None:
    fleet, model = small()
    place = more.pop("nodes", ["b"])
    made = done(fleet, nodes(a=1, b=8, full=0), warm(model, 3, place, **more))
    assert [op for op, _, _ in made] == ["create"]


def test_of_two_warm_replicas_the_one_with_the_spec_of_the_file_is_promoted() -> None:
    fleet, model = small()
    found = [warm(model, 0, ["a"], specHash="old"), warm(model, 1, ["b"])]
    assert done(fleet, nodes(a=8, b=8), *found) == [("promote", 1, "b")]
    assert done(fleet, nodes(a=8, b=8), found[0]) == [("promote", 0, "a")]


def test_an_id_with_a_hot_replica_is_not_promoted() -> None:
    fleet, model = small(replicas=2)
    hot = warm(model, 3, ["a"], level="HOT")
    assert done(fleet, nodes(a=8, b=8), hot, warm(model, 3, ["a"])) == [("create", 4, "a")]


def test_an_id_with_a_hot_replica_of_an_unreadable_fleet_is_not_promoted() -> None:
    fleet, model = small()
    hot = warm(model, 3, ["a"], level="HOT", fleet=None)
    assert done(fleet, nodes(a=8, b=8), hot, warm(model, 3, ["b"])) == [("create", 4, "a")]


@pytest.mark.parametrize("now", [
    {"nodes": ["a"]}, {"artifact": OTHER}, {"state": "RESTARTING"}, {"level": "HOT", "fleet": None}, {"members": []},
])
def test_a_plan_that_promotes_is_stale_if_the_warm_replica_has_changed(now: dict[str, Any]) -> None:
    fleet, model = small()
    before = with_replicas(nodes(a=8, b=8), [warm(model, 3, ["b"])])
    plan = plan_for(fleet, before)
    assert (plan.actions[0].op, moved_since(plan, before)) == ("promote", [])
    other = warm(model, 3, now.pop("nodes", ["b"]), **now) if "members" not in now else \
        warm(model, 3, ["b"]).model_copy(update=now)
    again = [warm(model, 3, ["b"])] if other.level == "HOT" else []
    assert "m/3 is not WARM now, or not with the same weights on the same nodes" in moved_since(
        plan, with_replicas(nodes(a=8, b=8), [*again, other]))


def test_a_plan_that_promotes_is_stale_if_the_warm_replica_is_gone() -> None:
    fleet, model = small()
    found = [warm(model, 0, ["b"]), warm(model, 1, ["a"], artifact=OTHER)]
    plan = plan_for(fleet, with_replicas(nodes(a=8, b=8), found))
    assert moved_since(plan, with_replicas(nodes(a=8, b=8), found[1:])) == [
        "m/0 is not WARM now, or not with the same weights on the same nodes"]


def test_a_plan_that_promotes_holds_whatever_else_is_warm_but_needs_its_own_replica() -> None:
    fleet, model = small()
    found = [warm(model, 0, ["a"], artifact=OTHER), warm(model, 3, ["b"])]
    plan = plan_for(fleet, with_replicas(nodes(a=8, b=8), found))
    assert moved_since(plan, with_replicas(nodes(a=8, b=8), found)) == []
    swapped = [warm(model, 0, ["b"]), warm(model, 3, ["b"], artifact=OTHER)]
    assert moved_since(plan, with_replicas(nodes(a=8, b=8), swapped)) == [
        "m/3 is not WARM now, or not with the same weights on the same nodes"]


def test_a_plan_that_promotes_a_gang_is_stale_if_one_rank_is_on_another_node() -> None:
    fleet, model = small(gang={"gpus": 8, "workers": 1})
    empty = nodes(a=8, b=8, c=8, d=8)
    plan = plan_for(fleet, with_replicas(empty, [warm(model, 5, ["d", "b"])]))
    assert moved_since(plan, with_replicas(empty, [warm(model, 5, ["d", "c"])])) == [
        "m/5 is not WARM now, or not with the same weights on the same nodes"]


def test_a_rank_without_weights_is_promoted_with_whatever_it_has() -> None:
    fleet, model = small(gang={"gpus": 8, "workers": 1})
    [group] = model.workers
    [leader, worker] = group.members
    bare = worker.model_copy(update={"weights": None})
    fleet = replace(fleet, models=(replace(model, workers=(
        group.model_copy(update={"members": [leader, bare]}),)),))
    found = with_replicas(nodes(a=8, b=8, c=8, d=8), [warm(model, 5, ["d", "b"])])
    plan = plan_for(fleet, found)
    assert [(one.op, [member.node for member in one.members]) for one in plan.actions] == [("promote", ["d", "b"])]
    assert moved_since(plan, found) == []


def test_a_gang_is_promoted_whole_and_each_rank_on_its_node() -> None:
    fleet, model = small(gang={"gpus": 8, "workers": 1})
    plan = plan_for(fleet, with_replicas(nodes(a=8, b=8, c=8, d=8), [warm(model, 5, ["d", "b"])]))
    [action] = plan.actions
    assert (action.op, action.replica_id, [one.node for one in action.members]) == ("promote", 5, ["d", "b"])


def test_the_memory_of_a_warm_replica_counts_until_it_is_gone() -> None:
    fleet, model = small(memory="511Gi")
    assert done(fleet, nodes(a=1), warm(model, 0, ["a"])) == [("promote", 0, "a")]
    fleet, model = small(memory="512Gi")
    assert done(fleet, nodes(a=1), warm(model, 0, ["a"])) == []
