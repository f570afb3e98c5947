"""How a start that fails, or a replica that goes down during the apply, is reported."""

from __future__ import annotations

import pytest
from attempt_stand_in import MEMBER, REPLICA, SimulatedCluster

from fleetctl.agent import attempt as attempt_module
from fleetctl.agent import cluster as cluster_module
from fleetctl.agent.attempt import CONSTRUCTED_S, EarlierAttempt
from fleetctl.agent.cluster import GONE
from fleetctl.agent.create import CreatedHere
from fleetctl.agent.messages import FailedStart, Replica
from fleetctl.agent.report import encode_failure
from fleetctl.agent.view import View


def test_alive_counts_only_after_the_constructor_has_returned(cluster: SimulatedCluster) -> None:
    cluster.states, cluster.constructed = ["PENDING_CREATION", "ALIVE", "DEAD"], False
    cluster.death = f"ray says: RuntimeError: {encode_failure(FailedStart('ENGINE_EXITED', 'no weights'))}"
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code, result.message) == ("failed", "ENGINE_EXITED", "no weights")


def test_alive_without_a_constructed_replica_is_reported_soon(cluster: SimulatedCluster) -> None:
    cluster.constructed = False
    result = cluster.run(cluster.attempt(id="m;x/2"))
    assert (result.outcome, result.code) == ("failed", "NEVER_CONSTRUCTED")
    assert "`fleetctl evict 'm;x/2'`" in result.message
    assert cluster.now == CONSTRUCTED_S + 0.25
    assert cluster.killed == []


def test_only_the_time_since_an_actor_is_alive_counts_for_its_constructor(cluster: SimulatedCluster) -> None:
    attempt = cluster.attempt()
    cluster.states, cluster.constructed = ["PENDING_CREATION"], False
    while cluster.now < 6 * CONSTRUCTED_S:
        attempt.step()
        cluster.now += 1
        cluster.states = ["ALIVE"] if cluster.now > 5 * CONSTRUCTED_S + 1 else cluster.states
    assert attempt.outcome is None
    cluster.constructed = True
    assert cluster.run(attempt).outcome == "ready"


def test_time_without_a_response_from_ray_does_not_count_as_unconstructed(cluster: SimulatedCluster) -> None:
    attempt = cluster.attempt()
    attempt.step()
    cluster.now += 10 * CONSTRUCTED_S  # after a restart of the head, the replica counts as ready until it ends itself
    cluster.states, cluster.constructed = ["ALIVE"], False
    attempt.step()
    cluster.states, cluster.constructed = ["RESTARTING", "RESTARTING", "ALIVE"], True
    assert cluster.run(attempt).outcome == "ready"


def test_a_gap_in_rays_answers_does_not_count_for_a_replica_under_construction(cluster: SimulatedCluster) -> None:
    cluster.constructed = False
    attempt = cluster.attempt()
    attempt.step()
    cluster.now += 10 * CONSTRUCTED_S
    attempt.step()
    assert attempt.outcome is None
    cluster.constructed = True
    assert cluster.run(attempt).outcome == "ready"


@pytest.mark.parametrize(("state", "trouble", "result"), [
    ("ALIVE", None, None),
    ("RESTARTING", None, ("starting", "STILL_STARTING", "it was ready, went down and is restarting")),
    ("DEAD", None, ("failed", "REPLICA_DIED", "it was ready and went down: worker died")),
    ("DEAD", ("NODE_GONE", "gone"), ("failed", "NODE_GONE", "it was ready and went down: node-a: gone")),
    ("DEAD", ("NODE_DRAINING", "draining"), ("failed", "REPLICA_DIED", "it was ready and went down: worker died")),
])
def test_a_replica_that_was_ready_may_have_gone_down_since(
    cluster: SimulatedCluster, state: str, trouble: tuple[str, str] | None, result: tuple[str, str, str] | None
) -> None:
    attempt = cluster.attempt()
    assert cluster.run(attempt).outcome == "ready"
    cluster.states, cluster.death = [state], "worker died\nmore"
    if trouble:
        cluster.trouble["n1"] = trouble
    assert attempt.has_gone_down() is (result is not None)
    found = attempt.outcome
    assert found is not None
    assert (found.outcome, found.code, found.message) == (result or ("ready", None, ""))


def test_only_a_replica_that_was_ready_can_have_gone_down(cluster: SimulatedCluster) -> None:
    cluster.states, cluster.death = ["PENDING_CREATION"], "worker died"
    attempt = cluster.attempt()
    attempt.step()
    cluster.states = ["DEAD"]
    assert (attempt.has_gone_down(), attempt.outcome) == (False, None)
    failed = cluster.run(attempt)
    assert failed.outcome == "failed"
    assert (attempt.has_gone_down(), attempt.outcome) == (False, failed)


def test_a_replica_of_which_ray_does_not_say_anything_has_not_gone_down(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_: str) -> None:
        raise ConnectionError

    attempt = cluster.attempt()
    ready = cluster.run(attempt)
    monkeypatch.setattr(cluster_module, "actor_record", silent)
    assert (attempt.has_gone_down(), attempt.outcome) == (False, ready)


def test_a_replica_of_before_this_run_that_dies_has_its_own_reason(cluster: SimulatedCluster) -> None:
    cluster.states = ["PENDING_CREATION", "DEAD"]
    cluster.death = f"ray says: RuntimeError: {encode_failure(FailedStart('ENGINE_EXITED', 'no weights'))}"
    result = cluster.run(EarlierAttempt(REPLICA, cluster.context()))
    assert (result.outcome, result.code, result.message) == ("failed", "ENGINE_EXITED", "no weights")


def test_an_engine_that_ended_before_its_node_keeps_its_own_reason(cluster: SimulatedCluster) -> None:
    cluster.states = ["PENDING_CREATION"]
    cluster.death = f"ray says: RuntimeError: {encode_failure(FailedStart('ENGINE_EXITED', 'no weights'))}"
    attempt = cluster.attempt()
    attempt.step()
    cluster.trouble["n1"], cluster.states = ("NODE_GONE", "the node is dead or gone"), ["DEAD"]
    assert cluster.run(attempt).code == "ENGINE_EXITED"


def test_a_replica_evicted_after_it_was_ready_is_not_ready(cluster: SimulatedCluster) -> None:
    attempt = cluster.attempt()
    assert cluster.run(attempt).outcome == "ready"
    cluster.states, cluster.death, cluster.evicted = ["DEAD"], "killed by `ray.kill`", True
    assert attempt.has_gone_down()
    assert attempt.outcome is not None
    assert (attempt.outcome.outcome, attempt.outcome.code, attempt.outcome.message) == (
        "failed", "EVICTED", "it was ready and went down: it was evicted; the next apply starts another")


def test_a_replica_evicted_while_it_starts_says_so(cluster: SimulatedCluster) -> None:
    cluster.states, cluster.death, cluster.evicted = ["PENDING_CREATION", "DEAD"], "killed by `ray.kill`", True
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code, result.message) == (
        "failed", "EVICTED", "it was evicted; the next apply starts another")


def test_a_gang_that_ended_itself_after_it_was_ready_has_failed(cluster: SimulatedCluster) -> None:
    attempt = cluster.attempt(members=[MEMBER, MEMBER])
    assert cluster.run(attempt).outcome == "ready"
    cluster.states, cluster.evicted, cluster.kept = ["DEAD"], True, FailedStart("MEMBER_SILENT", "no answer")
    assert attempt.has_gone_down()
    assert attempt.outcome is not None
    assert (attempt.outcome.outcome, attempt.outcome.code) == ("failed", "MEMBER_SILENT")


def test_a_start_that_ended_with_its_node_names_the_node(cluster: SimulatedCluster) -> None:
    attempt = cluster.attempt()
    cluster.states = ["PENDING_CREATION"]
    attempt.step()
    cluster.trouble["n1"], cluster.states = ("NODE_GONE", "the node is dead or gone"), ["DEAD"]
    cluster.death = "The node specified via NodeAffinitySchedulingStrategy doesn't exist any more"
    result = cluster.run(attempt)
    assert (result.code, result.message) == ("NODE_GONE", "node-a: the node is dead or gone")


def test_a_gang_that_ended_itself_by_force_reports_its_kept_reason(cluster: SimulatedCluster) -> None:
    cluster.states, cluster.kept = ["DEAD"], FailedStart("MEMBER_SILENT", "no answer")
    cluster.death = "The actor is dead because it was killed by `ray.kill`."
    result = cluster.run(cluster.attempt(members=[MEMBER, MEMBER]))
    assert (result.code, result.message) == ("MEMBER_SILENT", "no answer")


def test_a_failed_constructor_reports_the_engines_last_output_and_kills_nothing(cluster: SimulatedCluster) -> None:
    words = "code 3; last output: no weights"
    cluster.states = ["PENDING_CREATION", "DEAD"]
    cluster.death = f"ray says: RuntimeError: {encode_failure(FailedStart('ENGINE_EXITED', words))}"
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code, result.message) == ("failed", "ENGINE_EXITED", words)
    assert cluster.killed == []


def test_an_actor_without_a_record_is_dead(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "actor_record", lambda _: GONE)
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code, result.message) == ("failed", "REPLICA_DIED", "Ray gave no reason")


@pytest.mark.parametrize(("placed", "trouble", "code", "message"), [
    (False, ("NODE_GONE", "the node is dead or gone"), "NODE_GONE", "node-a: the node is dead or gone"),
    (False, ("NODE_DRAINING", "the node is draining"), "NODE_DRAINING", "node-a: the node is draining"),
    (True, ("NODE_DRAINING", "the node is draining"), "REPLICA_DIED", "Ray gave no reason"),
])
def test_the_trouble_of_its_node_is_why_a_replica_without_a_worker_died(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, placed: bool, trouble: tuple[str, str], code: str,
    message: str
) -> None:
    """Another node may fix this, so the run plans again; REPLICA_DIED would end the replica's attempts."""
    def create(replica: Replica, view: View) -> CreatedHere:
        cluster.placed, cluster.waits_as, cluster.states = placed, "DEAD", ["DEAD"]
        cluster.trouble["n1"] = trouble
        return cluster.create(replica, view)

    monkeypatch.setattr(attempt_module, "create", create)
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code, result.message) == ("failed", code, message)


def test_an_unexpected_error_fails_only_its_replica(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> set[str]:
        raise OSError("the table is gone\nwith details")

    monkeypatch.setattr(cluster_module, "taken_names", broken)
    result = cluster.run(cluster.attempt())
    assert (result.outcome, result.code, result.message) == (
        "failed", "AGENT_ERROR", "OSError: the table is gone")
