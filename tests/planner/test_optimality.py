"""Plans for random small fleets (over 2,000 in `make test-placement`) against the true optimum, found by CP-SAT.

If the certificate claims optimality, the plan equals the optimum; otherwise it reaches at least 97 % of it at the first
difference (see oracle/verdict.py). No bound is below the optimum, and the checker accepts every plan.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from oracle.exhaustive import TooLarge
from oracle.families import BLIND, FAMILIES, Size, draw_inputs
from oracle.judge import Judged, judge
from oracle.question import ask_about
from random_cases import cases

pytestmark = pytest.mark.usefixtures("few_trials")
SMALL, BIG = cases(20), cases(3)
"""Fleets of a family."""
BLIND_SMALL, BLIND_BIG, BLIND_TINY = cases(10), cases(1), cases(20)


def complaints(judged: list[Judged]) -> list[str]:
    return [f"{one.name}: {wrong}" for one in judged for wrong in one.wrong]


def below_the_floor(judged: list[Judged]) -> list[str]:
    return [f"{one.name}: {one.verdict.ratio:.3f}, {one.verdict.where}" for one in judged if one.below_floor]


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - BLIND))
@pytest.mark.parametrize(("size", "count"), [("small", SMALL), pytest.param("big", BIG, marks=pytest.mark.slow)],
                         ids=["small", "big"])
def test_plans_are_optimal_if_they_claim_it_and_close_otherwise(family: str, size: Size, count: int) -> None:
    judged = [judge(family, seed, size) for seed in range(count)]
    assert complaints(judged) == []
    assert below_the_floor(judged) == []
    assert sum(one.best.proven for one in judged) >= 0.9 * count, "the oracle must prove most optima"
    assert sum(bool(one.plan.blocked) for one in judged) >= count // 5, "most fleets should lack room for some replicas"


@pytest.mark.parametrize("family", sorted(BLIND))
@pytest.mark.parametrize(("size", "count"), [
    ("small", BLIND_SMALL), pytest.param("big", BLIND_BIG, marks=pytest.mark.slow)], ids=["small", "big"])
def test_with_blind_card_choice_no_rule_is_broken_and_no_claim_is_false(
    family: str, size: Size, count: int
) -> None:
    """The optimum of CP-SAT may be unreachable here; the next test checks how close a plan gets."""
    seeds = range(count) if count > 1 else [2]  # the first large fleet takes ten seconds
    assert complaints([judge(family, seed, size) for seed in seeds]) == []


@pytest.mark.parametrize("family", sorted(BLIND))
def test_with_blind_card_choice_plans_are_compared_with_every_order_and_choice(family: str) -> None:
    judged: list[Judged] = []
    for seed in range(BLIND_TINY):
        with suppress(TooLarge):
            judged.append(judge(family, seed, "tiny"))
    assert complaints(judged) == []
    assert below_the_floor(judged) == []
    assert len(judged) >= BLIND_TINY // 2


def test_fleets_of_the_families_have_at_most_forty_nodes_and_two_hundred_members() -> None:
    for family in FAMILIES:
        for size in ("small", "big"):
            question = ask_about(*draw_inputs(family, 0, size))
            assert len(question.nodes) <= 41
            assert sum(ask.size * ask.missing for ask in question.asks) <= 210
