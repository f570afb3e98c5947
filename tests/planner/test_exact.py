"""The exact tier: the lemma behind its bound, optima of small fleets confirmed by the ledger, and its limits."""

from __future__ import annotations

import ctypes
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.exhaustive import TooLarge, try_everything
from oracle.families import BLIND, FAMILIES, draw_inputs
from oracle.optimum import best_possible
from oracle.question import ask_about
from random_cases import cases
from short_forms import plan_for
from stated import problem_of, realized, stated

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.exact.columns import Holdings
from fleetctl.planner.placement.exact.exact import (
    MAX_LATER,
    bound_replicas,
    climb,
    examine,
    layout_at,
    relax,
    relax_by_node,
)
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard
from fleetctl.planner.placement.objective import Level, levels_of
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.realize import PackingLayout


def nothing_placed(problem: Problem) -> tuple[Level, ...]:
    return levels_of([demand for one in problem.demands for demand in one.demands], {})


def solved(problem: Problem) -> PackingLayout:
    layout = examine(problem, nothing_placed(problem)).layout
    assert layout is not None
    return layout


Free = st.lists(st.integers(0, 8), min_size=1, max_size=4)
Members = st.fixed_dictionaries({size: st.integers(0, 5) for size in (1, 2, 4, 8)})


@settings(max_examples=cases(100), deadline=None, derandomize=True)
@given(Free, Members)
def test_members_of_dividing_sizes_fit_exactly_if_every_size_has_enough_slots(
    free: list[int], members: dict[int, int]
) -> None:
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
def test_the_ledger_accepts_the_optimum_of_the_solver(family: str) -> None:
    for seed in range(500, 504):
        fleet, inventory = draw_inputs(family, seed)
        problem = stated(fleet, inventory)
        if not problem.demands:
            continue
        by_node = relax_by_node(relax(problem))
        best = best_possible(ask_about(fleet, inventory), deterministic_time=1)
        assert by_node is not None
        top = climb(by_node, (), to_the_top=True)
        assert tuple(value for level in top.levels for value in level) == best.vector
        if any(best.vector):
            assert top.values is not None
            assert realized(problem, layout_at(by_node, top.values)) == top.levels


def test_the_optimum_under_rays_card_choice_is_found() -> None:
    """Compared with every order and every choice of nodes."""
    judged = 0
    for seed in range(12):
        fleet, inventory = draw_inputs("blind", seed, "tiny")
        problem = stated(fleet, inventory)
        with suppress(TooLarge):
            best = try_everything(ask_about(fleet, inventory))
            if problem.demands:
                found = examine(problem, nothing_placed(problem))
                assert tuple(value for level in found.levels for value in level) == best.vector
                assert found.layout is None or realized(problem, found.layout) == found.levels
                judged += 1
    assert judged >= 6


def test_a_fleet_too_large_to_distinguish_each_node_has_only_a_bound() -> None:
    models = [{"replicas": 900, "gpus": size, "priority": size} for size in range(1, 8)]
    problem = problem_of(models, [{"gpus": 8}] * (MAX_LATER // 7 + 1))
    found = examine(problem, nothing_placed(problem))
    assert (found.layout, len(found.relaxation.pools)) == (None, 1)


def test_equal_nodes_are_computed_once() -> None:
    gib = 1 << 30
    offer = Offer(tuple(OfferedCard(index, 10_000, 48 * gib, 48 * gib) for index in range(2)), 20_000)
    holdings = Holdings()
    claims = [Claim(gpus=5_000, vram=2 * gib), Claim(gpus=5_000, vram=40 * gib)]
    assert holdings.of(offer, claims, [2, 2]) == [(2, 2)]
    assert holdings.of(offer, claims, [0, 2]) == [(0, 1)]
    assert holdings.of(offer, claims, [2, 2]) is holdings.of(offer, claims, [2, 2])


def test_ranks_of_a_gang_are_on_different_nodes() -> None:
    problem = problem_of([{"replicas": 3, "gang": {"gpus": 1, "workers": 2}}], [{"gpus": 3}] * 3)
    layout = examine(problem, ()).layout
    assert layout is not None
    assert realized(problem, layout) == (Level(served=1, units=90_000, replicas=3),)


def test_every_model_gets_its_first_replica_before_any_gets_more() -> None:
    nodes: list[dict[str, Any]] = [{"gpus": 4, "cpus": 128}] * 2
    models: list[dict[str, Any]] = [{"gpus": 1, "cpus": 1 + place / 2, "replicas": 8} for place in range(8)]
    problem = problem_of(models, nodes)
    layout = solved(problem)
    assert layout.replicas == (1,) * 8
    assert realized(problem, layout) == (Level(served=8, units=80_000, replicas=8),)


def test_a_gang_bound_to_a_label_stays_inside_one_value() -> None:
    """Two values of three and two nodes: a gang of four on distinct nodes fits in neither, one of three in one."""
    nodes: list[dict[str, Any]] = [{"gpus": 8, "labels": {"fabric": value}} for value in "aaabb"]
    gang = {"sameLabel": "fabric", "replicas": 2}
    problem = problem_of([{"gang": {"gpus": 4, "workers": 3}, **gang}, {"gang": {"gpus": 3, "workers": 2}, **gang}],
                         nodes)
    layout = solved(problem)
    assert realized(problem, layout) == (Level(served=1, units=180_000, replicas=2),)
    assert set(layout.assignments) == {0, 1, 2}


def test_a_slot_cap_holds_on_every_node() -> None:
    nodes: list[dict[str, Any]] = [{"gpus": 8}] * 5
    problem = problem_of([{"gpus": 1, "replicas": 40}, {"gpus": 1, "replicas": 3}], nodes,
                         policies=[{"maxReplicasPerModel": 2}])
    layout = solved(problem)
    assert realized(problem, layout) == (Level(served=2, units=130_000, replicas=13),)
    assert all(count <= 2 for pieces in layout.assignments.values()
               for count in Counter(piece.demand for piece in pieces).values())


def test_no_layout_is_computed_for_levels_already_reached() -> None:
    problem = problem_of([{"replicas": 3, "gpus": 4}], [{"gpus": 8}])
    reached = (Level(served=1, units=80_000, replicas=2),)
    found = examine(problem, reached)
    assert found.levels == reached
    assert found.layout is None


def test_the_bound_on_replicas_keeps_to_the_order_of_priorities() -> None:
    """Eight small replicas would fit in place of the large one, but no plan does that."""
    models = [{"replicas": 1, "gpus": 8, "priority": 5}, {"replicas": 8, "gpus": 1}]
    problem = problem_of(models, [{"gpus": 8}])
    reached = (Level(served=1, units=80_000, replicas=1), Level(served=0, units=0, replicas=0))
    assert bound_replicas(examine(problem, reached), reached) == 1


def test_the_bound_on_replicas_is_for_plans_as_good_as_the_one_found() -> None:
    """With one large replica less there is room for seven more replicas, but that plan is worse."""
    models = [{"gpus": 8, "cpus": 8, "replicas": 2}, {"gpus": 7, "cpus": 8, "replicas": 1},
              {"gpus": 0, "cpus": 1, "replicas": 24}]
    problem = problem_of(models, [{"gpus": 8, "cpus": 8}] * 4, policies=[{"maxReplicasPerModel": 99}])
    found = examine(problem, nothing_placed(problem))
    assert found.levels == (Level(served=3, units=230_000, replicas=11),)
    assert bound_replicas(found, (Level(served=3, units=220_000, replicas=4),)) == 11


def test_the_solver_writes_nothing_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS 1.12 prints a line when it re-solves a point, which would corrupt a plan printed as JSON."""
    plan_for(*draw_inputs("card-sizes", 43))
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == ""
