"""One replica from its check to its outcome, in a simulated cluster, without Ray."""

from __future__ import annotations

import pytest
from attempt_stand_in import MEMBER, REPLICA, Here

from fleetctl.agent import attempt as attempt_module
from fleetctl.agent.attempt import NO_WORKER_S, WORKER_S, EarlierAttempt


@pytest.mark.parametrize("trouble", [("NODE_DRAINING", "the node is draining"), ("NODE_GONE", "the node is dead")])
def test_a_node_that_is_gone_or_going_takes_nothing(here: Here, trouble: tuple[str, str]) -> None:
    here.trouble["n1"] = trouble
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == ("blocked", trouble[0], f"node-a: {trouble[1]}")
    assert here.events == []


def test_a_node_without_room_is_checked_again_before_it_counts(here: Here) -> None:
    here.short = ["node-a has 0 GPU free, 1 needed"]
    attempt = here.attempt()
    attempt.step()
    assert attempt.result is None
    told = here.run(attempt)
    assert (told["outcome"], told["code"], told["message"]) == ("blocked", "NODE_TAKEN", here.short[0])
    assert here.now >= attempt_module.SHORTFALL_S
    assert (here.events, here.killed) == ([], [])


def test_a_brief_shortfall_does_not_count(here: Here) -> None:
    here.short = ["node-a has 0 GPU free, 1 needed"]
    attempt = here.attempt()
    attempt.step()
    here.short = []
    assert here.run(attempt)["outcome"] == "ready"


def test_a_ready_replica_reports_its_address(here: Here) -> None:
    attempt = here.attempt()
    told = here.run(attempt)
    assert (told["outcome"], told["address"], told["nodes"]) == ("ready", "10.0.0.7:7001", ["node-a"])
    assert here.events == ["created", "replicaCreated"]
    assert attempt.granted
    assert here.killed == []


def test_a_replica_with_several_serving_members_reports_each_address(here: Here) -> None:
    here.other_places = [{"ip": "10.0.0.8", "port": 7002, "rank": 1}, {"ip": "fe80::1", "port": 7003, "rank": 0}]
    told = here.run(here.attempt())
    assert (told["address"], told["addresses"]) == ("10.0.0.7:7001", ["10.0.0.7:7001", "[fe80::1]:7003"])


def test_a_replica_beyond_the_target_is_skipped(here: Here) -> None:
    here.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:m:7"}
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("skipped", "TARGET_REACHED")
    assert here.events == []


def test_nothing_is_created_without_the_lock(here: Here) -> None:
    here.lock_held = False
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("skipped", "LOCK_LOST")
    assert here.events == []


def test_a_replica_that_another_run_created_is_awaited_and_not_doubled(here: Here) -> None:
    here.names = {"ModelActor:m:2"}
    told = here.run(here.attempt())
    assert (told["outcome"], told["nodes"]) == ("ready", [])
    assert "created" not in here.events


def test_a_name_that_another_fleet_took_meanwhile_is_not_counted_as_ours(here: Here) -> None:
    here.names, here.fleet = {"ModelActor:m:2"}, "theirs"
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("blocked", "CLAIMED_BY_FLEET")
    assert "theirs" in told["message"]


def test_a_replica_that_is_being_restarted_is_waited_for_and_not_called_failed(here: Here) -> None:
    here.states = ["PENDING_CREATION", "RESTARTING", "RESTARTING", "ALIVE"]
    assert here.run(here.attempt())["outcome"] == "ready"


def test_a_replica_that_is_up_but_does_not_answer_is_ready_with_a_code(here: Here) -> None:
    here.answers = False
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("ready", "NOT_ANSWERING")


def test_a_start_on_unchecked_cards_is_reported(here: Here) -> None:
    here.place["unchecked"] = "no NVIDIA driver was found on this node"
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("ready", "CARDS_UNCHECKED")
    assert "no NVIDIA driver" in told["message"]


def test_a_gang_gives_its_turn_away_only_when_its_placement_group_has_its_cards(here: Here) -> None:
    here.states, here.group_granted_at = ["PENDING_CREATION"], 5.0
    attempt = here.attempt(members=[MEMBER, MEMBER])
    while not attempt.granted:
        attempt.step()
        granted_at = here.now
        here.now += 0.25
    assert granted_at == 5.0
    here.states = ["ALIVE"]
    assert here.run(attempt)["outcome"] == "ready"


def test_a_replica_that_holds_nothing_and_gets_nothing_is_taken_back_with_the_arithmetic(here: Here) -> None:
    here.placed, here.granted = False, False
    attempt = here.attempt()
    attempt.step()
    here.short = ["node-a has 0 GPU free, 1 needed"]
    told = here.run(attempt)
    assert (told["outcome"], told["code"]) == ("failed", "NODE_TAKEN")
    assert "within 30 s: needs 1 GPU on node-a; node-a has 0 GPU free" in told["message"]
    assert here.killed == ["ModelActor:m:2"]


def test_a_replica_that_waits_for_room_is_reported_once_before_it_is_taken_back(here: Here) -> None:
    here.placed, here.granted = False, False
    attempt = here.attempt()
    attempt.step()
    here.short = ["node-a has 0 GPU free, 1 needed"]
    while here.now < 20:
        here.now += 1
        attempt.step()
    assert (attempt.result, here.events) == (None, ["created", "replicaCreated", "roomAwaited"])


@pytest.mark.parametrize("short", [[], ["node-a has 0 GPU free, 1 needed"]], ids=["room", "its own grant"])
def test_a_replica_that_may_be_granted_is_never_taken_back(here: Here, short: list[str]) -> None:
    here.placed, here.granted = False, True
    attempt = here.attempt()
    attempt.step()
    here.short = short
    while here.now < 2 * 30:
        attempt.step()
        here.now += 1
    assert attempt.result is None
    here.placed = True
    assert here.run(attempt)["outcome"] == "ready"
    assert (here.killed, here.events) == ([], ["created", "replicaCreated"])


def test_a_worker_that_never_starts_is_reported_and_left_alone(here: Here) -> None:
    here.placed = False
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("starting", "NO_WORKER")
    assert here.now >= WORKER_S
    assert here.killed == []


def test_time_without_an_answer_from_ray_does_not_count(here: Here) -> None:
    """The GCS is away for longer than the scheduling timeout: the next check must not take anything back."""
    here.placed, here.granted = False, False
    attempt = here.attempt()
    attempt.step()
    here.short = ["node-a has 0 GPU free, 1 needed"]
    here.now += 400
    attempt.step()
    assert attempt.result is None
    here.placed = True
    assert here.run(attempt)["outcome"] == "ready"
    assert here.killed == []


def test_a_replica_that_was_starting_before_is_never_taken_back(here: Here) -> None:
    here.placed, here.granted, here.short = False, False, ["full"]
    told = here.run(EarlierAttempt({**REPLICA, "id": "m;x/2"}, here.context()))
    assert (told["outcome"], told["code"]) == ("starting", "NO_WORKER")
    assert "`fleetctl evict 'm;x/2'`" in told["message"]
    assert here.killed == []


def test_a_restarting_replica_without_a_worker_is_not_awaited_until_its_timeout(here: Here) -> None:
    here.placed, here.waits_as = False, "RESTARTING"
    told = here.run(EarlierAttempt(dict(REPLICA), here.context()))
    assert (told["outcome"], told["code"]) == ("starting", "NO_WORKER")
    assert here.now < 2 * NO_WORKER_S


def test_a_replica_that_was_starting_before_is_awaited(here: Here) -> None:
    here.states = ["PENDING_CREATION", "PENDING_CREATION", "ALIVE"]
    assert here.run(EarlierAttempt(dict(REPLICA), here.context()))["outcome"] == "ready"
    assert here.events == []
