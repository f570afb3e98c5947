"""Opening the ledger: policies and offers are computed once for equal nodes, and are right for each node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from short_forms import plan_for, short_fleet, short_inventory
from small_plans import small_plan

from fleetctl.documents.canonical import plan_id
from fleetctl.documents.loading import load_plan
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.ledger.ledger import Ledger, held_slots, open_ledger
from fleetctl.planner.placement.ledger.node_offer import offer_of
from fleetctl.render.plan_json import saved_plan_json

NODES = [
    {"name": "a", "gpus": 2, "vram": "24Gi", "labels": {"pool": "x", "other": "1"}},
    {"name": "b", "gpus": 2, "vram": "24Gi", "labels": {"pool": "y", "other": "2"}},
    {"name": "c", "gpus": 2, "vram": "24Gi", "labels": {"pool": "x", "other": "3"}},
    {"name": "d", "gpus": 2, "vram": "24Gi", "labels": {}},
]


def opened(nodes: list[dict[str, Any]], policies: list[dict[str, Any]], *replicas: dict[str, Any]) -> Ledger:
    inventory = short_inventory({"nodes": nodes, "replicas": list(replicas)})
    fleet = short_fleet({"nodes": policies})
    return open_ledger(inventory, fleet.policies, sort_out(inventory, fleet.name, {"m"}))


def test_each_node_has_the_policy_of_its_own_labels() -> None:
    ledger = opened(NODES, [{"selector": {"pool": "x"}, "cordon": True}, {"selector": {"other": "!1"}, "cordon": False},
                            {"selector": {"ray.io/node-id": "d"}, "reserve": {"vram": "1Gi"}}])
    assert [node.open for node in ledger.nodes] == [False, True, True, True]
    assert [node.policy.reserve_vram for node in ledger.nodes] == [0, 0, 0, 1 << 30]


def test_equal_nodes_under_different_policies_have_different_offers() -> None:
    ledger = opened(NODES, [{"selector": {"pool": "x"}, "reserve": {"vram": "4Gi"}}])
    assert [ledger.offer(place).cards[0].free_vram for place in range(4)] == [20 << 30, 24 << 30, 20 << 30, 24 << 30]


def test_nodes_with_the_same_grants_on_the_same_cards_share_an_offer() -> None:
    ledger = opened(NODES, [], *({"model": "m", "id": number, "node": node, "gpus": 1, "vram": "8Gi", "uuids": [uuid]}
                                 for number, (node, uuid) in enumerate([("a", "GPU-a-1"), ("b", "GPU-b-1"),
                                                                        ("c", "GPU-c-0")])))
    numbers = ledger.numbers[:4]
    assert numbers[0] == numbers[1]
    assert len(set(numbers)) == 3
    assert [card.free_share for card in ledger.offer(2).cards] == [0, 10_000]


def test_a_shared_offer_equals_the_offer_computed_for_the_node_alone() -> None:
    inventory = short_inventory({"nodes": [*NODES, {"name": "e", "gpus": 1, "measured": {0: "9Gi"}, "vram": "24Gi"}],
                                 "replicas": [{"model": "m", "id": 0, "node": "b", "gpus": 0.5}]})
    state = sort_out(inventory, "lab", {"m"})
    ledger = open_ledger(inventory, (), state)
    for place, node in enumerate(inventory.nodes):
        assert ledger.offer(place) == offer_of(node, state.holding.get(node.id, ()), ledger.nodes[place].policy)


def test_reported_slots_stay_and_the_others_are_the_lowest_free() -> None:
    def slots(*reported: int | None) -> set[int]:
        live = short_inventory({"replicas": [{"model": "m", "id": number, "node": "a", "slot": slot}
                                             for number, slot in enumerate(reported)]}).replicas
        held = held_slots(live)["a"]
        return {slot for slot in range(held.bit_length()) if held >> slot & 1}

    assert slots(None) == slots(0) == {0}
    assert slots(3) == {3}
    assert slots(None, 0, None) == {0, 1, 2}
    assert slots(1, 1) == {0, 1}
    assert slots(2, None, 2) == {0, 1, 2}


def test_a_plan_with_odd_durations_is_not_mistaken_for_a_changed_one() -> None:
    fleet = short_fleet({"models": [{"key": "mödel:\u2028#{}", "replicas": 2, "gpus": 1}]})
    odd = fleet.models[0].restart.model_copy(update={"backoff": 0.000001})
    model = replace(fleet.models[0], restart=odd, startup_timeout_s=1e-05)
    plan = plan_for(replace(fleet, models=(model,)), short_inventory({"nodes": NODES}))
    assert plan.plan_id == plan_id(plan.model_dump(mode="json", by_alias=True))
    assert load_plan(saved_plan_json(plan), "plan.json") == plan
    assert plan.actions[0].lifecycle.restart_backoff == 0.000001


STOPS = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  nodes: [{residents: [{process: Xorg, memory: 1Gi}], gpuMemory: 80Gi}]
  models:
  - key: org/one
    replicas: 1
    workers:
    - name: main
      members: [{resources: {gpus: 1, vram: 1Gi}, engine: {command: [serve], stop: {grace: 5s, signal: SIGINT}}}]
"""


def test_a_plan_with_the_end_of_an_engine_and_residents_is_not_mistaken_for_a_changed_one() -> None:
    plan = small_plan("a", fleet=STOPS)
    [action] = plan.actions
    assert action.members[0].stop
    assert action.members[0].residents
    assert plan.plan_id == plan_id(plan.model_dump(mode="json", by_alias=True))
    assert load_plan(saved_plan_json(plan), "plan.json") == plan
