"""One replica from its check to its outcome, in a simulated cluster, without Ray."""

from __future__ import annotations

import pytest
from attempt_stand_in import LIFECYCLE, MEMBER, REPLICA, SimulatedCluster

from fleetctl.agent import attempt as attempt_module
from fleetctl.agent import cluster as cluster_module
from fleetctl.agent.attempt import NO_WORKER_S, WORKER_S, Attempt, EarlierAttempt
from fleetctl.agent.cluster import ActorRecord
from fleetctl.agent.create import CardTurns, CreatedHere, Creating, Grants
from fleetctl.agent.messages import Member, Place


@pytest.mark.parametrize("trouble", [("NODE_DRAINING", "the node is draining"), ("NODE_GONE", "the node is dead")])
def test_a_dead_or_draining_node_gets_no_replica(cluster: SimulatedCluster, trouble: tuple[str, str]) -> None:
    cluster.trouble["n1"] = trouble
    attempt = cluster.attempt()
    attempt.step()
    result = attempt.outcome
    assert result is not None, "only a shortage of room may pass soon"
    assert (result.outcome, result.code, result.message) == ("blocked", trouble[0], f"node-a: {trouble[1]}")
    assert (cluster.events, result.seconds) == ([], None)


def test_a_model_paused_since_the_plan_gets_no_replica(cluster: SimulatedCluster) -> None:
    cluster.paused["m"] = "paused by ana: bad answers"
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code, result.message) == ("blocked", "PAUSED", "paused by ana: bad answers")
    assert (cluster.events, cluster.now) == ([], 0.25), "and nothing is awaited"


def test_a_pause_leaves_a_created_replica_alone(cluster: SimulatedCluster) -> None:
    attempt = cluster.attempt()
    attempt.step()
    cluster.paused["m"] = "paused by ana"
    assert cluster.run(attempt).outcome == "ready"
    assert cluster.killed == []


@pytest.mark.parametrize("members", [[MEMBER], [MEMBER, MEMBER]], ids=["one member", "gang"])
def test_a_refused_replica_ends_its_turn_on_a_shared_card(
    cluster: SimulatedCluster, members: list[Member]
) -> None:
    cluster.trouble["n1"] = ("NODE_DRAINING", "the node is draining")
    attempt = cluster.attempt(members=members)
    assert not attempt.granted
    assert cluster.run(attempt).outcome == "blocked"
    assert attempt.granted, "else every later replica on that card would wait forever"


def test_a_node_without_room_is_checked_again_before_it_counts(cluster: SimulatedCluster) -> None:
    cluster.short = ["node-a has 0 GPU free, 1 needed"]
    attempt = cluster.attempt()
    attempt.step()
    assert attempt.outcome is None
    result = cluster.run(attempt)
    assert (result.outcome, result.code, result.message) == ("blocked", "NODE_TAKEN", cluster.short[0])
    assert cluster.now == attempt_module.SHORTFALL_S + 0.25
    assert (cluster.events, cluster.killed) == ([], [])


def test_time_spent_waiting_for_its_turn_is_no_shortfall(cluster: SimulatedCluster) -> None:
    cluster.short = ["node-a has 0 GPU free, 1 needed"]
    attempt = cluster.attempt()
    cluster.now += attempt_module.SHORTFALL_S + 1
    attempt.step()
    assert attempt.outcome is None


def test_a_long_wait_for_its_turn_prolongs_no_later_limit(cluster: SimulatedCluster) -> None:
    cluster.short = ["node-a has 0 GPU free, 1 needed"]
    attempt = cluster.attempt()
    cluster.now += 100
    assert cluster.run(attempt).code == "NODE_TAKEN"
    assert cluster.now == 100 + attempt_module.SHORTFALL_S + 0.25


def test_a_brief_shortfall_does_not_count(cluster: SimulatedCluster) -> None:
    cluster.short = ["node-a has 0 GPU free, 1 needed"]
    attempt = cluster.attempt()
    attempt.step()
    cluster.short = []
    assert cluster.run(attempt).outcome == "ready"


def test_a_ready_replica_reports_its_address(cluster: SimulatedCluster) -> None:
    attempt = cluster.attempt()
    result = cluster.run(attempt)
    assert (result.outcome, result.address, result.nodes) == ("ready", "10.0.0.7:7001", ["node-a"])
    assert cluster.events == ["created", "replicaCreated"]
    assert cluster.sent == [("m/2: created on node-a", {"nodes": ["node-a"], "model": "m", "replicaId": 2})]
    assert attempt.granted
    assert cluster.killed == []


def test_a_replica_with_several_serving_members_reports_each_address(cluster: SimulatedCluster) -> None:
    cluster.other_places = [Place(ip="10.0.0.8", port=7002, rank=1), Place(ip="fe80::1", port=7003)]
    result = cluster.run(cluster.attempt())
    assert (result.address, result.addresses) == ("10.0.0.7:7001", ["10.0.0.7:7001", "[fe80::1]:7003"])


def test_a_replica_beyond_the_target_is_skipped(cluster: SimulatedCluster) -> None:
    cluster.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:m:7"}
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code) == ("skipped", "TARGET_REACHED")
    assert cluster.events == []


def test_nothing_is_created_without_the_lock(cluster: SimulatedCluster) -> None:
    cluster.lock_held = False
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code) == ("skipped", "LOCK_LOST")
    assert cluster.events == []


def test_a_replica_that_another_run_created_is_awaited_and_not_duplicated(cluster: SimulatedCluster) -> None:
    cluster.names, cluster.states = {"ModelActor:m:2"}, ["PENDING_CREATION"]
    attempt = cluster.attempt()
    attempt.step()
    assert attempt.granted, "its cards are the other run's matter"
    cluster.states = ["ALIVE"]
    result = cluster.run(attempt)
    assert (result.outcome, result.nodes) == ("ready", [])
    assert "created" not in cluster.events


def test_a_name_that_is_taken_and_free_again_at_once_is_a_failure(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: str) -> None:
        raise ValueError

    cluster.names = {"ModelActor:m:2"}
    monkeypatch.setattr(attempt_module.ray, "get_actor", gone)
    attempt = cluster.attempt()
    attempt.step()
    assert attempt.outcome is not None
    assert (attempt.outcome.outcome, attempt.outcome.code, attempt.outcome.message) == (
        "failed", "NAME_TAKEN", "ModelActor:m:2 already exists, but it is gone again")


def test_a_name_that_another_fleet_has_taken_is_not_counted_as_ours(cluster: SimulatedCluster) -> None:
    cluster.names, cluster.fleet = {"ModelActor:m:2"}, "theirs"
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code) == ("blocked", "CLAIMED_BY_FLEET")
    assert "theirs" in result.message


def test_a_replica_that_is_being_restarted_is_awaited_and_not_reported_as_failed(cluster: SimulatedCluster) -> None:
    cluster.states = ["PENDING_CREATION", "RESTARTING", "RESTARTING", "ALIVE"]
    assert cluster.run(cluster.attempt()).outcome == "ready"


def test_the_repr_from_before_a_restart_does_not_make_a_replica_ready(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, record = cluster.attempt(), cluster.record
    monkeypatch.setattr(cluster_module, "actor_record", lambda _: record()._replace(state="RESTARTING"))
    for _ in range(8):
        attempt.step()
        cluster.now += 1
    assert attempt.outcome is None


def test_a_replica_that_is_up_but_does_not_respond_is_ready_with_a_code(cluster: SimulatedCluster) -> None:
    cluster.answers = False
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code) == ("ready", "NOT_ANSWERING")
    assert result.message == "it is up, but its process does not answer"
    assert cluster.now == attempt_module.ANSWER_S + 0.25


def test_a_replica_that_dies_while_it_is_asked_is_not_ready(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def died(*_: object, **__: object) -> None:
        cluster.states = ["DEAD"]
        raise RuntimeError("the actor died")

    cluster.death = "worker died"
    monkeypatch.setattr(attempt_module.ray, "get", died)
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code, result.message) == ("failed", "REPLICA_DIED", "worker died")


@pytest.mark.parametrize("report", ["Actor(ModelActor, ab)", '{"fleet": "theirs"}'])
def test_a_replica_that_this_run_created_is_ready_whatever_it_says_of_itself(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    monkeypatch.setattr(cluster_module, "actor_record", lambda _: ActorRecord("ALIVE", True, report, ""))
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code, result.address) == ("ready", None, None)


def test_a_start_on_unchecked_cards_is_reported(cluster: SimulatedCluster) -> None:
    cluster.place = cluster.place._replace(unchecked="no NVIDIA driver was found on this node")
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code) == ("ready", "CARDS_UNCHECKED")
    assert "no NVIDIA driver" in result.message


def test_a_gang_ends_its_turn_only_when_its_placement_group_has_its_cards(cluster: SimulatedCluster) -> None:
    cluster.states, cluster.group_granted_at = ["PENDING_CREATION"], 5.0
    attempt = cluster.attempt(members=[MEMBER, MEMBER])
    while not attempt.granted:
        attempt.step()
        granted_at = cluster.now
        cluster.now += 0.25
    assert granted_at == 5.0
    cluster.states = ["ALIVE"]
    assert cluster.run(attempt).outcome == "ready"


def test_a_replica_that_is_granted_nothing_is_taken_back_with_the_arithmetic(cluster: SimulatedCluster) -> None:
    cluster.placed, cluster.granted = False, False
    attempt = cluster.attempt()
    attempt.step()
    cluster.short = ["node-a has 0 GPU free, 1 needed"]
    result = cluster.run(attempt)
    assert (result.outcome, result.code) == ("failed", "NODE_TAKEN")
    assert "within 30 s: needs 1 GPU on node-a; node-a has 0 GPU free" in result.message
    assert cluster.now == 30 + 0.25
    assert cluster.killed == ["ModelActor:m:2"]


def test_a_wait_for_room_is_reported_once_before_the_replica_is_taken_back(cluster: SimulatedCluster) -> None:
    cluster.placed, cluster.granted = False, False
    attempt = cluster.attempt()
    attempt.step()
    cluster.short = ["node-a has 0 GPU free, 1 needed"]
    reported = list[float]()
    while cluster.now < 20:
        cluster.now += 1
        attempt.step()
        reported += [cluster.now] if cluster.events[-1] == "roomAwaited" else []
    assert (attempt.outcome, cluster.events) == (None, ["created", "replicaCreated", "roomAwaited"])
    assert reported[0] == attempt_module.ROOM_REPORT_S
    assert cluster.sent[-1] == (f"m/2: waiting for room: {cluster.short[0]}", {"model": "m", "replicaId": 2})


@pytest.mark.parametrize("short", [[], ["node-a has 0 GPU free, 1 needed"]], ids=["room", "its own grant"])
def test_a_replica_that_may_be_granted_is_never_taken_back(cluster: SimulatedCluster, short: list[str]) -> None:
    cluster.placed, cluster.granted = False, True
    attempt = cluster.attempt()
    attempt.step()
    cluster.short = short
    while cluster.now < 2 * 30:
        attempt.step()
        cluster.now += 1
    assert attempt.outcome is None
    cluster.placed = True
    assert cluster.run(attempt).outcome == "ready"
    assert (cluster.killed, cluster.events) == ([], ["created", "replicaCreated"])


@pytest.mark.parametrize("step_s", [0.25, attempt_module.ANSWER_S])
@pytest.mark.parametrize("granted", [True, False], ids=["perhaps granted", "not granted and there is room"])
def test_a_worker_that_never_starts_is_reported_and_left_alone(
    cluster: SimulatedCluster, granted: bool, step_s: float
) -> None:
    cluster.placed, cluster.granted = False, granted
    result = cluster.run(cluster.attempt(), step_s)
    assert (result.outcome, result.code) == ("starting", "NO_WORKER")
    assert cluster.now == WORKER_S + step_s
    assert (cluster.killed, "roomAwaited" in cluster.events) == ([], False)


def test_a_draining_node_ends_no_replica_that_waits_on_it_or_has_its_worker(cluster: SimulatedCluster) -> None:
    attempt = cluster.attempt()
    cluster.placed, cluster.states = False, ["PENDING_CREATION"]
    attempt.step()
    cluster.trouble["n1"] = ("NODE_DRAINING", "the node is draining")
    for cluster.placed in (False, True):
        attempt.step()
        assert attempt.outcome is None
    cluster.states = ["ALIVE"]
    assert cluster.run(attempt).outcome == "ready"


def test_the_seconds_of_an_outcome_count_from_the_beginning_of_the_attempt(cluster: SimulatedCluster) -> None:
    cluster.now, cluster.states = 50.0, ["PENDING_CREATION"]
    attempt = cluster.attempt()
    for _ in range(8):
        attempt.step()
        cluster.now += 0.25
    cluster.states = ["ALIVE"]
    assert cluster.run(attempt).seconds == 2.0


class Noted(Grants):
    """Grants that write down what they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def created(self, created: CreatedHere, member: Member) -> None:
        self.told.append(f"created on {member.node_id}")

    def placed(self, created: CreatedHere) -> None:
        self.told.append("placed")

    def ended(self, created: CreatedHere) -> None:
        self.told.append("ended")


@pytest.mark.parametrize(("members", "told"), [
    ([MEMBER], ["created on n1", "placed", "ended"]), ([MEMBER, MEMBER], ["ended"])], ids=["one member", "gang"])
def test_the_grants_of_a_run_know_each_replica_with_one_member_until_it_ends(
    cluster: SimulatedCluster, members: list[Member], told: list[str]
) -> None:
    grants = Noted()
    cluster.states = ["PENDING_CREATION", "DEAD"]
    cluster.run(Attempt(REPLICA._replace(members=members), cluster.context()._replace(grants=grants)))
    assert grants.told == told


def test_the_next_replica_on_a_shared_card_waits_until_this_one_has_its_card(cluster: SimulatedCluster) -> None:
    first, second = (REPLICA._replace(id=f"m/{number}", members=[MEMBER._replace(gpus=gpus)])
                     for number, gpus in ((2, 5_000), (3, 2_500)))
    context = cluster.context()._replace(turns=CardTurns([first, second]))
    attempt, may_begin = Attempt(first, context), list[bool]()
    cluster.states = ["PENDING_CREATION"]
    for cluster.placed in (False, True):
        attempt.step()
        may_begin.append(context.turns.may_begin("m/3"))
    assert may_begin == [False, True]


def test_a_long_wait_for_the_cards_of_a_gang_does_not_prolong_its_start(cluster: SimulatedCluster) -> None:
    cluster.states, cluster.group_granted_at = ["PENDING_CREATION"], 500.0
    result = cluster.run(cluster.attempt(members=[MEMBER, MEMBER]))
    assert (result.outcome, result.code) == ("starting", "STILL_STARTING")
    assert cluster.now == 500 + LIFECYCLE.startup_timeout + 30 + attempt_module.MARGIN_S + 0.25


def test_time_without_a_response_from_ray_does_not_count(cluster: SimulatedCluster) -> None:
    """The GCS is unreachable for longer than the scheduling timeout: the next check must not take anything back."""
    cluster.placed, cluster.granted = False, False
    attempt = cluster.attempt()
    attempt.step()
    cluster.short = ["node-a has 0 GPU free, 1 needed"]
    cluster.now += 400
    attempt.step()
    assert attempt.outcome is None
    cluster.placed = True
    assert cluster.run(attempt).outcome == "ready"
    assert cluster.killed == []


def test_a_replica_that_may_be_granted_is_awaited_for_its_own_scheduling_timeout(cluster: SimulatedCluster) -> None:
    cluster.placed = False
    lifecycle = LIFECYCLE._replace(scheduling_timeout=2 * WORKER_S)
    assert cluster.run(cluster.attempt(lifecycle=lifecycle)).code == "NO_WORKER"
    assert cluster.now >= 2 * WORKER_S


def test_a_replica_that_was_starting_before_is_never_taken_back(cluster: SimulatedCluster) -> None:
    cluster.placed, cluster.granted, cluster.short = False, False, ["full"]
    result = cluster.run(EarlierAttempt(REPLICA._replace(id="m;x/2"), cluster.context()))
    assert (result.outcome, result.code) == ("starting", "NO_WORKER")
    assert "`fleetctl evict 'm;x/2'`" in result.message
    assert cluster.killed == []


def test_a_restarting_replica_without_a_worker_is_not_awaited_until_its_timeout(cluster: SimulatedCluster) -> None:
    cluster.placed, cluster.waits_as = False, "RESTARTING"
    result = cluster.run(EarlierAttempt(REPLICA, cluster.context()))
    assert (result.outcome, result.code) == ("starting", "NO_WORKER")
    assert cluster.now == NO_WORKER_S + 0.25


def test_a_replica_that_was_starting_before_is_awaited(cluster: SimulatedCluster) -> None:
    cluster.states = ["PENDING_CREATION", "PENDING_CREATION", "ALIVE"]
    attempt = EarlierAttempt(REPLICA, cluster.context())
    assert attempt.granted, "no other replica waits for its cards"
    assert cluster.run(attempt).outcome == "ready"
    assert cluster.events == []


def test_a_replica_that_was_starting_before_and_has_a_worker_has_the_time_of_a_start(cluster: SimulatedCluster) -> None:
    cluster.states = ["PENDING_CREATION"]
    result = cluster.run(EarlierAttempt(REPLICA, cluster.context()))
    assert (result.outcome, result.code) == ("starting", "STILL_STARTING")


def test_a_replica_that_was_starting_before_and_died_or_is_gone_has_failed(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: str) -> None:
        raise ValueError

    cluster.placed, cluster.waits_as, grants = False, "DEAD", Noted()
    assert cluster.run(EarlierAttempt(REPLICA, cluster.context()._replace(grants=grants))).code == "REPLICA_DIED"
    assert grants.told == [], "this run has not created it"
    monkeypatch.setattr(attempt_module.ray, "get_actor", gone)
    attempt = EarlierAttempt(REPLICA, cluster.context())
    attempt.step()
    assert attempt.outcome is not None
    assert (attempt.outcome.outcome, attempt.outcome.code, attempt.outcome.message) == (
        "failed", "REPLICA_DIED", "it was starting when this run began and is gone now")


def test_a_replica_begins_while_few_wait_for_ray_and_once_earlier_ones_have_their_shared_cards(
    cluster: SimulatedCluster
) -> None:
    first, second = (REPLICA._replace(id=f"m/{number}", members=[MEMBER._replace(gpus=gpus)])
                     for number, gpus in ((1, 5_000), (2, 2_500)))
    context = cluster.context()._replace(creating=Creating(2), turns=CardTurns([first, second]))
    attempt = Attempt(second, context)
    assert not attempt.may_begin(), "the earlier one may still get another card"
    context.turns.done("m/1")
    elsewhere = REPLICA._replace(members=[MEMBER._replace(node_id="n2")])
    context.creating.note(elsewhere._replace(id="x/0"), is_waiting=True)
    assert attempt.may_begin()
    context.creating.note(elsewhere._replace(id="y/0"), is_waiting=True)
    assert not attempt.may_begin()
    attempt.granted = True
    assert attempt.may_begin()


def test_on_a_node_wait_twice_as_many_as_ray_starts_workers_there_at_once() -> None:
    creating = Creating(100)
    creating.at_once = {"n1": 3}
    here = [REPLICA._replace(id=f"m/{number}") for number in range(8)]
    for one in here[:6]:
        assert creating.has_room(one)
        creating.note(one, is_waiting=True)
        creating.note(one, is_waiting=True)
    assert not creating.has_room(here[6])
    unknown = REPLICA._replace(id="n/0", members=[MEMBER._replace(node_id="n2")])
    assert creating.has_room(unknown), "a node of which nothing is known starts one"
    creating.note(here[0]._replace(members=()), is_waiting=False)
    creating.note(here[0], is_waiting=False)
    assert creating.has_room(here[6])
    creating.note(here[6], is_waiting=True)
    assert not creating.has_room(here[7])


def test_a_replica_waits_for_ray_until_it_has_its_cards_and_may_then_be_left(cluster: SimulatedCluster) -> None:
    context, seen = cluster.context(), list[tuple[bool, int]]()
    cluster.placed, cluster.states = False, ["PENDING_CREATION"]
    attempt = Attempt(REPLICA, context)
    for cluster.placed in (False, True):
        attempt.step()
        seen.append((attempt.may_be_left, len(context.creating._waiting)))
    assert seen == [(False, 1), (True, 0)]


@pytest.mark.parametrize(("interrupted", "code", "message"), [
    (True, "INTERRUPTED", "the apply was interrupted"), (False, None, "created, not awaited")])
def test_a_replica_that_is_left_is_starting_once_it_was_created_and_skipped_before(
    cluster: SimulatedCluster, interrupted: bool, code: str | None, message: str
) -> None:
    cluster.states = ["PENDING_CREATION"]
    attempt = cluster.attempt()
    for outcome in ("skipped", "starting"):
        left = attempt.at_end(interrupted)
        assert (left.outcome, left.code, left.message, left.replica_id) == (outcome, code, message, 2)
        attempt.step()
