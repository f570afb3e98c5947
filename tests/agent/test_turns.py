"""Turns on shared cards: fractional claims on a node reach Ray in the plan's order, without unnecessary waits."""

from __future__ import annotations

import random

import pytest
from attempt_stand_in import MEMBER, REPLICA
from random_cases import cases

from fleetctl.agent.create import CardTurns
from fleetctl.agent.messages import Replica


def replica(name: str, *claims: tuple[str, int]) -> Replica:
    return REPLICA._replace(id=name, members=[MEMBER._replace(node_id=node, gpus=gpus) for node, gpus in claims])


def waits(turns: CardTurns, name: str) -> bool:
    """Whether a replica still has to wait."""
    return not turns.may_begin(name)


def test_fractional_replicas_on_one_node_are_created_one_after_another() -> None:
    turns = CardTurns([replica("a", ("n", 2_500)), replica("b", ("n", 5_000)), replica("c", ("n", 2_500))])
    assert [waits(turns, name) for name in "abc"] == [False, True, True]
    turns.done("a")
    assert [waits(turns, name) for name in "bc"] == [False, True]
    turns.done("b")
    assert not waits(turns, "c")


def test_equal_claims_on_a_shared_card_need_no_turns_among_themselves() -> None:
    turns = CardTurns([replica(name, ("n", gpus)) for name, gpus in
                       (("a", 2_500), ("b", 2_500), ("c", 5_000), ("d", 5_000), ("e", 2_500))])
    assert [waits(turns, name) for name in "abcde"] == [False, False, True, True, True]
    turns.done("a")
    assert waits(turns, "c"), "its card depends on where b goes"
    turns.done("b")
    assert [waits(turns, name) for name in "cde"] == [False, False, True]
    turns.done("c")
    turns.done("d")
    assert not waits(turns, "e")


def test_claims_of_one_share_but_another_memory_are_not_equal() -> None:
    small, large = (REPLICA._replace(id=name, members=[MEMBER._replace(gpus=5_000, vram=vram)])
                    for name, vram in (("small", 1), ("large", 2)))
    assert waits(CardTurns([small, large]), "large")


def test_gangs_with_several_claims_on_a_node_take_turns_even_if_they_are_equal() -> None:
    """Ray may grant the parts of both in any order."""
    turns = CardTurns([replica(name, ("n", 5_000), ("n", 2_500)) for name in "ab"])
    assert waits(turns, "b")


def granted_in_order(replicas: list[Replica], cards: int) -> list[list[tuple[int, ...]]]:
    """The claims on each card of the node, if Ray grants each claim by best fit, in this order."""
    free, held = [10_000] * cards, [list[int]() for _ in range(cards)]
    for one in replicas:
        for member in one.members:
            fits = [index for index in range(cards) if free[index] >= member.gpus]
            if fits:
                best = min(fits, key=lambda index: (free[index], index))
                free[best] -= member.gpus
                held[best].append(member.gpus)
    return [[tuple(sorted(claims))] for claims in held]


@pytest.mark.parametrize("seed", range(cases(200)))
def test_whoever_is_granted_first_the_cards_have_the_loads_of_the_plan(seed: int) -> None:
    rng = random.Random(seed)
    shares = rng.sample((1_000, 2_500, 3_000, 5_000, 7_000, 10_000), 3)
    planned = [replica(f"r{number}", ("n", rng.choice(shares))) for number in range(rng.randint(2, 14))]
    turns, waiting, granted = CardTurns(planned), list(planned), list[Replica]()
    while waiting:
        one = rng.choice([replica for replica in waiting if turns.may_begin(replica.id)])
        waiting.remove(one)
        granted.append(one)
        turns.done(one.id)
    shared = any(one.members[0].gpus < 10_000 for one in planned)
    assert not shared or granted_in_order(granted, 4) == granted_in_order(planned, 4)


def test_whole_cards_need_no_turns() -> None:
    turns = CardTurns([replica("a", ("n", 10_000)), replica("b", ("n", 20_000)), replica("c", ("n", 10_000))])
    assert not any(waits(turns, name) for name in "abc")


def test_on_a_node_with_shared_cards_whole_cards_take_turns_too() -> None:
    turns = CardTurns([replica("a", ("n", 10_000)), replica("b", ("n", 2_500))])
    assert [waits(turns, name) for name in "ab"] == [False, True]


def test_other_nodes_and_members_without_a_card_do_not_matter() -> None:
    turns = CardTurns([replica("a", ("n", 2_500)), replica("b", ("o", 2_500)), replica("c", ("n", 0))])
    assert not any(waits(turns, name) for name in "abc")


def test_a_gang_waits_for_the_previous_replica_on_each_of_its_nodes() -> None:
    gang = replica("g", ("n", 5_000), ("o", 5_000))
    turns = CardTurns([replica("a", ("n", 2_500)), replica("b", ("o", 2_500)), gang])
    turns.done("a")
    assert waits(turns, "g")
    turns.done("b")
    assert not waits(turns, "g")


def test_the_smallest_share_of_a_card_takes_turns_and_no_card_makes_no_node_a_shared_one() -> None:
    turns = CardTurns([replica("a", ("n", 1)), replica("b", ("n", 2))])
    assert waits(turns, "b")
    turns = CardTurns([replica("a", ("n", 10_000)), replica("b", ("n", 0)), replica("c", ("n", 10_000))])
    assert not any(waits(turns, name) for name in "abc")
