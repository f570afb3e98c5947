"""Spread: an explicit spread outranks tightness but not the objective; a limit is never exceeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from checker import check_plan, crowded_values, spread_of, value_on
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory, short_model
from simulated import SimNode, selects, simulate

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.greedy import place_some
from fleetctl.planner.placement.ledger.ledger import open_ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.objective import crowding
from fleetctl.planner.placement.spread_out import spread_out
from fleetctl.planner.questions.capacity import capacity
from fleetctl.planner.questions.scenario import Scenario

NODE_ID, NODE = "ray.io/node-id", "fleet.io/node"
Counts = dict[str, int]


def hosts(**gpus: int) -> list[dict[str, Any]]:
    return [{"name": name, "gpus": count, "labels": {NODE: name}} for name, count in gpus.items()]


def nodes_used(plan: Plan, key: str = "m") -> Counter[str]:
    return Counter(node for action in plan.actions if action.model == key
                   for node in {member.node for member in action.members})


def planned(models: list[dict[str, Any]], nodes: list[dict[str, Any]], **inventory: Any) -> Plan:
    fleet, cluster = short_fleet({"models": models}), short_inventory({"nodes": nodes, **inventory})
    plan = plan_for(fleet, cluster)
    check_plan(plan, fleet, cluster)
    return plan


@pytest.mark.parametrize("label", [NODE_ID, NODE])
@pytest.mark.parametrize(("gpus", "replicas", "counts"), [
    (0.5, 4, [2, 1, 1]), (1, 4, [2, 1, 1]), (1, 3, [1, 1, 1]), (2, 3, [1, 1, 1]), (0.5, 3, [1, 1, 1]),
])
def test_gpu_models_are_spread_over_nodes(label: str, gpus: float, replicas: int, counts: list[int]) -> None:
    plan = planned([{"key": "m", "replicas": replicas, "gpus": gpus, "spread": label}], hosts(a=2, b=4, c=8))
    assert sorted(nodes_used(plan).values(), reverse=True) == counts


def test_without_a_spread_the_tightest_fit_wins() -> None:
    assert nodes_used(planned([{"key": "m", "replicas": 4, "gpus": 0.5}], hosts(a=2, b=4, c=8))) == {"a": 4}


def test_a_certain_card_comes_before_spread() -> None:
    """On node a, Ray might hand out a card in foreign use."""
    nodes = [{**hosts(a=2)[0], "vram": "24Gi", "measured": {0: 9 << 30}}, {**hosts(b=2)[0], "vram": "24Gi"}]
    live = [{"model": "m", "id": 0, "node": "b", "gpus": 1, "cards": [0]}]
    plan = planned([{"key": "m", "replicas": 2, "gpus": 1, "spread": NODE}], nodes, replicas=live)
    assert nodes_used(plan) == {"b": 1}


def test_placing_more_comes_before_spread_and_spread_uses_the_remaining_freedom() -> None:
    plan = planned([{"key": "m", "replicas": 3, "gpus": 1, "spread": NODE}, {"key": "pair", "replicas": 1, "gpus": 2}],
                   hosts(a=2, b=2, c=1))
    assert plan.summary.create == 4
    assert sorted(nodes_used(plan).values()) == [1, 2]


def test_a_fleet_short_of_room_keeps_the_spread_that_costs_no_replica() -> None:
    """Not everything fits, so the optimizing tiers decide; they ignore spreads."""
    models = [{"key": "m", "replicas": 6, "gpus": 1, "spread": NODE}, {"key": "odd", "replicas": 9, "gpus": 3}]
    plan = planned(models, hosts(**{f"n{number}": 4 for number in range(6)}))
    assert plan.summary.blocked == 3
    assert nodes_used(plan) == {f"n{number}": 1 for number in range(6)}


def test_a_full_fleet_is_spread_beyond_single_moves() -> None:
    """Demand exceeds room, and no node has room for a replica moved from another."""
    models = [{"key": f"m{number}", "replicas": 12, "gpus": 1 + number % 2, "spread": NODE} for number in range(24)]
    plan = planned(models, hosts(**{f"n{number}": 8 for number in range(48)}))
    assert plan.blocked
    assert max(count for model in models for count in nodes_used(plan, model["key"]).values()) <= 2


def test_running_replicas_count_for_the_spread_and_are_never_moved() -> None:
    live = [{"model": "m", "id": number, "node": "a"} for number in range(3)]
    plan = planned([{"key": "m", "replicas": 6, "gpus": 1, "spread": NODE}], hosts(a=8, b=8, c=2), replicas=live)
    assert (sorted(nodes_used(plan)), sorted(nodes_used(plan).values())) == (["b", "c"], [1, 2])


def test_nodes_without_the_label_are_one_value() -> None:
    nodes = [{"name": name, "gpus": 8} for name in ("x", "y")] + hosts(a=8)
    assert sum(nodes_used(planned([{"key": "m", "replicas": 2, "gpus": 1, "spread": NODE}], nodes)).values()) == 2
    plan = planned([{"key": "m", "replicas": 4, "gpus": 1, "spread": NODE}], nodes)
    assert nodes_used(plan)["a"] == 2


def test_ranks_of_a_gang_prefer_label_values_that_the_gang_already_touches() -> None:
    nodes = [{"name": f"{zone}{number}", "gpus": 1, "labels": {"zone": zone}} for zone in "ab" for number in range(4)]
    gang = {"key": "m", "replicas": 2, "gang": {"gpus": 1, "workers": 3}, "spread": "zone"}
    zones = [{member.node[0] for member in action.members} for action in planned([gang], nodes).actions]
    assert sorted(map(sorted, zones)) == [["a"], ["b"]]


def test_gangs_bound_to_a_label_are_spread_over_its_values() -> None:
    nodes = [{"name": f"{zone}{number}", "gpus": 8, "labels": {"zone": zone}} for zone in "abc" for number in range(2)]
    gang = {"key": "m", "replicas": 3, "gang": {"gpus": 1, "workers": 1}, "sameLabel": "zone", "spread": "zone"}
    assert sorted(nodes_used(planned([gang], nodes))) == ["a0", "a1", "b0", "b1", "c0", "c1"]


@pytest.mark.parametrize(("spread", "fits"), [
    ({"label": NODE, "maxPerValue": 1}, 3), ({"label": NODE, "maxPerValue": 3}, 8),
    ({"label": NODE_ID, "maxPerValue": 2}, 6), ({"label": "zone", "maxPerValue": 1}, 0), (NODE, 14),
])
def test_capacity_keeps_the_limit(spread: Any, fits: int) -> None:
    fleet = short_fleet({"models": [{"key": "m", "replicas": 0, "gpus": 1, "spread": spread}]})
    [row] = capacity(Scenario(fleet, short_inventory({"nodes": hosts(a=2, b=4, c=8)}))).rows
    assert (row.now.fits, row.now.at_most) == (fits, fits)
    assert (row.now.code == "SPREAD_FULL") is (fits in (0, 3) or spread == {"label": NODE_ID, "maxPerValue": 2})


def test_capacity_after_the_plan_counts_what_it_places() -> None:
    limited = {"label": NODE, "maxPerValue": 1}
    fleet = short_fleet({"models": [{"key": "m", "replicas": 2, "gpus": 1, "spread": limited}]})
    [row] = capacity(Scenario(fleet, short_inventory({"nodes": hosts(a=2, b=4, c=8)}))).rows
    assert row.after_plan is not None
    assert (row.now.fits, row.after_plan.fits) == (3, 1)


def test_for_a_gang_that_would_fit_on_new_nodes_their_number_is_shown() -> None:
    limited = {"label": NODE_ID, "maxPerValue": 1}
    gang = {"key": "m", "replicas": 2, "gang": {"gpus": 8, "workers": 1}, "spread": limited}
    [blocked] = planned([gang], hosts(a=8, b=8, c=8)).blocked
    assert [(one.nodes, one.labels) for one in blocked.would_fit] == [(1, {})]


def test_the_bound_with_moves_respects_the_limit() -> None:
    """Moving m/0 to b does not help: a node takes m once, and wide needs the cards of two nodes."""
    live = [{"model": "m", "id": 0, "node": "a", "gpus": 1, "cards": [0]}]
    models = [{"key": "m", "replicas": 3, "gpus": 1, "spread": {"label": NODE, "maxPerValue": 1}}]
    plan = planned(models, hosts(a=2, b=2), replicas=live)
    assert (plan.certificate.placed, plan.certificate.upper_bound, plan.certificate.repacked_bound) == (1, 1, None)


def small_case(random: Random) -> tuple[ResolvedFleet, Inventory]:
    nodes = [{"name": f"n{number}", "gpus": random.choice([1, 2, 2, 4]),
              "labels": {"zone": random.choice("abc")} if random.random() < 0.9 else {}}
             for number in range(random.randint(2, 4))]
    models = []
    for number in range(random.randint(2, 3)):
        model: dict[str, Any] = {"key": f"m{number}", "replicas": random.randint(1, 4),
                                 "priority": random.choice([0, 0, 5]), "gpus": random.choice([0.5, 1, 1, 2])}
        if random.random() < 0.25:
            model["selector"] = {"zone": random.choice(["a", "in(a, b)", "!c"])}
        if number == 0 or random.random() < 0.5:
            model["spread"] = random.choice(["zone", NODE_ID])
        models.append(model)
    return short_fleet({"models": models}), short_inventory({"nodes": nodes})


class TooLarge(Exception):
    """Too many packings to try them all."""


def least_crowding(fleet: ResolvedFleet, inventory: Inventory, wanted: Counts) -> int:
    """The least sum of squared crowds over all packings with the given number of replicas per model."""
    visited: set[object] = set()
    start = tuple(simulate(inventory, (), fleet.name, None).values())
    spreads = {model.key: spread_of(model) for model in fleet.models}

    def below(nodes: tuple[SimNode, ...], left: Counter[str], crowd: Counter[tuple[str, str | None]]) -> Iterator[int]:
        state = (tuple((tuple(card.share for card in node.cards), node.gpus) for node in nodes),
                 tuple(sorted(left.items())), frozenset(crowd.items()))
        if state in visited:
            return
        visited.add(state)
        if len(visited) > 2_000:
            raise TooLarge
        if not left.total():
            yield sum(count * count for count in crowd.values())
        for model in fleet.models:
            member, spread = model.workers[0].members[0], spreads[model.key]
            for place, node in enumerate(nodes if left[model.key] else ()):
                copy = replace(node, cards=[replace(card) for card in node.cards])
                if not selects(member.node_selector, node.node.labels):
                    continue
                if copy.take(member.resources.gpus, 0, 0, 0) is not None:
                    touched = Counter([(model.key, value_on(node, spread[0]))] if spread else [])
                    yield from below((*nodes[:place], copy, *nodes[place + 1:]), left - Counter([model.key]),
                                     crowd + touched)

    return min(below(start, Counter(wanted), Counter()))


def test_no_packing_of_equally_many_replicas_is_less_crowded() -> None:
    compared = short_of_room = 0
    for seed in range(cases(30)):
        fleet, inventory = small_case(Random(seed))
        plan = plan_for(fleet, inventory)
        check_plan(plan, fleet, inventory)
        try:
            least = least_crowding(fleet, inventory, Counter(action.model for action in plan.actions))
        except TooLarge:
            continue
        nodes = simulate(inventory, (), fleet.name, None)
        crowds = crowded_values(fleet, inventory, None)
        for action in plan.actions:
            spread = spread_of(next(model for model in fleet.models if model.key == action.model))
            if spread:
                crowds[action.model, value_on(nodes[action.members[0].node_id], spread[0])] += 1
        assert sum(count * count for count in crowds.values()) == least, f"seed {seed}"
        compared, short_of_room = compared + 1, short_of_room + bool(plan.blocked)
    assert compared >= cases(20)
    assert short_of_room >= cases(4)


@settings(max_examples=cases(25))
@given(st.lists(st.tuples(
    st.sampled_from([0.3, 0.5, 1, 2]), st.integers(1, 5), st.sampled_from([None, NODE_ID, "zone"]),
), min_size=2, max_size=4))
def test_spreading_out_places_equally_many_is_never_more_crowded_and_is_on_the_ledger(
    wanted: list[tuple[float, int, str | None]]
) -> None:
    nodes = [{"name": name, "gpus": gpus, "labels": {"zone": zone}}
             for name, gpus, zone in (("a", 2, "x"), ("b", 3, "x"), ("c", 4, "y"), ("d", 1, "z"))]
    models = [{"key": f"m{place}", "replicas": count, "gpus": gpus, **({"spread": spread} if spread else {})}
              for place, (gpus, count, spread) in enumerate(wanted)]
    demands = [Demand(replica_shape(short_model(model)), model["replicas"], 0, 0, place)
               for place, model in enumerate(models)]
    inventory, shapes = short_inventory({"nodes": nodes}), {demand.shape.key: demand.shape for demand in demands}
    ledger, fresh = (open_ledger(inventory, (), sort_out(inventory, "lab", shapes), shapes) for _ in range(2))
    opening = list(ledger.numbers)
    placed = [one for demand in demands for one in place_some(demand, demand.missing, Placer(ledger))]
    before = crowding(demands, ledger)
    after = spread_out(demands, placed, Placer(ledger, spread_first=True), opening=opening, steps=300)
    assert Counter(one.demand.place for one in after) == Counter(one.demand.place for one in placed)
    assert crowding(demands, ledger) <= before
    again = Placer(fresh)
    for one in after:
        again.take_at(one.demand.shape, one.seats)
    assert [ledger.offer(node) for node in range(4)] == [fresh.offer(node) for node in range(4)]
    for demand in demands:
        assert ledger.crowd(demand.shape.key) == fresh.crowd(demand.shape.key)
        for node in range(4):
            held = ledger.slots(node, demand.shape.key)
            assert held == (1 << held.bit_count()) - 1 == fresh.slots(node, demand.shape.key), "slots without gaps"


def test_undo_restores_the_counts_per_value() -> None:
    inventory = short_inventory({"nodes": hosts(a=2, b=2)})
    shapes = {"m": replica_shape(short_model({"key": "m", "replicas": 2, "gpus": 1, "spread": NODE}))}
    ledger = open_ledger(inventory, (), sort_out(inventory, "lab", shapes), shapes)
    mark = ledger.mark()
    ledger.take_slots("m", (0, 1))
    slots = ledger.take_slots("m", (1,))
    assert (dict(ledger.crowd("m")), slots) == ({"a": 1, "b": 2}, {1: 1})
    ledger.lift_slots("m", slots)
    assert dict(ledger.crowd("m")) == {"a": 1, "b": 1}
    ledger.undo(mark)
    assert dict(ledger.crowd("m")) == {}
