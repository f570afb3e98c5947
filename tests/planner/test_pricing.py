"""Pricing: a nearly best filling of a node within every limit, and an order in which Ray's rule accepts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stated import problem_of

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.exact.columns import Holdings
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard, take
from fleetctl.planner.placement.pattern_pricing import Fills, Frame, Pricer, merged
from fleetctl.planner.placement.realize import creation_order
from fleetctl.planner.placement.tally import Tally


@pytest.mark.parametrize("seed", range(12))
def test_the_best_filling_is_within_three_percent_of_the_best_there_is(seed: int) -> None:
    random = Random(seed)
    models: list[dict[str, Any]] = [
        {"gpus": random.choice([0, 0.3, 0.45, 0.55, 0.7, 1, 1, 2]), "cpus": random.randint(3, 14),
         "memory": f"{random.randint(8, 60)}Gi", "replicas": random.randint(1, 4)} for _ in range(5)]
    problem = problem_of(models, [{"gpus": 3, "cpus": 40, "memory": "160Gi"}],
                         policies=[{"maxReplicasPerModel": 9}])
    pricer = Pricer(Tally(problem), 0)
    wanted = np.array([demand.missing for demand in problem.demands])
    worth = np.array([random.uniform(0.1, 2) for _ in problem.demands])
    claims = {number: problem.kinds[demand.gangs[0].parts[0][0]][0] for number, demand in enumerate(problem.demands)}
    every = Holdings().of(problem.nodes[0].offer, list(claims.values()), wanted.tolist())
    assert every is not None
    items = pricer.items
    found = pricer.best(worth[items], wanted[items], 3)
    for counts in found:
        pattern = [(int(items[place]), int(count)) for place, count in enumerate(counts) if count]
        order = creation_order(problem.nodes[0].offer, pattern, claims)
        assert Counter(order) == dict(pattern)
        assert all(count <= wanted[item] for item, count in pattern)
    assert found[0] @ worth[items] >= 0.97 * max(np.array(counts) @ worth for counts in every)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40))
def test_two_fillings_are_combined_exactly_within_the_limits(rows: list[tuple[int, int, int]]) -> None:
    limits = np.array([row[0] for row in rows], np.int64)
    left, right = (np.array([[0] * len(rows), [min(row[0], row[side]) for row in rows]], np.int32) for side in (1, 2))
    frame = Frame(np.array([3]), np.zeros(1), (3,), 10, limits, limits < 9)
    sets = [Fills(np.arange(2.0), np.array([[0, side]]), counts) for side, counts in ((1, left), (2, right))]
    both = merged(*sets, frame).counts.tolist()
    assert ((left + right)[1].tolist() in both) == bool((left[1] + right[1] <= limits).all())
    assert left[1].tolist() in both
    assert right[1].tolist() in both


def taken_in(order: Sequence[int], offer: Offer, claims: Mapping[int, Claim]) -> Offer:
    """Return the rest of an offer after all items are created in this order."""
    for item in order:
        taken = take(offer, claims[item])
        assert taken is not None
        offer = taken.left
    return offer


@given(st.lists(st.lists(st.integers(1, 60), max_size=4), min_size=1, max_size=3))
def test_every_packing_of_shares_has_an_order_of_creation(cards: list[list[int]]) -> None:
    """Each card is filled exactly; for any such packing some order of creation reaches an equally good one."""
    offer = Offer(tuple(OfferedCard(index, sum(shares) * 25) for index, shares in enumerate(cards)),
                  sum(map(sum, cards)) * 25)
    sizes = sorted({share for shares in cards for share in shares})
    pattern = [(size, sum(shares.count(size) for shares in cards)) for size in sizes]
    claims = {size: Claim(gpus=size * 25) for size in sizes}
    order = creation_order(offer, pattern, claims)
    assert sorted(order) == sorted(share for shares in cards for share in shares)
    assert taken_in(order, offer, claims).free_gpus == 0


def test_shares_that_fill_all_cards_of_a_large_node_are_created_card_by_card() -> None:
    """Six cards of 0.45 + 0.35 + 0.2 and two of five times 0.2: any other packing leaves a share without a card."""
    offer = Offer(tuple(OfferedCard(index) for index in range(8)), 80_000)
    claims = {0: Claim(gpus=2_000), 1: Claim(gpus=3_500), 2: Claim(gpus=4_500)}
    order = creation_order(offer, [(0, 16), (1, 6), (2, 6)], claims)
    assert Counter(order) == {0: 16, 1: 6, 2: 6}
    assert taken_in(order, offer, claims).free_gpus == 0


def test_shares_that_need_memory_are_created_in_an_order_that_finds_it() -> None:
    """The small share must come second: only then does the second large share get another card than the first."""
    gib = 1 << 30
    offer = Offer((OfferedCard(0, 10_000, 48 * gib, 48 * gib), OfferedCard(1, 10_000, 48 * gib, 48 * gib)), 20_000)
    claims = {0: Claim(gpus=5_000, vram=40 * gib), 1: Claim(gpus=5_000, vram=2 * gib)}
    order = creation_order(offer, [(0, 2), (1, 2)], claims)
    assert sorted(order) == [0, 0, 1, 1]
    assert taken_in(order, offer, claims).free_gpus == 0
