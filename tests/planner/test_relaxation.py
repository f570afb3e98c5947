"""The bound over groups of nodes is never below the optimum, and equal to it if proven."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.families import FAMILIES, draw_inputs
from oracle.optimum import best_possible
from oracle.question import ask_about
from random_cases import cases
from stated import problem_of, stated

from fleetctl.planner.placement.bid_prices import CardShare, TooManyError, maximal_packings
from fleetctl.planner.placement.exact import model_rows
from fleetctl.planner.placement.exact.exact import climb, max_replicas, relax
from fleetctl.planner.placement.objective import Level

SEEDS = range(400, 400 + cases(1))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("packings", [True, False], ids=["packings", "counts"])
def test_the_bound_is_never_below_the_optimum(family: str, packings: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not packings:
        monkeypatch.setattr(model_rows, "MAX_PACKING_COLUMNS", 0)
    for seed in SEEDS:
        fleet, inventory = draw_inputs(family, seed)
        best = best_possible(ask_about(fleet, inventory), deterministic_time=1)
        if best.levels:
            relaxation = relax(stated(fleet, inventory))
            levels = climb(relaxation).levels
            assert tuple(value for level in levels for value in level) >= best.vector
            assert max_replicas(relaxation) >= best.replicas


def test_the_bound_over_pools_is_exact_for_whole_cards_of_dividing_sizes() -> None:
    models = [{"replicas": 9, "gpus": size} for size in (8, 4, 2, 1)]
    problem = problem_of(models, [{"gpus": gpus} for gpus in (8, 7, 6, 5, 3)])
    assert len(relax(problem).pools) == 1
    assert climb(relax(problem)).levels == (Level(served=4, units=290_000, replicas=15),)


def test_free_shares_do_not_add_up_over_cards() -> None:
    problem = problem_of([{"replicas": 9, "gpus": 0.6}, {"replicas": 9, "gpus": 0.3}], [{"gpus": 2}])
    assert climb(relax(problem)).levels == (Level(served=2, units=18_000, replicas=5),)


def test_a_card_with_shares_on_it_is_not_a_whole_card() -> None:
    problem = problem_of([{"replicas": 2, "gpus": 2}, {"replicas": 1, "gpus": 0.1}], [{"gpus": 4}])
    assert climb(relax(problem)).levels == (Level(served=2, units=21_000, replicas=2),)


def test_higher_priorities_come_first_and_are_never_reduced() -> None:
    models = [{"replicas": 4, "gpus": 1, "priority": 0}, {"replicas": 1, "gpus": 3, "priority": 5}]
    assert climb(relax(problem_of(models, [{"gpus": 4}]))).levels == (Level(1, 30_000, 1), Level(1, 10_000, 1))


def test_climbing_stops_at_the_first_stage_above_the_incumbent() -> None:
    relaxation = relax(problem_of([{"replicas": 4, "gpus": 2}, {"replicas": 4, "gpus": 1}], [{"gpus": 4}]))
    top = climb(relaxation).levels
    assert climb(relaxation, top).attained
    short = climb(relaxation, (top[0]._replace(units=30_000),))
    assert not short.attained
    assert short.levels[0].units == top[0].units


def test_gangs_are_not_split_over_domains() -> None:
    nodes = [{"gpus": 8, "labels": {"zone": zone}} for zone in "xxxyyy"]
    problem = problem_of([{"replicas": 3, "sameLabel": "zone", "gang": {"gpus": 8, "workers": 1}}], nodes)
    assert climb(relax(problem)).levels == (Level(served=1, units=320_000, replicas=2),)


def test_unlike_ranks_of_a_gang_need_distinct_nodes() -> None:
    workers = [{"name": "main", "members": [{"role": "Leader", "resources": {"gpus": 1}},
                                            {"role": "Worker", "count": 2, "resources": {"gpus": 2}}]}]
    assert max_replicas(relax(problem_of([{"replicas": 1, "workers": workers}], [{"gpus": 8}] * 2))) == 0


def test_order_of_models_and_nodes_does_not_matter() -> None:
    models = [{"replicas": 3, "gpus": size, "cpus": 3} for size in (0.4, 1, 2, 3)]
    nodes = [{"gpus": gpus, "cpus": 8} for gpus in (1, 2, 4, 4)]
    assert climb(relax(problem_of(models, nodes))).levels == climb(relax(problem_of(models[::-1], nodes[::-1]))).levels


@settings(max_examples=cases(60), deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 10), min_size=1, max_size=4, unique=True), st.integers(1, 12))
def test_every_packing_of_a_card_is_part_of_a_maximal_one(shares: list[int], room: int) -> None:
    found = maximal_packings([CardShare(share, 0) for share in shares], room, 0, 10_000)
    for packing in _all_packings(shares, room):
        assert any(all(a <= b for a, b in zip(packing, one, strict=True)) for one in found)
    assert set(found) <= set(_all_packings(shares, room))


def _all_packings(shares: list[int], room: int) -> list[tuple[int, ...]]:
    if not shares:
        return [()]
    return [(count, *rest) for count in range(room // shares[0] + 1)
            for rest in _all_packings(shares[1:], room - count * shares[0])]


def test_packings_stay_within_the_memory_of_the_card() -> None:
    assert maximal_packings([CardShare(1, 6), CardShare(2, 0)], 6, 10, 100) == ((0, 3), (1, 2))


def test_too_many_packings_are_refused() -> None:
    with pytest.raises(TooManyError):
        maximal_packings([CardShare(share, 0) for share in range(1, 9)], 60, 0, 50)
