"""What a replica costs an hour: its share of the price of its nodes."""

from __future__ import annotations

from typing import Any

import pytest
from short_forms import short_fleet, short_inventory

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.ledger import LedgerNode, open_ledger
from fleetctl.planner.placement.prices import price_of

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
