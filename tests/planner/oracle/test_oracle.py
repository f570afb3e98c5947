"""The oracle itself: it agrees with exhaustive search on tiny fleets, and with counts by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
from random_cases import cases
from short_forms import short_fleet, short_inventory

from oracle.exhaustive import TooLarge, try_everything
from oracle.families import BLIND, FAMILIES, draw_inputs
from oracle.judge import judge
from oracle.optimum import Optimum, best_possible
from oracle.question import Question, ask_about
from oracle.tiers import TIERS, without

pytestmark = pytest.mark.usefixtures("few_trials")
Short = dict[str, Any]


def optimum(models: list[Short], nodes: list[Short], **more: Any) -> dict[int, tuple[int, int, int]]:
    question = ask_about(short_fleet({"models": models, "nodes": more.pop("policies", [])}),
                         short_inventory({"nodes": nodes, **more}))
    best = best_possible(question, deterministic_time=5)
    assert best.proven
    return {priority: tuple(level) for priority, level in best.levels.items()}


def eights(count: int, **more: Any) -> list[Short]:
    return [{"name": f"n{number}", "gpus": 8, **more} for number in range(count)]


def tiny_questions(family: str) -> Iterator[tuple[Question, Optimum]]:
    """Yield questions small enough for exhaustive search, each with its optimum."""
    for seed in range(cases(60)):
        question = ask_about(*draw_inputs(family, seed, "tiny"))
        with suppress(TooLarge):
            yield question, try_everything(question)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - BLIND))
def test_the_oracle_agrees_with_exhaustive_search(family: str) -> None:
    tried = list(islice(tiny_questions(family), cases(5)))
    assert len(tried) == cases(5)
    for question, truth in tried:
        assert best_possible(question, deterministic_time=5) == truth


@pytest.mark.parametrize("family", sorted(BLIND))
def test_the_oracle_is_never_below_exhaustive_search_when_ray_ignores_memory(family: str) -> None:
    tried = list(islice(tiny_questions(family), cases(15)))
    assert len(tried) == cases(15)
    for question, truth in tried:
        assert best_possible(question, deterministic_time=5).vector >= truth.vector


def test_a_higher_priority_outweighs_everything_below_it() -> None:
    models = [{"key": "big", "replicas": 1, "gpus": 8, "priority": 1}, {"key": "small", "replicas": 8, "gpus": 1}]
    assert optimum(models, eights(1)) == {1: (1, 80_000, 1), 0: (0, 0, 0)}


def test_models_served_come_before_gpus_and_gpus_before_replicas() -> None:
    models = [{"key": "wide", "replicas": 2, "gpus": 4}, {"key": "thin", "replicas": 8, "gpus": 1}]
    assert optimum(models, eights(1)) == {0: (2, 80_000, 5)}
    assert optimum([{"key": "odd", "replicas": 2, "gpus": 5}, {"key": "wide", "replicas": 1, "gpus": 8}],
                   eights(1)) == {0: (1, 80_000, 1)}


def test_a_model_with_a_live_replica_is_served_already() -> None:
    live = [{"model": "a", "id": 0, "node": "n0", "gpus": 4, "cards": [0, 1, 2, 3]}]
    models = [{"key": "a", "replicas": 2, "gpus": 4}, {"key": "b", "replicas": 1, "gpus": 1}]
    assert optimum(models, eights(1), replicas=live) == {0: (1, 10_000, 1)}


def test_ranks_of_a_gang_are_on_different_nodes_unless_ranks_per_node_allows_more() -> None:
    gang = {"key": "g", "replicas": 9, "gang": {"gpus": 2, "workers": 2}}
    assert optimum([gang], eights(2)) == {0: (0, 0, 0)}
    assert optimum([gang], eights(3)) == {0: (1, 240_000, 4)}
    assert optimum([{**gang, "ranksPerNode": 2}], eights(2)) == {0: (1, 120_000, 2)}


def test_a_gang_stays_inside_one_value_of_its_label() -> None:
    nodes = [{**node, "labels": {"fabric": "uvvww"[place]}} for place, node in enumerate(eights(5))]
    gang = {"key": "g", "replicas": 9, "sameLabel": "fabric", "gang": {"gpus": 8, "workers": 1}}
    assert optimum([gang], nodes) == {0: (1, 320_000, 2)}
    assert optimum([gang], [*nodes, {"name": "bare", "gpus": 8}]) == {0: (1, 320_000, 2)}


def test_all_copies_of_a_group_belong_to_one_replica() -> None:
    assert optimum([{"key": "c", "replicas": 3, "gpus": 3, "copies": 2}], eights(1)) == {0: (1, 60_000, 1)}
    assert optimum([{"key": "c", "replicas": 3, "gpus": 3, "copies": 2}], eights(2)) == {0: (1, 120_000, 2)}


def test_shares_of_two_cards_do_not_add_up() -> None:
    assert optimum([{"key": "s", "replicas": 9, "gpus": 0.6}], [{"name": "a", "gpus": 2}]) == {0: (1, 12_000, 2)}
    models = [{"key": "s", "replicas": 2, "gpus": 0.6}, {"key": "t", "replicas": 9, "gpus": 0.4}]
    assert optimum(models, [{"name": "a", "gpus": 2}]) == {0: (2, 20_000, 4)}


def test_slots_are_counted_per_replica_not_per_member() -> None:
    gang = {"key": "g", "replicas": 4, "ranksPerNode": 2, "gang": {"gpus": 1, "workers": 1}}
    assert optimum([gang], eights(1), policies=[{"maxReplicasPerModel": 3}]) == {0: (1, 60_000, 3)}
    assert optimum([{"key": "c", "replicas": 4, "cpus": 1}], eights(2)) == {0: (1, 0, 2)}


def test_cordoned_draining_and_dead_nodes_take_nothing() -> None:
    nodes = [{**node, "state": state, "labels": {"pool": pool}} for node, state, pool in zip(
        eights(4), ("DRAINING", "DEAD", "ALIVE", "ALIVE"), "xxxy", strict=True)]
    policies = [{"selector": {"pool": "y"}, "cordon": True}]
    assert optimum([{"key": "m", "replicas": 4, "gpus": 8}], nodes, policies=policies) == {0: (1, 80_000, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("tier", sorted(TIERS))
def test_a_plan_without_a_tier_keeps_all_rules_and_claims_nothing_false(tier: str) -> None:
    with without(tier):
        assert judge("mixed", 4).wrong == ()


@pytest.mark.slow
def test_switching_a_tier_off_changes_the_plan() -> None:
    with without("solver"):
        assert not judge("mixed", 4).equal
    assert judge("mixed", 4).equal
