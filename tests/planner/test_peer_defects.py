"""Defects measured in Modelplane, each as a test of the opposite outcome; D1 to D19 number its list of defects.

D1 to D4 and D16 concern running replicas: see test_never_down.py and cases/. D13 is in cases/.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from checker import check_plan
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.planner.placement.ledger import cards

Short = dict[str, Any]


def plan(models: list[Short], nodes: list[Short], replicas: list[Short] | None = None, **fleet: Any) -> Plan:
    """Plan, and check the plan."""
    asked = short_fleet({"models": models, **fleet})
    inventory = short_inventory({"nodes": nodes, "replicas": replicas or []})
    made = plan_for(asked, inventory)
    check_plan(made, asked, inventory)
    return made


def assignments(made: Plan) -> dict[str, list[str]]:
    return {action.id: [member.node for member in action.members] for action in made.actions}


def eights(*names: str, **more: Any) -> list[Short]:
    return [{"name": name, "gpus": 8, **more} for name in names]


def live(model: str, number: int, *nodes: str, **more: Any) -> Short:
    return {"model": model, "id": number, "nodes": list(nodes), "gpus": 8, "cards": list(range(8)), **more}


def test_d5_a_running_gang_counts_with_its_old_size_and_a_new_one_with_the_size_of_the_file() -> None:
    """The gang grows from 2 to 4 nodes and the target from 1 to 2, on 6 nodes: 2 + 4, and not one node twice."""
    made = plan([{"key": "g", "replicas": 2, "gang": {"gpus": 8, "workers": 3}}], eights(*"abcdef"),
                [live("g", 0, "a", "b", hash="old")])
    assert assignments(made) == {"g/1": ["c", "d", "e", "f"]}
    assert [(one.replica_id, one.code) for one in made.drift] == [(0, "SPEC_CHANGED")]
    smaller = plan([{"key": "g", "replicas": 2, "gang": {"gpus": 8, "workers": 3}}], eights(*"abcde"),
                   [live("g", 0, "a", "b", hash="old")])
    assert (assignments(smaller), smaller.blocked[0].code) == ({}, "GANG_NEEDS_NODES")


def test_d6_a_shape_too_large_for_the_cluster_is_blocked_and_running_replicas_stay() -> None:
    wanted = {"key": "g", "replicas": 1, "gang": {"gpus": 8, "workers": 7}}
    kept = plan([wanted], eights(*"abcd"), [live("g", 0, "a", "b", hash="old")])
    assert (kept.actions, kept.blocked, kept.summary.live) == ([], [], 1)
    assert [one.code for one in kept.drift] == ["SPEC_CHANGED"], "drift reports that it runs in another shape"
    more = plan([{**wanted, "replicas": 2}], eights(*"abcd"), [live("g", 0, "a", "b", hash="old")])
    assert (more.actions, more.blocked[0].code) == ([], "GANG_NEEDS_NODES")
    copies = plan([{"key": "c", "replicas": 1, "gpus": 8, "copies": 9}], eights("a", "b"))
    assert (copies.actions, copies.blocked[0].replicas) == ([], 1)


def test_d7_a_replica_of_another_fleet_with_the_same_name_is_capacity_in_use_not_ours() -> None:
    made = plan([{"key": "m", "replicas": 1, "gpus": 8}], eights("a"), [live("m", 0, "a", fleet="other-team")])
    assert (made.actions, made.summary.live) == ([], 0)
    assert made.blocked[0].code == "CLAIMED_BY_FLEET"
    assert [one.fleet for one in made.unmanaged] == ["other-team"]


def test_d8_two_models_never_get_the_same_free_node() -> None:
    models = [{"key": key, "replicas": 1, "gpus": 8} for key in ("one", "two")]
    made = plan(models, eights("a"))
    assert len(made.actions) == 1
    assert sum(one.replicas for one in made.blocked) == 1


def test_d9_a_small_model_takes_the_small_card_whichever_is_listed_first() -> None:
    h200 = {"name": "a-h200", "gpus": 8, "vram": "141Gi"}
    l4 = {"name": "z-l4", "gpus": 1, "vram": "24Gi"}
    for nodes in ([h200, l4], [l4, h200]):
        assert assignments(plan([{"key": "m", "replicas": 1, "gpus": 1, "vram": "16Gi"}], nodes)) == {"m/0": ["z-l4"]}


def test_d10_groups_find_their_nodes_in_either_order() -> None:
    small = {"name": "small", "members": [{"resources": {"gpus": 8, "vram": "141Gi"}}]}
    big = {"name": "big", "members": [{"resources": {"gpus": 8, "vram": "200Gi"}}]}
    nodes = [*eights("large", vram="288Gi"), *eights("medium", vram="142Gi")]
    for groups in ([small, big], [big, small]):
        made = plan([{"key": "m", "replicas": 1, "workers": groups}], nodes)
        where = {member.group: member.node for member in made.actions[0].members}
        assert where == {"big": "large", "small": "medium"}


def test_d11_a_model_for_any_card_leaves_the_big_one_to_the_model_that_needs_it() -> None:
    """One card of 200Gi and one of 141Gi, on two nodes or on one; whichever model, card or node comes first."""
    any_card = {"key": "any", "replicas": 1, "gpus": 1, "vram": "100Gi"}
    big_card = {"key": "big", "replicas": 1, "gpus": 1, "vram": "190Gi"}
    for models in ([any_card, big_card], [big_card, any_card]):
        for names in (("a", "b"), ("b", "a")):
            nodes = [{"name": names[0], "gpus": 1, "vram": "200Gi"}, {"name": names[1], "gpus": 1, "vram": "141Gi"}]
            assert assignments(plan(models, nodes)) == {"big/0": [names[0]], "any/0": [names[1]]}
        for sizes in ((200, 141), (141, 200)):
            fleet, inventory = short_fleet({"models": models}), _with_cards([size << 30 for size in sizes])
            made = plan_for(fleet, inventory)
            check_plan(made, fleet, inventory)
            assert len(made.actions) == 2


def _with_cards(memory: list[int]) -> Inventory:
    """Return an inventory of one node whose cards are not alike."""
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": len(memory), "vram": "1Gi"}]})
    cards = [card.model_copy(update={"memory_total": size})
             for card, size in zip(inventory.nodes[0].gpus, memory, strict=True)]
    return inventory.model_copy(update={"nodes": [inventory.nodes[0].model_copy(update={"gpus": cards})]})


def test_d12_copies_are_independent_and_may_be_in_different_pools() -> None:
    nodes = [*eights("x1", "x2", labels={"pool": "x"}), *eights("y1", labels={"pool": "y"})]
    made = plan([{"key": "m", "replicas": 1, "gpus": 8, "copies": 3}], nodes)
    assert sorted(assignments(made)["m/0"]) == ["x1", "x2", "y1"]


def test_d14_replicas_whose_nodes_are_gone_are_lost_not_running() -> None:
    """4 ran and only one node is left alive: 1 live, 3 lost and reported, 3 missing and blocked with a reason."""
    nodes = [*eights("a"), *eights("b", "c", "d", state="DEAD")]
    made = plan([{"key": "m", "replicas": 4, "gpus": 8}], nodes,
                [live("m", number, node) for number, node in enumerate("abcd")])
    assert (made.summary.live, made.summary.lost, made.blocked[0].replicas) == (1, 3, 3)
    assert {one.replica_id: one.nodes for one in made.lost} == {1: ["b"], 2: ["c"], 3: ["d"]}


def test_d15_names_do_not_decide_between_a_full_domain_and_an_empty_one() -> None:
    """Domain a has room for one gang and domain b for many: two replicas that need four nodes fit."""
    nodes = [*eights("a1", "a2", labels={"fabric": "a"}), *eights(*(f"b{n}" for n in range(8)), labels={"fabric": "b"})]
    replicas = [live("other", 0, "a1", fleet=None)]
    gang = {"key": "g", "replicas": 2, "sameLabel": "fabric", "gang": {"gpus": 8, "workers": 3}}
    made = plan([gang], nodes, replicas)
    assert len(made.actions) == 2
    assert {name[0] for where in assignments(made).values() for name in where} == {"b"}


def test_d15_free_capacity_counts_and_both_a_tight_and_an_empty_node_are_filled() -> None:
    nodes = [{"name": "a", "gpus": 1}, *eights("b")]
    made = plan([{"key": "m", "replicas": 9, "gpus": 1}], nodes)
    assert len(made.actions) == 9, "the node with one free card and the node with eight are both filled"


@pytest.mark.parametrize(("selector", "message"), [
    ({"fleet.io/pol": "l4"}, "did you mean fleet.io/pool?"),
    ({"fleet.io/pool": "L4"}, "l4"),
    ({"vram": "80Gi"}, "no node has the label vram"),
])
def test_d17_a_selector_that_matches_no_node_is_reported_with_the_nearest_label(selector: Short, message: str) -> None:
    made = plan([{"key": "m", "replicas": 1, "gpus": 1, "selector": selector}],
                eights("a", labels={"fleet.io/pool": "l4"}))
    assert made.blocked[0].code == "NODE_SELECTOR_MISMATCH"
    assert message in made.blocked[0].message


@pytest.mark.parametrize(("vram", "card", "message"), [
    ("80Gi", "81559Mi", "best is 79.65Gi of 80Gi"),
    ("141Gi", "140Gi", "best is 140Gi of 141Gi"),
])
def test_d18_a_near_miss_of_card_memory_is_reported_with_its_arithmetic(vram: str, card: str, message: str) -> None:
    made = plan([{"key": "m", "replicas": 1, "gpus": 1, "vram": vram}], eights("a", vram=card))
    assert made.blocked[0].code == "INSUFFICIENT_VRAM"
    assert message in made.blocked[0].message
    fits = plan([{"key": "m", "replicas": 1, "gpus": 1, "vram": card}], eights("a", vram=card))
    assert len(fits.actions) == 1, "the actual memory of the card is enough"


def test_d19_eight_whole_cards_may_have_two_sizes() -> None:
    inventory = _with_cards([80 << 30] * 4 + [141 << 30] * 4)
    fleet = short_fleet({"models": [{"key": "m", "replicas": 1, "gpus": 8, "vram": "70Gi"}]})
    made = plan_for(fleet, inventory)
    check_plan(made, fleet, inventory)
    assert assignments(made) == {"m/0": ["a"]}


@contextmanager
def counted(*functions: Callable[..., Any]) -> Iterator[list[int]]:
    """Count the calls of the functions, wherever they are imported; the count is the list's only item."""
    codes, count = {function.__code__ for function in functions}, [0]

    def watch(frame: FrameType, event: str, _: Any) -> None:
        count[0] += event == "call" and frame.f_code in codes

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield count
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("free", [0, 9])
def test_a_gang_of_eighty_gpus_is_refused_on_five_hundred_nodes_after_few_steps(free: int) -> None:
    """A step checks the free room of one node for one claim. Equal nodes are checked once, not one by one."""
    nodes = [{"name": f"n{number:03}", "gpus": 8, "vram": "80Gi"} for number in range(500)]
    replicas = [{"model": "other", "id": number, "node": f"n{number:03}", "gpus": 1, "cards": [0], "fleet": None}
                for number in range(free, 500)]
    fleet = short_fleet({"models": [{"key": "g", "replicas": 1, "gang": {"gpus": 8, "workers": 9}}]})
    inventory = short_inventory({"nodes": nodes, "replicas": replicas})
    with counted(cards.choose) as steps:
        made = plan_for(fleet, inventory)
    assert made.actions == []
    assert made.blocked[0].code == "GANG_NEEDS_NODES"
    assert "10 nodes" in made.blocked[0].message
    assert 0 < steps[0] <= 50
