"""A replica that Ray put on a card in use is created again while that card is held."""

from __future__ import annotations

from typing import ClassVar

import pytest
from attempt_stand_in import MEMBER, REPLICA, SimulatedCluster

from fleetctl.agent import attempt as attempt_module
from fleetctl.agent.attempt import EarlierAttempt
from fleetctl.agent.cards import SEARCHING
from fleetctl.agent.messages import FailedStart, Member
from fleetctl.agent.report import encode_failure

IN_USE = "card 0: 20480Mi by process 7"


class Search:
    """Stands in for the search for clean cards: gives its result after one step without one."""

    found: ClassVar[list[bool]] = []
    released: ClassVar[int] = 0
    freed: ClassVar[int] = 0
    searched: ClassVar[list[list[str]]] = []

    def __init__(self, members: list[Member]) -> None:
        Search.searched.append([member.node_id for member in members])
        self._looks: list[bool | None] = [None, Search.found.pop(0)]

    def step(self) -> bool | None:
        return self._looks.pop(0)

    def free_the_clean(self) -> None:
        assert self._looks == []
        Search.freed += 1

    def release(self) -> None:
        Search.released += 1


@pytest.fixture
def dirty(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    """Ray grants a dirty card first, and then a clean card."""
    monkeypatch.setattr(attempt_module, "CleanCards", Search)
    Search.found, Search.released, Search.freed, Search.searched = [True, True, True], 0, 0, []
    cluster.death = f"ray says: RuntimeError: {encode_failure(FailedStart('CARD_IN_USE', IN_USE))}"
    cluster.states = ["PENDING_CREATION", "DEAD", "PENDING_CREATION", "ALIVE"]
    return cluster


def test_a_replica_on_a_dirty_card_is_created_again_while_that_card_is_held(dirty: SimulatedCluster) -> None:
    attempt = dirty.attempt(earlier_tries=["earlier"])
    assert dirty.run(attempt).outcome == "ready"
    assert dirty.events == ["created", "replicaCreated", "cardInUse", "created", "replicaCreated"]
    assert dirty.sent[1] == (f"m/2: {IN_USE}: {SEARCHING}", {"level": "warning", "model": "m", "replicaId": 2})
    assert (Search.freed, Search.released) == (1, 1), "once the replica has its own card"
    assert attempt.replica.earlier_tries == ["earlier", "ab"], "so that its end does not count as a failure"
    assert dirty.killed == []


def test_a_replica_on_a_cooling_card_is_created_again_too(dirty: SimulatedCluster) -> None:
    dirty.death = f"ray says: RuntimeError: {encode_failure(FailedStart('CARD_COOLING', 'card 0 cools'))}"
    assert dirty.run(dirty.attempt()).outcome == "ready"
    Search.found, dirty.states = [False], ["PENDING_CREATION", "DEAD"]
    assert dirty.run(dirty.attempt()).code == "CARD_COOLING"


def test_the_number_of_tries_is_limited(dirty: SimulatedCluster) -> None:
    dirty.states = ["PENDING_CREATION", "DEAD"] * 9
    result = dirty.run(dirty.attempt())
    assert (result.outcome, result.code, result.message) == (
        "failed", "CARD_IN_USE", IN_USE)
    assert dirty.events.count("created") == 3
    assert Search.released == 2


def test_without_a_clean_card_it_fails_immediately_with_a_reason(dirty: SimulatedCluster) -> None:
    Search.found = [False]
    result = dirty.run(dirty.attempt())
    assert result.message == f"{IN_USE}; no other card of the node is free and clean"
    assert (dirty.events.count("created"), Search.released) == (1, 1)


def test_another_apply_that_has_begun_in_the_meantime_is_not_disturbed(dirty: SimulatedCluster) -> None:
    attempt = dirty.attempt()
    while "cardInUse" not in dirty.events:
        attempt.step()
    assert not attempt.granted, "the lock is not released during the search"
    dirty.lock_held = False
    result = dirty.run(attempt)
    assert (result.code, result.message) == ("CARD_IN_USE", IN_USE)
    assert (dirty.events.count("created"), Search.released) == (1, 1)


def test_a_gang_is_created_again_while_the_dirty_cards_of_refusing_members_are_held(dirty: SimulatedCluster) -> None:
    """If the nodes of the refusing members are not known, all are searched."""
    members = [MEMBER._replace(node_id=f"n{number}", gpus=gpus) for number, gpus in ((1, 10_000), (2, 10_000), (3, 0))]
    for node_ids, searched in ((["n2", "n3"], ["n2"]), ([], ["n1", "n2"])):
        dirty.kept = FailedStart("CARD_IN_USE", IN_USE, node_ids=node_ids)
        dirty.states, dirty.group_granted_at = ["DEAD", "DEAD", "PENDING_CREATION"], dirty.now + 60
        attempt, released = dirty.attempt(members=members), Search.released
        while dirty.now < dirty.group_granted_at:
            attempt.step()
            dirty.now += 1
        assert (Search.searched[-1], Search.released) == (searched, released), "the gang has no cards yet"
        attempt.step()
        assert (attempt.outcome, Search.released) == (None, released + 1), "it has its cards, and is not ready yet"
        dirty.states = ["ALIVE"]
        assert dirty.run(attempt).outcome == "ready"
        assert (Search.released, attempt.replica.earlier_tries) == (released + 1, ["ab"])
    assert dirty.killed == []


def test_only_a_replica_that_this_run_created_is_created_again(dirty: SimulatedCluster) -> None:
    dirty.states = ["PENDING_CREATION", "DEAD"]
    assert dirty.run(EarlierAttempt(REPLICA, dirty.context())).code == "CARD_IN_USE"
    assert "cardInUse" not in dirty.events
