"""Patterns: column generation for odd sizes, shared cards, and nodes whose CPUs run out before their cards."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from oracle.tiers import without
from random_cases import cases
from stated import problem_of, realized

from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.objective import Level, count_options, layout_levels, levels_of
from fleetctl.planner.placement.pack import pack
from fleetctl.planner.placement.patterns import pack_by_patterns, stage_worth
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.realize import PackingLayout

STEPS = 4_000


def packed(problem: Problem, incumbent: PackingLayout | None = None) -> PackingLayout:
    return pack_by_patterns(problem, steps=STEPS, incumbent=incumbent)


def reaches(problem: Problem, layout: PackingLayout) -> list[tuple[int, int, int]]:
    """Return the levels of a layout, after checking it on the ledger."""
    promised = [tuple(level) for level in layout_levels(problem, layout.replicas)]
    assert [tuple(level) for level in realized(problem, layout)] == promised
    held = Counter(piece.demand for pieces in layout.assignments.values() for piece in pieces)
    for number, demand in enumerate(problem.demands):
        members = sum(gang.size * gang.copies for gang in demand.gangs)
        assert held[number] == layout.replicas[number] * members
    return promised


def test_cpu_hungry_and_cpu_light_members_are_mixed_on_every_node() -> None:
    """4 x 20 + 4 x 4 CPUs fill a node and its cards; the hungry ones alone would strand half of the cards."""
    nodes: list[dict[str, Any]] = [{"gpus": 8, "cpus": 96, "memory": "4Ti"}] * 60
    problem = problem_of([{"gpus": 1, "cpus": 20, "replicas": 240}, {"gpus": 1, "cpus": 4, "replicas": 240}], nodes)
    assert reaches(problem, packed(problem)) == [(2, 4_800_000, 480)]


def test_shares_that_fill_a_card_only_together_are_combined() -> None:
    nodes: list[dict[str, Any]] = [{"gpus": 4, "cpus": 64}] * 50
    shares = {0.22: 200, 0.23: 200, 0.55: 200}
    problem = problem_of([{"gpus": share, "replicas": count} for share, count in shares.items()], nodes)
    assert reaches(problem, packed(problem)) == [(3, 2_000_000, 600)]


def test_odd_sizes_fill_every_card_of_the_nodes() -> None:
    """8 = 5 + 3 and 7 + 1: every card of 60 nodes is taken, and no other mix does that."""
    nodes: list[dict[str, Any]] = [{"gpus": 8, "cpus": 64}] * 60
    problem = problem_of([{"gpus": 5, "replicas": 30}, {"gpus": 3, "replicas": 30}, {"gpus": 7, "replicas": 30},
                          {"gpus": 1, "replicas": 30}], nodes)
    assert reaches(problem, packed(problem)) == [(4, 4_800_000, 120)]


def test_a_higher_priority_gets_all_it_can_before_a_lower_one() -> None:
    nodes: list[dict[str, Any]] = [{"gpus": 8, "cpus": 40}] * 45
    problem = problem_of([{"gpus": 0, "cpus": 30, "replicas": 1, "priority": 9},
                          {"gpus": 0.5, "cpus": 5, "replicas": 500, "priority": 5},
                          {"gpus": 1, "cpus": 0, "replicas": 500}], nodes)
    high, middle, low = reaches(problem, packed(problem))
    assert high == (1, 0, 1)
    assert middle == (1, 354 * 5_000, 354)
    assert low[2] >= 0.97 * (45 * 8 - 177)


def test_replicas_of_one_member_are_packed_around_the_gangs() -> None:
    """The gang takes one of 11 cards of each node; 4 + 3 + 3 fill the rest, and 4 + 4 on one node waste two."""
    problem = problem_of([{"gang": {"gpus": 1, "workers": 9}, "replicas": 1}, {"gpus": 3, "replicas": 20},
                          {"gpus": 4, "replicas": 10}], [{"gpus": 11}] * 10)
    demands = [demand for one in problem.demands for demand in one.demands]
    with without("solver"), without("rearrange"):
        placed = pack(demands, Placer(problem.ledger)).placed
    assert Counter(one.demand.shape.key for one in placed) == {"m0": 1, "m1": 20, "m2": 10}


def test_a_model_left_out_by_rounding_gets_its_first_replica_and_patterns_fill_the_rest() -> None:
    """7 + 1, 4 + 4 and 4 with all of the 0.3 fit on three nodes; the patterns leave the model of 0.3 of a card out."""
    problem = problem_of([{"gpus": 0.3, "cpus": 3, "replicas": 4}, {"gpus": 4, "cpus": 6, "replicas": 4},
                          {"gpus": 7, "cpus": 19, "replicas": 4}, {"gpus": 1, "cpus": 7, "replicas": 1}],
                         [{"gpus": 8, "cpus": 32}, {"gpus": 8, "cpus": 32}, {"gpus": 8, "cpus": 48}])
    demands = [demand for one in problem.demands for demand in one.demands]
    with without("solver"), without("rearrange"):
        placed = pack(demands, Placer(problem.ledger)).placed
    assert levels_of(demands, count_options(placed)) == (Level(4, 212_000, 9),)


def test_memory_that_ray_ignores_decides_which_shares_share_a_node() -> None:
    """Ray puts a second half on the card of the first; its 40Gi are not there, so two of them never share a node
    unless something else filled that card up."""
    nodes: list[dict[str, Any]] = [{"gpus": 2, "vram": "48Gi"}] * 3
    problem = problem_of([{"gpus": 0.5, "vram": "40Gi", "replicas": 6}, {"gpus": 0.5, "vram": "2Gi", "replicas": 6}],
                         nodes)
    assert reaches(problem, packed(problem)) == [(2, 60_000, 12)]


def test_without_a_better_layout_another_equally_good_one_is_returned() -> None:
    problem = problem_of([{"gpus": 1, "replicas": 20}], [{"gpus": 8}] * 2)
    first = packed(problem)
    assert reaches(problem, first) == [(1, 160_000, 16)]
    assert reaches(problem, packed(problem, first)) == [(1, 160_000, 16)]


def test_a_worse_incumbent_is_improved_on() -> None:
    problem = problem_of([{"gpus": 5, "replicas": 2}, {"gpus": 3, "replicas": 4}], [{"gpus": 8}] * 2)
    threes = PackingLayout((4, 0), {}) if problem.demands[0].gpu_units == 30_000 else PackingLayout((0, 4), {})
    assert reaches(problem, packed(problem, threes)) == [(2, 160_000, 4)]


@pytest.mark.parametrize("seed", range(cases(2)))
def test_order_of_models_and_nodes_does_not_change_what_is_placed(seed: int) -> None:
    random = Random(seed)
    models: list[dict[str, Any]] = [
        {"key": f"k{place}", "gpus": random.choice([0.3, 0.4, 0.7, 1, 2, 3]), "cpus": random.randint(1, 12),
         "replicas": random.randint(1, 40)} for place in range(8)]
    nodes: list[dict[str, Any]] = [{"name": f"n{place}", "gpus": random.choice([4, 8]), "cpus": random.choice([32, 64])}
                                   for place in range(12)]
    found = set()
    for _ in range(3):
        problem = problem_of(models, nodes)
        layout = packed(problem)
        assert layout == packed(problem)
        found.add(tuple(reaches(problem, layout)))
        random.shuffle(models)
        random.shuffle(nodes)
    assert len(found) == 1


def test_the_search_stops_after_its_steps_with_a_valid_result() -> None:
    nodes: list[dict[str, Any]] = [{"gpus": 8, "cpus": 96}] * 50
    problem = problem_of([{"gpus": 1, "cpus": cpus, "replicas": 60} for cpus in (20, 15, 11, 7, 4, 2)], nodes)
    hurried = pack_by_patterns(problem, steps=1)
    assert reaches(problem, packed(problem)) >= reaches(problem, hurried)


def test_completing_a_higher_priority_outweighs_any_node() -> None:
    problem = problem_of([{"gpus": 1, "replicas": 1, "priority": 1}, {"gpus": 8, "replicas": 9}], [{"gpus": 8}])
    worth = stage_worth(problem, 0, [1, 0])
    assert worth.first[0] > worth.first[1]
    assert worth.max_further.tolist() == [0, 8]
