"""Sources of weights: same artifact, ready, near, and never overloaded."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from published_schemas import validator
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.agent.run_messages import PrefetchRequest
from fleetctl.agent.weights.views import read_view, view_id
from fleetctl.agent.wire import parse
from fleetctl.apply.prepare import ApplyOptions, apply_request
from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.loading import load_plan
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.cold import orders_for, parts_of
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.sources import MOST_SOURCES, add_weights, find_ready, sources_for
from fleetctl.planner.weights import MOST_FETCHES, NodeFetch
from fleetctl.render.plan_json import saved_plan_json

ONE, OTHER = "1" * 64, "2" * 64
SHARD = {"shard": {"rules": [{"match": "proj", "dim": 0}], "of": "$(FLEETCTL_GROUP_SIZE)"}}
FILES = {"files": "model-$(FLEETCTL_RANK)-*"}
NAMES = [f"n{number}" for number in range(8)]
STATES = ["ALIVE"] * 4 + ["PENDING_CREATION", "RESTARTING"]


def model(
    key: str, view: dict[str, Any] | None = None, index: str = ONE, *, gang: int = 1, **more: Any
) -> dict[str, Any]:
    weights = {"from": [{"path": "/models/m"}], "index": index, **({"view": view} if view else {})}
    one = {"resources": {"gpus": 1}, "weights": weights}
    members = [one] if gang == 1 else [{**one, "role": "Leader"}, {**one, "role": "Worker", "count": gang - 1}]
    return {"key": key, "replicas": 1, "workers": [{"name": "main", "members": members}], **more}


def cluster_of(models: list[dict[str, Any]], replicas: list[dict[str, Any]], gpus: int = 4,
               racks: dict[str, str] | None = None) -> tuple[ResolvedFleet, Inventory]:
    """Return a fleet and an inventory of eight nodes with `replicas`: model, id, node and served weights."""
    nodes = [{"name": name, "gpus": gpus, "labels": {"rack": racks[name]} if racks and name in racks else {}}
             for name in NAMES]
    inventory = short_inventory({"nodes": nodes, "replicas": [
        {"gpus": 0, **{key: one[key] for key in one if key != "serves"}} for one in replicas]})
    served = []
    for replica, one in zip(inventory.replicas, replicas, strict=True):
        serves = {"port": 7000, "bytes": 1 << 30, **one["serves"]} if "serves" in one else None
        members = [{**member.model_dump(by_alias=True), "address": "10.0.0.1", "weights": serves}
                   for member in replica.members]
        served.append(type(replica).model_validate({**replica.model_dump(by_alias=True), "members": members}))
    return short_fleet({"models": models}), inventory.model_copy(update={"replicas": served})


def sources(plan: Plan, member: int = 0) -> list[str]:
    weights = plan.actions[0].members[member].weights
    assert weights
    return [one.replica for one in weights.sources]


@st.composite
def placed_anywhere(draw: st.DrawFn) -> tuple[ResolvedFleet, Inventory, list[dict[str, Any]]]:
    """Return a fleet, an inventory, and replicas placed anywhere."""
    index, views = st.sampled_from([ONE, OTHER]), st.sampled_from([None, FILES, SHARD])
    sizes = [draw(st.sampled_from([1, 1, 2, 4])) for _ in range(2)]
    models = [model(f"m{at}", draw(views), draw(index), gang=size, sameLabel="rack") for at, size in enumerate(sizes)]
    replicas = [{"model": draw(st.sampled_from(["m0", "m1", "x"])), "id": number, "node": draw(st.sampled_from(NAMES)),
                 "state": draw(st.sampled_from(STATES)), "constructed": draw(st.sampled_from([True, True, False])),
                 "serves": {"artifact": draw(index), "view": draw(st.sampled_from([None, None, "a" * 16]))}}
                for number in range(draw(st.integers(0, 6)))]
    actions = [{"model": f"m{at}", "replicaId": number, "members": [
        {"group": "main", "copy": 0, "rank": rank, "nodeId": draw(st.sampled_from(NAMES))} for rank in range(sizes[at])
    ]} for number, at in enumerate(draw(st.lists(st.integers(0, 1), max_size=12)))]
    return *cluster_of(models, replicas, racks={name: draw(st.sampled_from("ab")) for name in NAMES}), actions


def part_of(view: dict[str, Any] | None, rank: int, action: dict[str, Any]) -> str:
    size = len(action["members"])
    return "" if not view or (view == SHARD and size == 1) else f"{rank} of {size}" if "shard" in view else f"{rank}"


@settings(max_examples=cases(40), deadline=None, derandomize=True)
@given(placed_anywhere(), st.randoms(use_true_random=False))
def test_no_source_serves_too_many_nodes_or_weights_it_does_not_have(
    drawn: tuple[ResolvedFleet, Inventory, list[dict[str, Any]]], random: Any
) -> None:
    fleet, inventory, actions = drawn
    shapes = {one.key: (replica_shape(one),) for one in fleet.models}
    again = deepcopy(actions)
    add_weights(actions, fleet.models, shapes, inventory, ())
    ready = {f"{one.model}/{one.replica_id}": one.members[0] for one in inventory.replicas
             if one.state == "ALIVE" and one.constructed}
    fetches: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for action in actions:
        for member in action["members"]:
            weights, own = member["weights"], member["nodeId"]
            for source in weights["sources"]:
                served = ready[source["replica"]].weights
                assert served
                assert served.artifact == weights["artifact"]
                assert served.view is source["view"] is None  # views of this model differ from those of the others
                if source["nodeId"] != own and "wave" not in source:
                    fetches[source["replica"]].add((own, part_of(weights["view"], member["rank"], action)))
            nodes = [source["nodeId"] for source in weights["sources"]]
            assert nodes == sorted(nodes, key=own.__ne__)
            assert len(set(nodes)) <= len(nodes) <= MOST_SOURCES
            assert nodes[:1] == [own] or not [one for one in ready.values() if one.node_id == own and one.weights and (
                one.weights.view is None and one.weights.artifact == weights["artifact"])]
    assert all(len(nodes) <= MOST_FETCHES for nodes in fetches.values())
    replicas = list(inventory.replicas)
    random.shuffle(replicas)
    add_weights(again, fleet.models, shapes, inventory.model_copy(update={"replicas": replicas}), ())
    assert again == actions


def test_the_nearest_source_comes_first_by_the_label_of_same_label() -> None:
    replicas = [{"model": "m", "id": number, "node": node, "serves": {"artifact": ONE}}
                for number, node in enumerate(NAMES[1:5])]
    fleet, inventory = cluster_of([model("m", replicas=5, sameLabel="rack")], replicas,
                             racks={**dict.fromkeys(NAMES, "far"), "n0": "near", "n4": "near"})
    for node in inventory.nodes[1:]:
        node.resources.total.__dict__["gpu"] = 0  # which puts the replica on n0
    plan = plan_for(fleet, inventory)
    assert [member.node for member in plan.actions[0].members] == ["n0"]
    assert sources(plan) == ["m/3", "m/0", "m/1"]


def test_a_rank_takes_its_part_from_the_same_rank_or_a_whole_copy_and_never_from_another_rank() -> None:
    first = plan_for(*cluster_of([model("m", SHARD, gang=2)], [])).actions[0]
    assert [member.weights.sources for member in first.members if member.weights] == [[], []]
    both = [{"model": "m", "id": 2, "node": "n5", "serves": {"artifact": ONE, "view": "a" * 16, "whole": True}}]
    parts = [view_id(read_view({"shard": {**SHARD["shard"], "of": "2"}}), rank, 2, ONE) for rank in range(2)]
    replicas = [{"model": "m", "id": rank, "node": NAMES[7 - rank], "serves": {"artifact": ONE, "view": part}}
                for rank, part in enumerate(parts)]
    fleet, inventory = cluster_of([model("m", SHARD, gang=2) | {"replicas": 3}], replicas)
    plan = plan_for(fleet, inventory)
    assert [sources(plan, rank) for rank in range(2)] == [["m/0"], ["m/1"]]
    told = [member.weights.sources[0].bytes for member in plan.actions[0].members if member.weights]
    assert told == [1 << 30, 1 << 30]
    plan = plan_for(*cluster_of([model("m", SHARD, gang=2) | {"replicas": 4}], replicas + both))
    assert [sorted(sources(plan, rank)) for rank in range(2)] == [["m/0", "m/2"], ["m/1", "m/2"]]


def test_a_fetch_for_several_members_counts_once_and_the_excess_waits_for_a_later_wave() -> None:
    replicas = [{"model": "m", "id": 0, "node": "n7", "gpus": 4, "serves": {"artifact": ONE}}]
    plan = plan_for(*cluster_of([model("m") | {"replicas": 15}], replicas, gpus=2))
    by_node = {action.members[0].node: [(one.replica, one.wave) for one in action.members[0].weights.sources]
               for action in plan.actions if action.members[0].weights}
    assert len(plan.actions) == 14
    assert sorted(by_node.values(), key=str) == [[("m/0", 2)]] * 3 + [[("m/0", None)]] * 4
    assert plan.model_dump(mode="json", by_alias=True)["actions"][0]["members"][0]["weights"]["from"] == [
        {"path": "/models/m"}]
    saved = saved_plan_json(plan)
    assert load_plan(saved, "saved") == plan
    validator("plan").validate(json.loads(saved))


def test_each_wave_is_five_times_larger_and_the_nearest_nodes_come_first() -> None:
    replicas = [{"model": "m", "id": number, "node": f"n{number}", "serves": {"artifact": ONE}} for number in range(2)]
    _, inventory = cluster_of([model("m")], replicas, racks={"n0": "x", "n1": "y", **dict.fromkeys(NAMES[2:], "y")})

    def waves(nodes: list[str]) -> list[tuple[int, list[str]]]:
        chosen = sources_for([NodeFetch(node, ONE, None, ("rack",)) for node in nodes], find_ready(inventory))
        return [(found[0].get("wave", 1), [one["replica"] for one in found]) for found in chosen.values()]

    crowd = Counter(wave for wave, _ in waves([f"other-{number}" for number in range(260)]))
    assert crowd == {1: 8, 2: 40, 3: 200, 4: 12}
    assert waves([f"other-{number}" for number in range(8)] + NAMES[2:])[8:] == [(2, ["m/1", "m/0"])] * 6


def test_a_saved_plan_with_weights_loads_unchanged_and_fits_its_schema() -> None:
    replicas = [{"model": "m", "id": 0, "node": "n7", "serves": {"artifact": ONE}}]
    plan = plan_for(*cluster_of([model("m", SHARD, gang=2) | {"replicas": 2}], replicas))
    saved = saved_plan_json(plan)
    assert load_plan(saved, "saved") == plan  # its id is checked too
    validator("plan").validate(json.loads(saved))
    request = apply_request(plan, "job", "ana", ApplyOptions(), may_replan=False)
    asked = request["plan"]["actions"][0]["members"][1]["weights"]
    assert (asked["artifact"], asked["from"], asked["view"]) == (ONE, [{"path": "/models/m"}], SHARD)
    assert {key: asked["sources"][0][key] for key in ("replica", "nodeId", "address", "view", "whole")} == {
        "replica": "m/0", "nodeId": "n7", "address": "10.0.0.1:7000", "view": None, "whole": True}
    assert "weights" not in request["record"]["replicas"][0]["members"][1]


def test_a_member_without_weights_has_no_weights_key_in_a_plan() -> None:
    fleet, inventory = cluster_of([{"key": "m", "replicas": 1, "gpus": 1}], [])
    assert "weights" not in plan_for(fleet, inventory).model_dump_json()


def test_a_prefetch_gives_every_node_a_source_since_few_fetch_at_a_time() -> None:
    fleet, inventory = cluster_of([model("m", SHARD, gang=2)], [
        {"model": "m", "id": 0, "node": "n0", "serves": {"artifact": ONE, "whole": True}}])
    [one] = fleet.models
    [part] = parts_of(one)
    assert (part.view, part.weights.view) == (None, None)  # the ranks need different parts
    orders = orders_for(one, {node.id: [part] for node in inventory.nodes}, find_ready(inventory))
    assert [node.id for node in inventory.nodes] == [*orders]
    assert len(orders) > MOST_FETCHES + 1
    assert [[source["replica"] for source in member["weights"]["sources"]]
            for members in orders.values() for member in members] == [["m/0"]] * len(orders)
    request = parse(PrefetchRequest, {"nodes": orders, "timeout": 60, "atOnce": 4, "job": "j", "toolVersion": ""})
    assert {source.replica for members in request.nodes.values() for member in members
            for source in member.weights.sources} == {"m/0"}


def test_a_member_gets_the_ports_of_its_node_and_one_that_serves_nothing_is_no_source() -> None:
    policies = [{"weightsPorts": "30000-30063"}, {"selector": {"rack": "b"}, "weightsPorts": "none"}]
    replicas = [{"model": "m", "id": 0, "node": "n0", "serves": {"artifact": ONE, "port": None, "unserved": "why"}}]
    for racks, ports in ((dict.fromkeys(NAMES, "a"), "30000-30063"), (dict.fromkeys(NAMES, "b"), "none")):
        fleet, inventory = cluster_of([model("m", replicas=2)], replicas, racks=racks)
        limited = replace(fleet, policies=tuple(map(NodePolicy.model_validate, policies)))
        plan = plan_for(limited, inventory)
        weights = plan.actions[0].members[0].weights
        assert weights
        assert (weights.ports, weights.sources) == (ports, [])
        assert "ports" not in plan_for(fleet, inventory).model_dump(mode="json", by_alias=True)["actions"][0][
            "members"][0]["weights"], "plans without a limit are the same bytes as before"


def test_a_member_with_caches_gets_the_ports_of_its_node_with_or_without_weights() -> None:
    policies = [NodePolicy.model_validate({"weightsPorts": "none"})]
    with_caches = model("m", replicas=1)
    with_caches["workers"][0]["members"][0].setdefault("engine", {"command": ["serve"]})["caches"] = ["A"]
    del with_caches["workers"][0]["members"][0]["weights"]
    for written, policy, told in ((with_caches, policies, "none"), (with_caches, [], None),
                                  (model("m", replicas=1), policies, None)):
        fleet, inventory = cluster_of([written], [], racks=dict.fromkeys(NAMES, "a"))
        plan = plan_for(replace(fleet, policies=tuple(policy)), inventory)
        assert plan.actions[0].members[0].cache_ports == told
        assert ("cachePorts" in plan.model_dump_json(by_alias=True)) == (told is not None)
