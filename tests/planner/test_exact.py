"""The exact tier: the lemma it rests on, layouts the ledger confirms, and what it leaves to others."""

from __future__ import annotations

from collections import Counter

import pytest
from how_many import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.families import BLIND, FAMILIES, draw_world
from oracle.optimum import best_possible
from oracle.question import ask_about
from stated import problem_of, realized, stated

from fleetctl.planner.placement.exact.exact import bound_replicas, examine
from fleetctl.planner.placement.objective import Level, placed_levels, priorities
from fleetctl.planner.placement.problem import Problem


def nothing_placed(problem: Problem) -> tuple[Level, ...]:
    return placed_levels([], priorities([demand for one in problem.demands for demand in one.demands]))


Free = st.lists(st.integers(0, 8), min_size=1, max_size=4)
Members = st.fixed_dictionaries({size: st.integers(0, 5) for size in (1, 2, 4, 8)})


@settings(max_examples=cases(100), deadline=None, derandomize=True)
@given(Free, Members)
def test_dividing_sizes_fit_exactly_when_every_size_has_slots_enough(free: list[int], members: dict[int, int]) -> None:
    enough = all(sum(size // slot * count for size, count in members.items() if size >= slot)
                 <= sum(cards // slot for cards in free) for slot in members)
    sizes = sorted(Counter(members).elements(), reverse=True)
    assert enough == _fits(tuple(sorted(free)), tuple(sizes))


def _fits(free: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Try every node for every member."""
    if not sizes:
        return True
    return any(_fits(tuple(sorted((*free[:place], cards - sizes[0], *free[place + 1:]))), sizes[1:])
               for place, cards in enumerate(free) if cards >= sizes[0] and cards not in free[:place])


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in BLIND])
def test_a_layout_reaches_on_the_ledger_what_it_says(family: str) -> None:
    for seed in range(500, 503):
        fleet, inventory = draw_world(family, seed)
        problem = stated(fleet, inventory)
        if not problem.demands:
            continue
        found = examine(problem, nothing_placed(problem))
        best = best_possible(ask_about(fleet, inventory), deterministic_time=1)
        reached = nothing_placed(problem) if found.layout is None else realized(problem, found.layout)
        assert tuple(value for level in found.levels for value in level) >= best.vector
        assert reached == found.levels


def test_layouts_of_large_pools_are_whole() -> None:
    models = [{"replicas": 40, "gpus": size} for size in (1, 2, 4, 8)]
    models += [{"replicas": 5, "gang": {"gpus": 8, "workers": 3}}, {"replicas": 7, "gpus": 0.5}]
    problem = problem_of(models, [{"gpus": 8 - place % 4} for place in range(60)])
    found = examine(problem, nothing_placed(problem))
    assert len(found.relaxation.pools) == 1
    assert found.layout is not None
    assert realized(problem, found.layout) == found.levels


def test_full_nodes_are_preferred_over_empty_ones() -> None:
    live = [{"model": "other", "id": 0, "node": "n01", "gpus": 4, "fleet": "other"}]
    problem = problem_of([{"replicas": 2, "gpus": 2}], [{"gpus": 8}] * 3, replicas=live)
    layout = examine(problem, ()).layout
    assert layout is not None
    assert set(layout.stands) == {1}


def test_ranks_of_a_gang_stand_on_different_nodes() -> None:
    problem = problem_of([{"replicas": 3, "gang": {"gpus": 1, "workers": 2}}], [{"gpus": 3}] * 3)
    layout = examine(problem, ()).layout
    assert layout is not None
    assert realized(problem, layout) == (Level(served=1, units=90_000, replicas=3),)


def test_what_is_reached_already_needs_no_layout() -> None:
    problem = problem_of([{"replicas": 3, "gpus": 4}], [{"gpus": 8}])
    found = examine(problem, (Level(served=1, units=80_000, replicas=2),))
    assert found.attained
    assert found.layout is None


def test_the_bound_on_replicas_keeps_to_the_order_of_priorities() -> None:
    """Eight small ones would fit in place of the large one; but no plan does that."""
    models = [{"replicas": 1, "gpus": 8, "priority": 5}, {"replicas": 8, "gpus": 1}]
    problem = problem_of(models, [{"gpus": 8}])
    reached = (Level(served=1, units=80_000, replicas=1), Level(served=0, units=0, replicas=0))
    assert bound_replicas(examine(problem, reached), reached) == 1
