"""What a replica costs an hour: its share of the price of its nodes."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Node
from fleetctl.documents.plan import PlanPrice
from fleetctl.documents.quantity import MICRO, SHARE
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.ledger import LedgerNode, open_ledger
from fleetctl.planner.placement.prices import price_of
from fleetctl.render.plan_json import saved_plan_json

GIB = 1 << 30


def priced(node: dict[str, Any], *policies: dict[str, Any]) -> LedgerNode:
    inventory = short_inventory({"nodes": [{"name": "a", **node}]})
    fleet = short_fleet({"nodes": list(policies)})
    return open_ledger(inventory, fleet.policies, sort_out(inventory, fleet.name, {})).nodes[0]


@pytest.mark.parametrize(("claim", "price"), [
    (Claim(gpus=8 * SHARE), 20_000_000),
    (Claim(gpus=SHARE, cpus=4 * SHARE), 2_500_000),
    (Claim(gpus=SHARE // 4), 625_000),
    (Claim(vram=20 * GIB), 625_000),
    (Claim(cpus=4 * SHARE), 0),
])
def test_a_member_costs_its_share_of_the_nodes_cards(claim: Claim, price: int) -> None:
    assert price_of(claim, priced({"gpus": 8, "vram": "80Gi", "cpus": 64}, {"price": 20})) == price


def test_a_member_costs_its_share_of_the_cpus_only_where_there_are_no_cards() -> None:
    node = priced({"gpus": 0, "cpus": 96}, {"price": 4})
    assert price_of(Claim(cpus=2 * SHARE), node) == 83_333
    assert price_of(Claim(memory=GIB), node) == 0
    assert price_of(Claim(cpus=2 * SHARE), priced({"gpus": 0, "cpus": 0}, {"price": 4})) == 0


def test_the_last_entry_that_sets_a_price_wins() -> None:
    node = {"gpus": 1, "labels": {"pool": "x"}}
    assert price_of(Claim(gpus=SHARE), priced(node)) is None
    assert price_of(Claim(gpus=SHARE), priced(node, {"price": 3}, {"selector": {"pool": "x"}, "price": 0},
                                              {"selector": {"pool": "y"}, "price": 9}, {"cordon": False})) == 0


NODES = [{"name": "h", "gpus": 8, "labels": {"pool": "h"}}, {"name": "l", "gpus": 3, "labels": {"pool": "l"}},
         {"name": "c", "gpus": 0, "cpus": 4, "labels": {"pool": "c"}}]
PRICES = [{"selector": {"pool": "h"}, "price": 20}, {"selector": {"pool": "l"}, "price": 1},
          {"selector": {"pool": "c"}, "price": 0.25}]


def document(policies: list[dict[str, Any]], models: list[dict[str, Any]], *live: dict[str, Any],
             **more: Any) -> dict[str, Any]:
    plan = plan_for(short_fleet({"nodes": policies, "models": models, **more}),
                    short_inventory({"nodes": NODES, "replicas": list(live)}))
    return plan.model_dump(mode="json", by_alias=True)


def test_a_plan_says_what_it_adds_and_what_the_fleet_costs_then() -> None:
    models = [{"key": "big", "replicas": 2, "gpus": 4, "selector": {"pool": "h"}},
              {"key": "small", "replicas": 3, "gpus": 1, "selector": {"pool": "l"}},
              {"key": "tool", "replicas": 1, "cpus": 1, "selector": {"pool": "c"}}]
    live = {"model": "big", "id": 0, "node": "h", "gpus": 4}
    foreign = {"model": "other", "id": 0, "node": "h", "gpus": 1, "fleet": "another"}
    assert document(PRICES, models, live)["price"] == {"adds": 11_062_500, "total": 21_062_500}, "thirds add up to 1"
    assert document(PRICES, models[:1], live, foreign)["price"] == {"adds": 0, "total": 10_000_000}, "no room for 4"


def test_nodes_without_a_price_are_named_and_left_out_of_the_sums() -> None:
    models = [{"key": "small", "replicas": 3, "gpus": 1, "selector": {"pool": "l"}},
              {"key": "tool", "replicas": 1, "cpus": 1, "selector": {"pool": "h"}}]
    assert document(PRICES[:1], models)["price"] == {"adds": 0, "total": 0, "unpriced": 1, "examples": ["l"]}
    assert document(PRICES[1:], models)["price"] == {"adds": 1_000_000, "total": 1_000_000}, "takes no card of h"


def test_a_plan_that_waits_for_new_nodes_adds_their_whole_price() -> None:
    grow = [{"name": "l", "max": 4, "node": {"gpus": 3, "cpus": 8, "memory": "64Gi", "labels": {"pool": "l"}}}]
    models = [{"key": "small", "replicas": 4, "gpus": 1, "selector": {"pool": "l"}}]
    found = document(PRICES, models, grow=grow)
    assert found["price"] == {"adds": 2_000_000, "newNodes": 1_000_000, "total": 2_000_000}
    assert found["growth"][0]["price"] == 1_000_000
    found = document(PRICES, models, grow=[{**grow[0], "price": 0.5}])
    assert found["price"] == {"adds": 1_500_000, "newNodes": 500_000, "total": 1_500_000}
    assert document(PRICES[:1], models, grow=grow)["price"] == {
        "adds": 0, "total": 0, "unpriced": 2, "examples": ["l"]}


def test_a_fleet_without_prices_has_the_same_plan_as_before_and_imports_nothing_for_them(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [{"key": "small", "replicas": 3, "gpus": 1}]
    monkeypatch.setitem(sys.modules, "fleetctl.planner.placement.prices", None)  # its import fails
    fleet, seen = short_fleet({"nodes": [{"cordon": False}], "models": models}), short_inventory({"nodes": NODES})
    text = saved_plan_json(plan_for(fleet, seen))
    assert "price" not in text.lower()
    with pytest.raises(ImportError):
        document(PRICES, models)


SELECTED = st.sampled_from([{}, {"pool": "x"}, {"pool": "!x"}])


@settings(max_examples=cases(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(planning_inputs(), st.lists(st.tuples(SELECTED, st.sampled_from([0, 0.5, 7, 12.3456])), min_size=1, max_size=3))
def test_every_sum_is_that_of_the_shares(inputs: PlanningInputs, prices: list[tuple[dict[str, str], float]]) -> None:
    fleet, inventory = inputs
    policies = [NodePolicy.model_validate({"selector": selector, "price": price}) for selector, price in prices]
    plan = plan_for(replace(fleet, policies=(*fleet.policies, *policies)), inventory)
    price_at, totals = dict[str, Fraction | None](), dict[str, tuple[float, float]]()
    for node in inventory.nodes:
        pool, price_at[node.id] = node.labels.get("pool"), None
        totals[node.id] = node.resources.total.gpu, node.resources.total.cpu
        for selector, price in prices:
            if not selector or (pool == "x") == (selector["pool"] == "x"):
                price_at[node.id] = Fraction(str(price))

    def share(node_id: str, gpus: int, cpus: int) -> Fraction:
        cards, all_cpus = totals[node_id]
        return min(Fraction(1), Fraction(gpus, SHARE) / Fraction(cards) if cards else
                   Fraction(cpus, SHARE) / Fraction(all_cpus))

    live = sort_out(inventory, fleet.name, {model.key for model in fleet.models}).models.values()
    running = [(member.node_id, share(member.node_id, member.gpus or member_share(member.vram, node), member.cpus))
               for model in live for replica in model.live for member in replica.members
               for node in inventory.nodes if node.id == member.node_id]
    new = [(member.node_id, share(member.node_id, member.gpus, member.cpus))
           for action in plan.starts for member in action.members]
    cost = [sum((price * part for node, part in taken if (price := price_at[node]) is not None), Fraction(0))
            for taken in (new, [*running, *new])]
    without = sorted({node for node, part in (*running, *new) if part and price_at[node] is None})
    assert plan.price == PlanPrice(adds=round(cost[0] * MICRO), total=round(cost[1] * MICRO), unpriced=len(without),
                                   examples=without[:5])


def member_share(vram: int, node: Node) -> int:
    """A running member that claims memory alone takes that share of a card."""
    memory = max((card.memory_total or 0 for card in node.gpus), default=0)
    return min(SHARE, -(-vram * SHARE // memory)) if memory and vram else SHARE if vram else 0
