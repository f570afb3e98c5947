"""How a start that fails, or a replica that goes down during the apply, is reported."""

from __future__ import annotations

from typing import Any

import pytest
from attempt_stand_in import MEMBER, Here

from fleetctl.agent import attempt as attempt_module
from fleetctl.agent import cluster
from fleetctl.agent.attempt import CONSTRUCTED_S
from fleetctl.agent.cluster import GONE
from fleetctl.agent.create import CreatedHere
from fleetctl.agent.failure import encode_failure


def test_alive_counts_only_once_the_constructor_has_returned(here: Here) -> None:
    here.states, here.constructed = ["PENDING_CREATION", "ALIVE", "DEAD"], False
    here.death = f"ray says: RuntimeError: {encode_failure('ENGINE_EXITED', 'no weights')}"
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == ("failed", "ENGINE_EXITED", "no weights")


def test_alive_without_a_constructed_replica_is_reported_soon(here: Here) -> None:
    here.constructed = False
    told = here.run(here.attempt(id="m;x/2"))
    assert (told["outcome"], told["code"]) == ("failed", "NEVER_CONSTRUCTED")
    assert "`fleetctl evict 'm;x/2'`" in told["message"]
    assert here.now <= 2 * CONSTRUCTED_S
    assert here.killed == []


def test_time_without_an_answer_from_ray_does_not_count_as_unconstructed(here: Here) -> None:
    attempt = here.attempt()
    attempt.step()
    here.now += 10 * CONSTRUCTED_S  # the head was restarted; it takes the replica for ready until that ends itself
    here.states, here.constructed = ["ALIVE"], False
    attempt.step()
    here.states, here.constructed = ["RESTARTING", "RESTARTING", "ALIVE"], True
    assert here.run(attempt)["outcome"] == "ready"


@pytest.mark.parametrize(("state", "trouble", "told"), [
    ("ALIVE", None, None),
    ("RESTARTING", None, ("starting", "STILL_STARTING", "it was ready, went down and is restarting")),
    ("DEAD", None, ("failed", "REPLICA_DIED", "it was ready and went down: worker died")),
    ("DEAD", ("NODE_GONE", "gone"), ("failed", "NODE_GONE", "it was ready and went down: node-a: gone")),
    ("DEAD", ("NODE_DRAINING", "draining"), ("failed", "REPLICA_DIED", "it was ready and went down: worker died")),
])
def test_a_replica_that_was_ready_may_have_gone_down_since(
    here: Here, state: str, trouble: tuple[str, str] | None, told: tuple[str, str, str] | None
) -> None:
    attempt = here.attempt()
    assert here.run(attempt)["outcome"] == "ready"
    here.states, here.death = [state], "worker died\nmore"
    if trouble:
        here.trouble["n1"] = trouble
    found = attempt.since_ready()
    assert (found and (found["outcome"], found["code"], found["message"])) == told


def test_a_replica_evicted_after_it_was_ready_has_not_failed(here: Here) -> None:
    attempt = here.attempt()
    assert here.run(attempt)["outcome"] == "ready"
    here.states, here.death, here.evicted = ["DEAD"], "killed by `ray.kill`", True
    assert attempt.since_ready() is None


def test_a_start_that_ended_with_its_node_names_the_node(here: Here) -> None:
    attempt = here.attempt()
    here.states = ["PENDING_CREATION"]
    attempt.step()
    here.trouble["n1"], here.states = ("NODE_GONE", "the node is dead or gone"), ["DEAD"]
    here.death = "The node specified via NodeAffinitySchedulingStrategy doesn't exist any more"
    told = here.run(attempt)
    assert (told["code"], told["message"]) == ("NODE_GONE", "node-a: the node is dead or gone")


def test_a_gang_that_ended_itself_by_force_reports_its_kept_reason(here: Here) -> None:
    here.states, here.kept = ["DEAD"], ("MEMBER_SILENT", "a member did not answer")
    here.death = "The actor is dead because it was killed by `ray.kill`."
    told = here.run(here.attempt(members=[MEMBER, MEMBER]))
    assert (told["code"], told["message"]) == here.kept


def test_a_failed_constructor_reports_the_engines_last_output_and_kills_nothing(here: Here) -> None:
    words = "code 3; last output: no weights"
    here.states = ["PENDING_CREATION", "DEAD"]
    here.death = f"ray says: RuntimeError: {encode_failure('ENGINE_EXITED', words)}"
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == ("failed", "ENGINE_EXITED", words)
    assert here.killed == []


def test_an_actor_without_a_record_is_dead(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "actor_record", lambda _: GONE)
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == ("failed", "REPLICA_DIED", "Ray gave no reason")


def test_a_replica_whose_node_dies_before_it_has_a_worker_says_so(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node may cure that, so the run plans again; REPLICA_DIED would have been the end of it."""
    def create(replica: dict[str, Any]) -> CreatedHere:
        here.placed, here.waits_as = False, "DEAD"
        here.trouble["n1"] = ("NODE_GONE", "the node is dead or gone")
        return here.create(replica)

    monkeypatch.setattr(attempt_module, "create", create)
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == (
        "failed", "NODE_GONE", "node-a: the node is dead or gone")


def test_an_unexpected_error_fails_only_its_replica(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> set[str]:
        raise OSError("the table is gone\nwith details")

    monkeypatch.setattr(cluster, "taken_names", broken)
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == (
        "failed", "AGENT_ERROR", "OSError: the table is gone")
