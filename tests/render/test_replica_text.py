"""Replicas, their states and their placements in words, the same in every table."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from render_plans import create, member

from fleetctl.documents.inventory import Replica, ReplicaState
from fleetctl.render.replica_text import (
    STATE_WORDS,
    amount_text,
    group_alike,
    ids_text,
    node_text,
    placement_text,
    replica_name,
    state_text,
    status_word,
)
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


@pytest.mark.parametrize(("members", "text"), [
    ([member("a", gpus=10_000)], "1 GPU"),
    ([member("a", gpus=80_000)], "8 GPUs"),
    ([member("a", gpus=2_500)], "0.25 GPU"),
    ([member("a", gpus=2_500), member("a", gpus=2_500)], "2 x 0.25 GPU"),
    ([member("a", gpus=20_000), member("a", gpus=20_000)], "4 GPUs"),
    ([member("a", gpus=5_000), member("a", gpus=2_500)], "0.75 GPU"),
    ([member("a", cpus=5_000)], "0.5 CPU"),
    ([member("a")], "a place"),
])
def test_amounts_claimed_on_one_node(members: list, text: str) -> None:
    assert amount_text(members) == text


def test_nodes_with_the_same_amount_share_a_phrase() -> None:
    members = [member("a", gpus=80_000), member("b", gpus=80_000), member("c", gpus=40_000)]
    assert placement_text(members) == "8 GPUs on each of a, b, 4 GPUs on c"


def test_replicas_of_one_model_with_one_place_are_grouped() -> None:
    actions = [create("m", 0, member("a", gpus=5_000)), create("m", 1, member("b", gpus=5_000)),
               create("m", 2, member("a", gpus=5_000)), create("n", 0, member("b", gpus=5_000))]
    assert group_alike(actions) == [
        ("m", [0, 2], "0.5 GPU on a"), ("m", [1], "0.5 GPU on b"), ("n", [0], "0.5 GPU on b"),
    ]


@pytest.mark.parametrize(("ids", "text"), [([3], "3"), ([0, 1, 2], "0-2"), ([0, 1, 5, 7, 8], "0-1,5,7-8")])
def test_replica_ids_are_shown_as_ranges(ids: list[int], text: str) -> None:
    assert ids_text(ids) == text
