"""A replica whose repr Ray never got, with a stand-in for Ray's records: it ends itself, for Ray to restart it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.agent import replica
from fleetctl.agent.cluster import ActorRecord
from fleetctl.agent.replica import ModelActor

READY = "2026-03-04T12:00:00Z"


def seen(state: str, report: str = "") -> ActorRecord:
    return ActorRecord(state, placed=True, report=report, death="")


@pytest.mark.parametrize(("ready_at", "records", "ends"), [
    (READY, [seen("ALIVE", f'{{"readyAt":"{READY}"}}')], False),
    (READY, [seen("PENDING_CREATION"), seen("ALIVE"), seen("ALIVE", READY)], False),
    ("", [seen("PENDING_CREATION"), ConnectionError(), seen("ALIVE"), ConnectionError(), seen("ALIVE")], True),
    (READY, [seen("ALIVE"), seen("ALIVE")], True),
    (READY, [seen("ALIVE", "of its last life"), seen("ALIVE", "of its last life")], True),
], ids=["heard", "heard late", "while it starts", "ready", "of its last life"])
def test_a_replica_whose_repr_ray_never_got_starts_again(
    monkeypatch: pytest.MonkeyPatch, ready_at: str, records: list[Any], *, ends: bool
) -> None:
    def look(_: str) -> ActorRecord:
        record = records.pop(0)
        if isinstance(record, Exception):
            raise record
        return record

    did: list[Any] = []
    monkeypatch.setattr(replica, "ray", SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(get_actor_id=lambda: "ab")))
    monkeypatch.setattr(replica.cluster, "actor_record", look)
    monkeypatch.setattr(replica, "CHECK_S", 0)
    monkeypatch.setattr(replica, "log_of", lambda _: SimpleNamespace(end=did.append))
    monkeypatch.setattr(replica, "os", SimpleNamespace(_exit=did.append))
    one: Any = object.__new__(ModelActor)
    one._replica, one._ready_at = {"members": [{}]}, ready_at
    one._end_members = lambda: did.append("members")
    one._require_published_repr()
    assert (records, did[1:]) == ([], ["members", 1] if ends else [])
