"""The placement map: pieces and free share fill every card, and no replica is drawn twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory
from simulated import WHOLE, simulate

from fleetctl.documents.answers import MapNode, PlacementMap
from fleetctl.errors import InventoryError
from fleetctl.planner.questions.occupancy import placement_map
from fleetctl.planner.questions.scenario import NO_FLEET, Scenario


def drawn(inventory: dict[str, Any], fleet: dict[str, Any] | None = None) -> PlacementMap:
    return placement_map(Scenario(short_fleet(fleet) if fleet else NO_FLEET, short_inventory(inventory)))


def cards(node: MapNode) -> list[list[tuple[str, str | None, int]]]:
    return [[(piece.holder, piece.replica, piece.share) for piece in card.pieces] for card in node.cards]


def test_each_replica_is_drawn_on_the_cards_it_reports() -> None:
    (node,) = drawn({"nodes": [{"name": "a", "gpus": 3, "vram": "80Gi"}], "replicas": [
        {"model": "m", "id": 0, "node": "a", "gpus": 2, "cards": [0, 2]},
        {"model": "n", "id": 4, "node": "a", "gpus": 0.25, "cards": [1]}]}).nodes
    assert cards(node) == [[("live", "m/0", 10_000)], [("live", "n/4", 2_500)], [("live", "m/0", 10_000)]]
    assert [card.free_share for card in node.cards] == [0, 7_500, 0]
    assert all(piece.certain for card in node.cards for piece in card.pieces)


def test_a_replica_that_reports_no_card_is_drawn_on_a_granted_share_and_marked_as_inferred() -> None:
    (node,) = drawn({"nodes": [{"name": "a", "gpus": 2, "vram": "80Gi", "used": {"GPU": 0.5}}],
                     "replicas": [{"model": "m", "id": 0, "node": "a", "gpus": 0.5}]}).nodes
    (piece,) = [piece for card in node.cards for piece in card.pieces]
    assert (piece.replica, piece.share, piece.certain) == ("m/0", 5_000, False)


def test_grants_without_a_replica_are_unknown_and_replicas_of_no_fleet_are_foreign() -> None:
    inventory = {"nodes": [{"name": "a", "gpus": 2, "vram": "80Gi", "used": {"GPU": 2}}], "replicas": [
        {"model": "m", "foreign": "ab:ModelActor:m", "fleet": None, "node": "a", "gpus": 1, "cards": [0]}]}
    (node,) = drawn(inventory).nodes
    assert cards(node) == [[("foreign", "ab:ModelActor:m", 10_000)], [("unknown", None, 10_000)]]


def test_a_given_plan_is_drawn_instead_of_a_new_one() -> None:
    models = [{"key": key, "replicas": 1, "gpus": 1} for key in ("m", "n")]
    inventory = {"nodes": [{"name": "a", "gpus": 2, "vram": "80Gi"}]}
    scenario = Scenario(short_fleet({"models": models}), short_inventory(inventory))
    plan = plan_for(scenario.fleet, scenario.inventory, targets=("n",))
    (node,) = placement_map(scenario, plan).nodes
    assert [held for card in cards(node) for held in card] == [("new", "n/0", 10_000)]
    elsewhere = Scenario(scenario.fleet, short_inventory({"nodes": [{"name": "a", "gpus": 0}]}))
    with pytest.raises(ValueError, match="no longer fits on a"):
        placement_map(elsewhere, plan)


def test_a_replica_of_another_fleet_is_live_without_a_fleet_and_foreign_with_one() -> None:
    inventory = {"nodes": [{"name": "a", "gpus": 1}],
                 "replicas": [{"model": "m", "id": 0, "fleet": "theirs", "node": "a", "gpus": 1, "cards": [0]}]}
    (entry,) = drawn(inventory).legend
    assert (entry.live, entry.foreign) == (1, 0)
    (entry,) = drawn(inventory, {"models": []}).legend
    assert (entry.live, entry.foreign) == (0, 1)


def test_new_replicas_are_drawn_where_the_plan_puts_them() -> None:
    answer = drawn({"nodes": [{"name": "a", "gpus": 2}]}, {"models": [
        {"key": "m", "replicas": 1, "gpus": 1}, {"key": "c", "replicas": 1, "cpus": 1}]})
    (node,) = answer.nodes
    assert cards(node) == [[("new", "m/0", 10_000)], []]
    assert [(one.holder, one.replica) for one in node.beside] == [("new", "c/0")]
    assert {entry.model: entry.new for entry in answer.legend} == {"m": 1, "c": 1}


def test_dead_draining_cordoned_and_dirty_are_marked() -> None:
    nodes = [{"name": "dead", "gpus": 1, "state": "DEAD"},
             {"name": "drain", "gpus": 2, "vram": "80Gi", "state": "DRAINING"},
             {"name": "odd", "gpus": 1, "vram": "80Gi", "measured": {0: 20 << 30}}]
    replicas = [{"model": "m", "id": number, "node": name, "gpus": 1, "cards": [0]}
                for number, name in enumerate(["dead", "drain"])]
    fleet = {"nodes": [{"selector": {"ray.io/node-id": "odd"}, "cordon": True}], "models": []}
    answer = drawn({"nodes": nodes, "replicas": replicas}, fleet)
    by_name = {node.name: node for node in answer.nodes}
    assert {name: node.state for name, node in by_name.items()} == {
        "dead": "DEAD", "drain": "DRAINING", "odd": "ALIVE"}
    assert cards(by_name["dead"]) == [[]]
    assert cards(by_name["drain"]) == [[("live", "m/1", 10_000)], []]
    assert by_name["odd"].cordoned_by == "spec.nodes[0].cordon"
    assert by_name["odd"].cards[0].dirty


def test_the_legend_begins_with_the_model_that_holds_the_most_cards() -> None:
    answer = drawn({"nodes": [{"name": "a", "gpus": 4}], "replicas": [
        {"model": "small", "id": 0, "node": "a", "gpus": 0.5, "cards": [0]},
        {"model": "large", "id": 0, "node": "a", "gpus": 2, "cards": [1, 2]}]})
    assert [entry.model for entry in answer.legend] == ["large", "small"]


def test_an_incomplete_inventory_is_drawn_but_not_planned_on() -> None:
    inventory = {"nodes": [{"name": "a", "gpus": 1}], "complete": False}
    assert len(drawn(inventory).nodes) == 1
    with pytest.raises(InventoryError):
        drawn(inventory, {"models": [{"key": "m", "replicas": 1, "gpus": 1}]})


@settings(max_examples=cases(25), deadline=None)
@given(planning_inputs())
def test_pieces_and_free_share_fill_every_card(inputs: PlanningInputs) -> None:
    answer = placement_map(Scenario(*inputs))
    for card in (card for node in answer.nodes for card in node.cards):
        assert sum(piece.share for piece in card.pieces) + card.free_share == WHOLE
        assert all(piece.share > 0 for piece in card.pieces)
        assert all((piece.model is None) == (piece.holder == "unknown") for piece in card.pieces)


@settings(max_examples=cases(25), deadline=None)
@given(planning_inputs(exact=True))
def test_free_shares_equal_those_of_a_simulated_cluster_after_the_plan(
    inputs: PlanningInputs
) -> None:
    fleet, inventory = inputs
    plan = plan_for(fleet, inventory)
    nodes = simulate(inventory, fleet.policies, fleet.name, None)
    for member in (member for action in plan.actions for member in action.members):
        nodes[member.node_id].take(member.gpus, member.vram, member.cpus, member.memory)
    answer = placement_map(Scenario(fleet, inventory))
    for node in answer.nodes:
        if node.state == "ALIVE" and nodes[node.id].exact:
            assert {card.index: card.free_share for card in node.cards} == {
                card.index: WHOLE - card.share for card in nodes[node.id].cards}
    claimed = sum(member.gpus for action in plan.actions for member in action.members)
    pieces = [piece for node in answer.nodes for card in node.cards for piece in card.pieces]
    assert sum(piece.share for piece in pieces if piece.holder == "new") == claimed


def test_pieces_and_the_legend_name_the_variants_of_running_and_new_replicas() -> None:
    ways = [{"name": "h", "gpus": 1, "hash": "x", "selector": {"pool": "h"}},
            {"name": "a", "gpus": 2, "hash": "y", "selector": {"pool": "a"}}]
    inventory = {"nodes": [{"name": "h1", "gpus": 2, "labels": {"pool": "h"}},
                           {"name": "a1", "gpus": 4, "labels": {"pool": "a"}}],
                 "replicas": [
                     {"model": "m", "id": 0, "node": "h1", "gpus": 1, "cards": [0], "hash": "x", "variant": "former"},
                     {"model": "m", "id": 1, "node": "a1", "gpus": 1, "cards": [0], "hash": "z", "variant": "gone"},
                     {"model": "m", "id": 2, "node": "a1", "gpus": 1, "cards": [1], "hash": "z"}]}
    answer = drawn(inventory, {"models": [{"key": "m", "replicas": 5, "variants": ways}]})
    found = {piece.replica: (piece.variant, piece.holder) for node in answer.nodes for card in node.cards
             for piece in card.pieces}
    assert found == {"m/0": ("h", "live"), "m/1": ("gone", "live"), "m/2": (None, "live"),
                     "m/3": ("h", "new"), "m/4": ("a", "new")}
    [entry] = answer.legend
    assert [(one.name, one.live, one.new) for one in entry.variants] == [
        ("h", 1, 1), ("a", 0, 1), ("", 1, 0), ("gone", 1, 0)]
    assert (entry.live, entry.new) == (3, 2)
    # without a file their marks tell them apart
    [entry] = drawn(inventory).legend
    assert [(one.name, one.live) for one in entry.variants] == [("", 1), ("former", 1), ("gone", 1)]
    plain = drawn(inventory, {"models": [{"key": "m", "replicas": 3, "gpus": 1}]})
    assert "variant" not in plain.model_dump_json(by_alias=True)
