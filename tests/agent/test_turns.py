"""Turns on shared cards: fractional claims on a node reach Ray in the plan's order, without unnecessary waits."""

from __future__ import annotations

from attempt_stand_in import MEMBER, REPLICA

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
    gang = replica("g", ("n", 2_500), ("o", 2_500))
    turns = CardTurns([replica("a", ("n", 2_500)), replica("b", ("o", 2_500)), gang])
    turns.done("a")
    assert waits(turns, "g")
    turns.done("b")
    assert not waits(turns, "g")


def test_the_smallest_share_of_a_card_takes_turns_and_no_card_makes_no_node_a_shared_one() -> None:
    turns = CardTurns([replica("a", ("n", 1)), replica("b", ("n", 1))])
    assert waits(turns, "b")
    turns = CardTurns([replica("a", ("n", 10_000)), replica("b", ("n", 0)), replica("c", ("n", 10_000))])
    assert not any(waits(turns, name) for name in "abc")
