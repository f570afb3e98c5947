"""Since when replicas are up, and why they went down: which logs are read, and which of their lines count."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.documents.inventory import Replica
from fleetctl.errors import InventoryError
from fleetctl.inventory import uptimes
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import EngineLog
from fleetctl.inventory.uptimes import LOGS_READ, NO_TIMES, Times, _fields_from_log, with_uptimes

LOG = """\
fleetctl: starting main/0 rank 0 at 2026-03-04T09:00:00Z
fleetctl: ended at 2026-03-04T10:00:00Z: of an older one
fleetctl: starting main/0 rank 0 at 2026-03-04T11:00:00Z
fleetctl: ended at 2026-03-04T12:00:00Z: signal 9
"""
OLDER_ALONE = LOG[:LOG.index("fleetctl: starting main/0 rank 0 at 2026-03-04T11")]
UP = "2026-03-04T11:30:00Z", "2026-03-04T11:40:00Z"
CREATED = "2026-03-04T10:59:00Z"
ENDED = {"since": "2026-03-04T12:00:00Z", "error": "signal 9"}


@pytest.mark.parametrize(("state", "since", "up", "log", "news"), [
    ("RESTARTING", None, UP, LOG, ENDED),
    ("RESTARTING", CREATED, NO_TIMES, LOG, ENDED),
    ("RESTARTING", CREATED, NO_TIMES, OLDER_ALONE, {}),
    ("RESTARTING", None, NO_TIMES, LOG, {}),
    ("ALIVE", None, UP, LOG, {"error": "signal 9"}),
    ("ALIVE", None, NO_TIMES, LOG, {}),
    ("ALIVE", None, UP, OLDER_ALONE, {}),
], ids=["ended", "was never ready", "has not ended", "is not in the log", "is ready again", "start unknown",
        "an earlier replica ended"])
def test_only_events_after_the_start_of_this_replica_count(
    state: Any, since: str | None, up: tuple[str, str], log: str, news: dict[str, str]
) -> None:
    replica = Replica(model="m", replica_id=0, state=state, since=since, restarts=1)
    assert dict(_fields_from_log(replica, log, up)) == news


def test_a_replica_that_is_down_is_so_since_its_first_end_and_its_last_one_says_why() -> None:
    log = LOG + "fleetctl: ended at 2026-03-04T12:05:00Z: exit code 3\n"
    replica = Replica(model="m", replica_id=0, state="RESTARTING", restarts=2)
    assert dict(_fields_from_log(replica, log, UP)) == {"since": "2026-03-04T12:00:00Z", "error": "exit code 3"}


class Cluster:
    """A dashboard that knows the times of each actor, and one log for all; `read` = the replicas whose log was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: str = LOG, times: Times = UP) -> None:
        self.read: list[int] = []
        self.times = times
        self.log = log
        monkeypatch.setattr(uptimes, "_times", self.times_of)
        monkeypatch.setattr(uptimes, "read_log", self.read_log)

    def times_of(self, _: DashboardClient, actor_ids: Sequence[str]) -> dict[str, Times]:
        return dict.fromkeys(actor_ids, self.times)

    def read_log(self, _: DashboardClient, log: EngineLog, lines: int) -> Any:
        self.read.append(log.replica_id)
        return SimpleNamespace(data=self.log.encode())

    def uptimes(self, *replicas: Replica, all_replicas: bool = False) -> tuple[list[Replica], list[str]]:
        client: Any = None
        return with_uptimes(client, replicas, "fleet", "2026-03-04T12:10:00Z", all_replicas=all_replicas)


def replica(number: int, **more: Any) -> Replica:
    member = {"group": "main", "nodeId": "ab" * 28, "role": "Standalone"}
    return Replica.model_validate({"model": "m", "replicaId": number, "actorId": f"actor-{number}", "fleet": "lab",
                                   "state": "ALIVE", "constructed": True, "members": [member], **more})


def test_a_replica_that_is_up_is_so_since_ray_last_reported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    [found], problems = cluster.uptimes(replica(0), all_replicas=True)
    assert (found.since, found.error, problems) == ("2026-03-04T11:40:00Z", None, [])
    assert cluster.read == [], "it never ended"


def test_a_replica_that_is_restarting_is_looked_up_although_ray_counts_no_restart(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(monkeypatch)
    [never_ended, restarting], _ = cluster.uptimes(replica(0), replica(1, state="RESTARTING"))
    assert (never_ended.since, never_ended.error) == (None, None)
    assert (restarting.since, restarting.error) == ("2026-03-04T12:00:00Z", "signal 9")


def test_of_too_many_restarted_replicas_those_that_are_down_are_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    up = [replica(number, restarts=1, model="a") for number in range(LOGS_READ)]
    down = [replica(1_000 + number, state="RESTARTING", restarts=1) for number in range(3)]
    found, _ = cluster.uptimes(*up, *down, all_replicas=True)
    assert len(cluster.read) == LOGS_READ
    assert {1_000, 1_001, 1_002} <= set(cluster.read)
    assert [one.error for one in found[-3:]] == ["signal 9"] * 3


def test_an_end_in_the_second_of_its_start_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    log = "fleetctl: ended at 2026-03-04T11:40:00Z: signal 9\n"
    [found], _ = Cluster(monkeypatch, log).uptimes(replica(0, state="RESTARTING"))
    assert (found.since, found.error) == ("2026-03-04T11:40:00Z", "signal 9")


def test_times_that_cannot_be_read_are_a_problem_and_the_replicas_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)

    def no_times(*_: object) -> dict[str, Times]:
        raise InventoryError("no route")

    monkeypatch.setattr(uptimes, "_times", no_times)
    found, problems = cluster.uptimes(replica(0), replica(1, state="RESTARTING"))
    assert [one.error for one in found] == [None, None]
    assert problems == ["the times when replicas became ready could not be read: no route"]
