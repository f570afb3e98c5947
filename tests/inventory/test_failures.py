"""The failures of an inventory: read from Ray's dead actors, of any agent version, optional for completeness."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_dashboard import FakeDashboard, status

from fleetctl.agent.messages import GotWeights, Lifecycle, Member, Replica, ServedWeights
from fleetctl.agent.report import StartFailed, about, describe, encode_failure, place_of
from fleetctl.documents.inventory import Failure, Start
from fleetctl.inventory.failures import newest_starts

MEMBER = Member("main", 0, "Standalone", 0, "n1", "node-1")
REPLICA = Replica("org/m/3", "org/m", 3, Lifecycle(60.0, restart_max=3), "abc", fleet="lab", namespace="fleet",
                  members=(MEMBER,))
PLACE = place_of(MEMBER)._replace(ip="10.0.0.7", port=7001, gpu_indices=[1], gpu_uuids=["GPU-aa"])


def dead(cause: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    """A dead actor as the state API lists it."""
    return {"actor_id": "a1", "class_name": "ModelActor", "state": "DEAD", "name": "ModelActor:org/m:3",
            "ray_namespace": "invfleet", "node_id": "n1", "num_restarts": "2", "repr_name": "", "death_cause": cause,
            "job_id": "99000000", "placement_group_id": None, "required_resources": None, **more}


def raised(text: str) -> dict[str, Any]:
    twice = f"Traceback\n\nRuntimeError: {text}\n\nDuring handling another one:\nRuntimeError: {text}\n"
    return {"creation_task_failure_context": {"formatted_exception_string": twice}}


def ended(text: str, reason: str = "WORKER_DIED") -> dict[str, Any]:
    return {"actor_died_error_context": {"error_message": text, "reason": reason}}


def found(dashboard: FakeDashboard, read: Any, *rows: dict[str, Any]) -> list[Failure]:
    dashboard.dead += rows
    inventory = read()
    assert inventory.complete, inventory.warnings
    return list(inventory.failures)


def test_a_failed_start_leaves_code_time_spec_node_and_cards(dashboard: FakeDashboard, read: Any) -> None:
    failure = StartFailed("ENGINE_EXITED", "it ended;\nlast output: out of memory", [PLACE])
    packed = encode_failure(about(REPLICA, failure))
    [one] = found(dashboard, read, dead(raised(packed)))
    assert (one.model, one.replica_id, one.fleet, one.spec_hash) == ("org/m", 3, "lab", "abc")
    assert (one.node_ids, one.gpu_uuids, one.code, one.restarts) == (["n1"], ["GPU-aa"], "ENGINE_EXITED", 2)
    assert one.message == "it ended;\nlast output: out of memory"
    assert one.at is not None


def test_an_end_after_ready_leaves_the_same(dashboard: FakeDashboard, read: Any) -> None:
    packed = encode_failure(about(REPLICA, StartFailed("ENGINE_EXITED", "the engine exited")))
    ray = f"The actor is dead because its worker process has died. Worker exits with an exit code 1. {packed}"
    [one] = found(dashboard, read, dead(ended(ray), class_name="GangCoordinator"))
    assert (one.code, one.message, one.node_ids, one.gpu_uuids) == ("ENGINE_EXITED", "the engine exited", ["n1"], [])


def test_records_of_older_agents_and_of_the_kernel_are_read_as_far_as_possible(
    dashboard: FakeDashboard, read: Any
) -> None:
    marks = describe(REPLICA, [PLACE], "2026-03-04T12:00:00Z")
    failures = found(
        dashboard, read,
        dead(raised('FLEETCTL_FAILED {"code": "ENV_MISSING", "message": "TOKEN"}'), actor_id="a1"),
        dead(ended("worker died\nof something"), actor_id="a2", repr_name=marks),
        dead({"oom_context": {"error_message": "killed by Ray's memory monitor"}}, actor_id="a3"),
        dead(raised('FLEETCTL_FAILED {"code": "X", "at": "yesterday", "nodeIds": 7, "specHash": []}'), actor_id="a4"))
    assert [(one.code, one.message, one.at, one.spec_hash, one.node_ids) for one in failures] == [
        ("ENV_MISSING", "TOKEN", None, None, ["n1"]),
        ("REPLICA_DIED", "worker died", None, "abc", ["n1"]),
        ("REPLICA_DIED", "killed by Ray's memory monitor", None, None, ["n1"]),
        ("X", "Traceback", None, None, ["n1"])]
    assert failures[1].gpu_uuids == ["GPU-aa"]


LOW_ON_MEMORY = {"oom_context": {"error_message": "killed: the node runs low on memory\nmuch more"}}


def test_a_replica_ended_by_ray_or_the_kernel_has_rays_time_and_its_applys_plan(
    dashboard: FakeDashboard, read: Any
) -> None:
    job = dashboard.bodies["jobs"][0]
    record = {"type": "planAccepted", "replicas": [{"model": "org/m", "replicaId": 3, "specHash": "abc", "members": [
        {"group": "main", "copy": 0, "role": "Standalone", "rank": 0, "nodeId": "n7"}]}]}
    dashboard.bodies["job_log"] = {"logs": json.dumps(record, separators=(",", ":"))}
    marks = describe(REPLICA, [PLACE], "2026-03-04T11:00:00Z")
    at_noon = {"died_ms": 1_772_625_600_123, "node_id": None}
    starting, was_ready = found(
        dashboard, read,
        dead(LOW_ON_MEMORY, actor_id="a1", job_id=job["driver_info"]["id"], **at_noon),
        dead(ended("worker died"), actor_id="a2", repr_name=marks, **at_noon))
    assert (starting.fleet, starting.spec_hash, starting.node_ids) == (job["metadata"]["fleet"], "abc", ["n7"])
    assert (was_ready.fleet, was_ready.spec_hash, was_ready.node_ids) == ("lab", "abc", ["n1"])
    assert starting.at == was_ready.at == "2026-03-04T12:00:00Z"
    dashboard.behaviours["/logical/actors"] = status(500)
    assert [one.at for one in found(dashboard, read)] == [None, None]


@pytest.mark.parametrize("row", [
    dead(ended("The actor is dead because it was killed by `ray.kill`.", "RAY_KILL")),
    dead(ended("its node has died", "NODE_DIED")), dead(None), dead({}), dead(raised("boom"), ray_namespace="theirs"),
    dead(raised("boom"), name="other"), dead(raised("boom"), name=None), dead(raised("boom"), state="ALIVE"),
    dead(raised("boom"), name="ModelActor:org/m:0123456789abcdef0123456789abcdef"),
], ids=["evicted", "node died", "no cause", "empty cause", "another namespace", "another actor", "no name", "live",
        "foreign"])
def test_ends_without_a_fault_of_the_replica_are_not_failures(
    dashboard: FakeDashboard, read: Any, row: dict[str, Any]
) -> None:
    assert len(found(dashboard, read, row, dead(raised("boom"), actor_id="a2"))) == 1  # the other member


def test_a_gang_that_ended_itself_by_force_records_the_failure_in_its_repr(
    dashboard: FakeDashboard, read: Any
) -> None:
    killed = ended("The actor is dead because it was killed by `ray.kill`.", "RAY_KILL")
    failure = StartFailed("MEMBER_SILENT", "rank 1", [PLACE])
    marks = describe(REPLICA, [PLACE], "", failed=about(REPLICA, failure))
    [one] = found(dashboard, read, dead(killed, repr_name=marks, class_name="GangCoordinator"))
    assert (one.code, one.message, one.node_ids, one.gpu_uuids) == ("MEMBER_SILENT", "rank 1", ["n1"], ["GPU-aa"])
    assert one.at is not None


def retried(*earlier: str) -> Replica:
    return REPLICA._replace(earlier_tries=earlier)


def tried(actor_id: str, *earlier: str, code: str = "CARD_IN_USE") -> dict[str, Any]:
    """One of several attempts to create a replica, for which Ray granted a card in foreign use."""
    failure = about(retried(*earlier), StartFailed(code, "card 0", [PLACE._replace(gpu_indices=[0])]))
    return dead(raised(encode_failure(failure)), actor_id=actor_id)


def test_the_tries_of_one_create_are_one_failure_and_none_if_it_came_up(
    dashboard: FakeDashboard, read: Any
) -> None:
    three = [tried("a1"), tried("a2", "a1"), tried("a3", "a1", "a2")]
    assert [one.actor_id for one in found(dashboard, read, *three)] == ["a3"]
    up = describe(retried("b1"), [PLACE], "2026-03-04T12:00:00Z")
    evicted = dead(ended("killed by `ray.kill`", "RAY_KILL"), actor_id="b2", repr_name=up)
    assert [one.actor_id for one in found(dashboard, read, tried("b1"), evicted)] == ["a3"]
    live = dashboard.rows("actors_alive")[0]
    live["repr_name"] = describe(retried("c1"), [PLACE], "2026-03-04T12:00:00Z")
    assert live["name"].startswith("ModelActor:")
    assert [one.actor_id for one in found(dashboard, read, tried("c1"))] == ["a3"]


def cut(total: int) -> Any:
    body = {"data": {"result": {"result": [], "total": total, "num_after_truncation": 10_000}}}
    return status(200, json.dumps(body).encode())


@pytest.mark.parametrize(("behaviour", "why"), [
    (cut(10_001), "was cut"), (status(403), "refused"), (status(500), "500"),
], ids=["cut", "refused", "error"])
def test_an_incomplete_answer_is_a_warning_and_no_failures(
    dashboard: FakeDashboard, read: Any, behaviour: Any, why: str
) -> None:
    dashboard.behaviours["failures"] = behaviour
    assert found(dashboard, read) == []
    assert [why in warning for warning in read().warnings if "nothing cools down" in warning] == [True]


def test_nodes_have_their_start_time(dashboard: FakeDashboard, read: Any) -> None:
    dashboard.rows("nodes")[0]["start_time_ms"] = 1_772_625_600_123
    node_id = dashboard.rows("nodes")[0]["node_id"]
    assert {node.id: node.started_at for node in read().nodes}[node_id] == "2026-03-04T12:00:00Z"


def succeeded(dashboard: FakeDashboard, read: Any, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    dashboard.dead[:] = rows
    return [(one.model, one.spec_hash, one.node_ids, one.gpu_uuids, one.at) for one in read().successes]


BEFORE = about(REPLICA, StartFailed("ENGINE_EXITED", "no", [PLACE]))._replace(at="2026-03-04T11:00:00Z")
FAILED = dead(raised(encode_failure(BEFORE)), actor_id="b1")
SUCCESS = ("org/m", "abc", ["n1"], ["GPU-aa"], "2026-03-04T12:00:00Z")


def test_an_evicted_replica_that_was_ready_after_a_failure_is_a_success(dashboard: FakeDashboard, read: Any) -> None:
    killed = ended("killed by `ray.kill`", "RAY_KILL")

    def ready(at: str = SUCCESS[-1], cause: Any = killed, restarts: str = "0", **more: Any) -> dict[str, Any]:
        text = describe(REPLICA._replace(**more), [PLACE], at)
        return dead(cause, repr_name=text, actor_id="b2", num_restarts=restarts)

    assert succeeded(dashboard, read, FAILED, ready()) == [SUCCESS]
    assert succeeded(dashboard, read, FAILED, ready(cause=ended("by its node", "NODE_DIED"), restarts="1")) == [SUCCESS]
    assert [one[1] for one in succeeded(dashboard, read, FAILED, ready(spec_hash="new"))] == ["new"], "on the same node"
    for nothing in ([ready()], [FAILED, ready("2026-03-04T10:00:00Z")], [FAILED, ready("")],
                    [FAILED, ready(restarts="2")], [FAILED, ready(cause=ended("died"))]):
        assert succeeded(dashboard, read, *nothing) == []


def test_a_replica_lost_with_its_node_was_ready(dashboard: FakeDashboard, read: Any) -> None:
    row = next(one for one in dashboard.rows("actors_alive") if one["name"].startswith("ModelActor:"))
    at = PLACE._replace(node_id=row["node_id"])
    row.update(name="ModelActor:org/m:3", state="RESTARTING", num_restarts="1",
               repr_name=describe(REPLICA, [at], SUCCESS[-1]))
    assert succeeded(dashboard, read, FAILED) == [], "its node is alive"
    for node in dashboard.rows("nodes"):
        node["state"] = "DEAD" if node["node_id"] == row["node_id"] else node["state"]
    assert [one[:2] for one in succeeded(dashboard, read, FAILED)] == [SUCCESS[:2]]


def test_a_card_that_has_failed_is_known_even_if_the_replica_came_up_on_another(
    dashboard: FakeDashboard, read: Any
) -> None:
    live = dashboard.rows("actors_alive")[0]
    live["repr_name"] = describe(retried("c1", "c2"), [PLACE], "2026-03-04T12:00:00Z")
    one, other = found(dashboard, read, tried("c1", code="CARD_LOST"), tried("c2", "c1"), tried("c3", "c1", "c2"))
    assert (one.actor_id, one.code, one.node_ids, one.gpu_indices) == ("c1", "CARD_LOST", ["n1"], [0])
    assert (other.actor_id, other.gpu_indices) == ("c3", [])


def test_live_and_ended_replicas_tell_how_long_their_starts_took(dashboard: FakeDashboard, read: Any) -> None:
    def report(minute: int, seconds: float, *sources: str) -> str:
        places = [PLACE._replace(rank=rank, weights=ServedWeights(
            "a" * 64, None, bytes=5 << 30, fetched=GotWeights(source))) for rank, source in enumerate(sources)]
        return describe(REPLICA, places or [PLACE], f"2026-03-04T11:{minute:02}:00Z", started_in=seconds)

    dashboard.rows("actors_alive")[0]["repr_name"] = report(30, 40.5)
    killed = ended("killed by `ray.kill`", "RAY_KILL")
    failed = raised(encode_failure(about(REPLICA, StartFailed("ENGINE_EXITED", "the engine ended"))))
    dashboard.dead += [dead(killed, actor_id="b1", repr_name=report(20, 200.0, "disk", "peer")),
                       dead(failed, actor_id="b2", repr_name=report(10, 300.0, "origin")),
                       dead(killed, actor_id="b3", repr_name=describe(REPLICA, [PLACE], "2026-03-04T11:00:00Z")),
                       dead(failed, actor_id="b4", repr_name=describe(REPLICA, [], "", started_in=5.0))]
    found = read().starts
    assert [(one.seconds, one.weights, one.bytes >> 30) for one in found] == [
        (300.0, "origin", 5), (200.0, "peer", 10), (40.5, None, 0)]
    assert {(one.spec_hash, *one.node_ids) for one in found} == {("abc", "n1")}


def test_of_each_spec_and_source_of_weights_the_newest_starts_are_kept() -> None:
    starts = [Start(model="m", spec_hash=spec, seconds=1.0 + number, at=f"2026-03-04T11:{number:02}:00Z")
              for number in range(30) for spec in ("old", "new")]
    kept = newest_starts(reversed(starts))
    assert [one.seconds for one in kept if one.spec_hash == "old"] == [float(one) for one in range(11, 31)]
    assert len(kept) == 40
