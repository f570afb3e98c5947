"""Remove and reinsert: finds what a first pass missed, never gets worse, and leaves slots without gaps."""

from __future__ import annotations

from typing import Any

from checker import check_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory, short_model

from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.greedy import place_some
from fleetctl.planner.placement.ledger.ledger import open_ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.objective import count_options, levels_of, score, wanted_levels
from fleetctl.planner.placement.rearrange import CountedLevels, rearrange


def first_pass(nodes: list[dict[str, Any]], models: list[dict[str, Any]]) -> tuple[list[Demand], list[Placed], Placer]:
    """Place in file order and without optimizing, so that something is left to improve."""
    ledger = open_ledger(short_inventory({"nodes": nodes}), (), sort_out(short_inventory({"nodes": nodes}), "lab", ()))
    demands = [Demand(replica_shape(short_model(model)), model["replicas"], 0, model.get("priority", 0), place)
               for place, model in enumerate(models)]
    placer = Placer(ledger)
    return demands, [one for demand in demands for one in place_some(demand, demand.missing, placer)], placer


def test_small_replicas_make_room_for_a_large_one() -> None:
    nodes = [{"name": name, "gpus": 4} for name in "ab"]
    demands, placed, placer = first_pass(nodes, [
        {"key": "odd", "replicas": 2, "gpus": 3}, {"key": "pair", "replicas": 1, "gpus": 2},
        {"key": "whole", "replicas": 1, "gpus": 4}])
    assert len(placed) == 2
    better = rearrange(demands, placed, placer, opening=[0, 0], steps=500, enough=wanted_levels(demands))
    served = {one.demand.shape.key for one in better}
    assert len(served) == 2
    assert "whole" in served, "4 + 3 GPUs are more than 3 + 3, for the same number of models"


@settings(max_examples=cases(30))
@given(st.lists(st.tuples(st.sampled_from([0.3, 0.5, 0.7, 1, 2, 3]), st.integers(1, 6)), min_size=2, max_size=5))
def test_rearranging_never_places_less_and_the_ledger_has_the_result(demand: list[tuple[float, int]]) -> None:
    nodes = [{"name": name, "gpus": gpus} for name, gpus in (("a", 2), ("b", 3), ("c", 4))]
    models = [{"key": f"m{place}", "replicas": count, "gpus": gpus} for place, (gpus, count) in enumerate(demand)]
    demands, placed, placer = first_pass(nodes, models)
    fresh = open_ledger(short_inventory({"nodes": nodes}), (), sort_out(short_inventory({"nodes": nodes}), "lab", ()))
    before = score(placed, demands, 0, 0)
    after = rearrange(demands, placed, placer, opening=list(fresh.numbers), steps=400, enough=wanted_levels(demands))
    assert score(after, demands, 0, 0) >= before
    again = Placer(fresh)
    for one in after:
        again.take_at(one.demand.shape, one.seats)
    assert [placer.ledger.offer(node) for node in range(3)] == [fresh.offer(node) for node in range(3)]
    for node in range(3):
        for demand in demands:
            held = placer.ledger.slots(node, demand.shape.key)
            assert held == (1 << held.bit_count()) - 1, "slots without gaps"


def test_rearranging_keeps_every_rule() -> None:
    nodes = [{"name": f"n{number}", "gpus": 8} for number in range(6)]
    models = [{"key": f"m{size}-{number}", "replicas": 4, "gpus": size}
              for size in (3, 5, 2, 0.6) for number in range(2)]
    fleet, inventory = short_fleet({"models": models}), short_inventory({"nodes": nodes})
    check_plan(plan_for(fleet, inventory), fleet, inventory)


@settings(max_examples=cases(50))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1), st.integers(0, 1)), max_size=5),
       st.lists(st.integers(0, 99), max_size=30))
def test_levels_counted_in_and_out_are_those_of_what_is_left(
        models: list[tuple[int, int, int, int]], moves: list[int]) -> None:
    shapes = [replica_shape(short_model({"key": "m", "replicas": 1, "gpus": gpus})) for gpus in (1, 2)]
    demands = [Demand(shapes[variant], missing + 1, live, 10 * high, place, variant, least, None, shapes[0].gpu_units)
               for place, (missing, least, live, high) in enumerate(models) for variant in range(2)]
    counted, there = CountedLevels(demands), list[Placed]()
    for move in moves if demands else ():
        if move % 3 or not there:
            there.append(Placed(demands[move % len(demands)], ()))
            counted.count(there[-1:], 1, None)
        else:
            counted.count([there.pop(move % len(there))], -1, None)
        assert counted.levels == levels_of(demands, count_options(there))
