"""A replica ends itself if Ray never got its repr, to be restarted, or has ended it; the records are simulated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.agent import replica
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.gang import GangCoordinator
from fleetctl.agent.messages import FailedStart
from fleetctl.agent.replica import ModelActor

READY = "2026-03-04T12:00:00Z"


def record(state: str, report: str = "") -> ActorRecord:
    return ActorRecord(state, placed=True, report=report, death="")


@pytest.mark.parametrize(("ready_at", "records", "ends"), [
    (READY, [record("ALIVE", f'{{"readyAt":"{READY}"}}')], False),
    (READY, [record("PENDING_CREATION"), record("ALIVE"), record("ALIVE", READY)], False),
    ("", [record("PENDING_CREATION"), ConnectionError(), record("ALIVE"), ConnectionError(), record("ALIVE")], True),
    (READY, [record("ALIVE"), record("ALIVE")], True),
    (READY, [record("ALIVE", "of its last life"), record("ALIVE", "of its last life")], True),
], ids=["published", "published late", "while it starts", "ready", "of its last life"])
def test_a_replica_whose_repr_ray_never_got_restarts(
    monkeypatch: pytest.MonkeyPatch, ready_at: str, records: list[Any], *, ends: bool
) -> None:
    def read(_: str) -> ActorRecord:
        answer = records.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    did: list[Any] = []
    monkeypatch.setattr(replica, "ray", SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(get_actor_id=lambda: "ab")))
    monkeypatch.setattr(replica.cluster, "actor_record", read)
    monkeypatch.setattr(replica, "CHECK_S", 0)
    monkeypatch.setattr(replica, "log_of", lambda _: SimpleNamespace(end=did.append))
    monkeypatch.setattr(replica, "os", SimpleNamespace(_exit=did.append))
    one: Any = object.__new__(ModelActor)
    one._replica, one._ready_at, one._failed = SimpleNamespace(members=["the first"]), ready_at, None
    one._end_members = lambda: did.append("members")
    one._require_published_repr()
    assert (records, did[1:]) == ([], ["members", 1] if ends else [])


def test_a_gang_whose_first_start_has_failed_is_not_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray may report it as ALIVE until it ends itself by force, permanently: that is no restart of the head."""
    monkeypatch.setattr(replica, "ray", SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(get_actor_id=lambda: "ab")))
    monkeypatch.setattr(replica.cluster, "actor_record", lambda _: record("ALIVE", '{"failed":{}}'))
    monkeypatch.setattr(replica, "CHECK_S", 0)
    one: Any = object.__new__(GangCoordinator)
    one._ready_at, one._failed = "", FailedStart("MEMBER_FAILED", "it died")
    one._require_published_repr()


def test_a_replica_ends_itself_once_ray_has_it_as_dead_although_it_never_heard_of_that(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the head is down, has lost its table, or has restarted the actor in another process."""
    class Ended(BaseException):
        pass

    def leave(code: int) -> None:
        raise Ended(code)

    records: list[Any] = [record("ALIVE", READY), ConnectionError(), GONE, record("RESTARTING"),
                          record("DEAD")._replace(worker_id="of another process"),
                          record("DEAD")._replace(worker_id="ours"), "one too many"]

    def read(_: str) -> ActorRecord:
        answer = records.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(replica, "ray", SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(
        get_actor_id=lambda: "ab", get_worker_id=lambda: "ours")))
    monkeypatch.setattr(replica.cluster, "actor_record", read)
    monkeypatch.setattr(replica, "CHECK_S", 0)
    monkeypatch.setattr(replica, "DEAD_CHECK_S", 0)
    monkeypatch.setattr(replica, "log_of", lambda _: SimpleNamespace(end=lambda _: None))
    monkeypatch.setattr(replica, "os", SimpleNamespace(_exit=leave))
    one: Any = object.__new__(ModelActor)
    one._replica, one._ready_at, one._failed = SimpleNamespace(members=["the first"]), READY, None
    with pytest.raises(Ended, match="1"):
        one._watch_record()
    assert records == ["one too many"]
