"""A replica in words, the same in every table."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from fleetctl.documents.inventory import Replica, ReplicaState
from fleetctl.render.place_text import STATE_WORDS, node_text, replica_name, state_text, status_word
from fleetctl.render.report.model import TEXT_TONES


def replica(**more: Any) -> Replica:
    return Replica.model_validate({"model": "m", "replicaId": 0, **more})


def test_every_ray_state_has_a_word_and_every_word_a_color() -> None:
    assert set(STATE_WORDS) == set(get_args(ReplicaState))
    assert {*STATE_WORDS.values(), "lost", "draining", "never constructed"} <= set(TEXT_TONES)


@pytest.mark.parametrize(("state", "word"), [
    ("ALIVE", "ready"), ("PENDING_CREATION", "starting"), ("DEPENDENCIES_UNREADY", "starting"),
    ("RESTARTING", "restarting"), ("DEAD", "dead"),
])
def test_states_are_shown_in_words(state: str, word: str) -> None:
    assert status_word(replica(state=state, members=[{"nodeId": "a"}]), frozenset("b")) == word


@pytest.mark.parametrize(("state", "restarts", "text"), [
    ("ALIVE", 0, "ready"), ("ALIVE", 1, "ready, 1 restart"), ("ALIVE", 3, "ready, 3 restarts"),
    ("RESTARTING", 0, "restarting (restart 1)"), ("RESTARTING", 4, "restarting (restart 4)"),
    ("PENDING_CREATION", 0, "starting"),
])
def test_restarts_are_still_shown_for_a_ready_replica(state: str, restarts: int, text: str) -> None:
    assert state_text(replica(state=state, restarts=restarts), frozenset()) == text


@pytest.mark.parametrize(("state", "used", "text"), [
    ("ALIVE", 2, "ready, 2 of 5 restarts"), ("ALIVE", 0, "ready, 7 restarts"),
    ("ALIVE", None, "ready, 7 of 5 restarts"),
    ("RESTARTING", 1, "restarting (restart 1 of 5)"), ("RESTARTING", 0, "restarting (restart 1 of 5)"),
])
def test_of_the_restarts_those_in_a_row_are_shown_as_used(state: str, used: int | None, text: str) -> None:
    found = replica(state=state, restarts=7, restartMax=5, restartsUsed=used)
    assert state_text(found, frozenset()) == text


def test_one_dead_node_makes_a_live_replica_lost_in_any_ray_state() -> None:
    gang = [{"nodeId": "a"}, {"nodeId": "b", "rank": 1}]
    assert status_word(replica(members=gang), frozenset("b")) == "lost"
    assert status_word(replica(members=gang, state="DEAD"), frozenset("b")) == "dead"


def test_a_replica_in_an_eviction_is_draining_unless_it_is_lost() -> None:
    assert status_word(replica(draining=True), frozenset()) == "draining"
    assert status_word(replica(draining=True, members=[{"nodeId": "b"}]), frozenset("b")) == "lost"


@pytest.mark.parametrize(("name", "text"), [
    (("org/m:1", 3), "org/m:1/3"), (("m", 0, "ab12c:ModelActor:m"), "m/0"), (("m", None), "m"),
    (("m", None, "ab12c:ModelActor:m"), "ab12c:ModelActor:m"), (("\x1b[2J", 0), "\\x1b[2J/0"),
])
def test_a_replica_is_named_by_model_and_id_or_its_own_name(name: tuple[Any, ...], text: str) -> None:
    assert replica_name(*name) == text


@pytest.mark.parametrize(("nodes", "text"), [
    (["a", "b", "a"], "node-a, node-b"), (["c"], "c"), ([None], "?"), ([], "-"),
])
def test_nodes_are_named_once_each(nodes: list[str | None], text: str) -> None:
    members = [{"nodeId": node} for node in nodes]
    assert node_text(replica(members=members), {"a": "node-a", "b": "node-b"}) == text
