"""Since when replicas are up, and why they went down: which logs are read, and which of their lines count."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.documents.inventory import Failure, Replica, ReplicaMember
from fleetctl.errors import InventoryError
from fleetctl.inventory import uptimes
from fleetctl.inventory.actors import LOGICAL_KEYS, LOGICAL_PATH
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import EngineLog
from fleetctl.inventory.marks import Marks
from fleetctl.inventory.uptimes import LINES, LOGS_READ, NO_TIMES, Times, _fields_from_log, with_deaths, with_uptimes

LOG = """\
fleetctl: starting main/0 rank 0 at 2026-03-04T09:00:00Z
fleetctl: ended at 2026-03-04T10:00:00Z: of an older one
fleetctl: starting main/0 rank 0 at 2026-03-04T11:00:00Z
fleetctl: ended at 2026-03-04T12:00:00Z: signal 9
"""
OLDER_ALONE = LOG[:LOG.index("fleetctl: starting main/0 rank 0 at 2026-03-04T11")]
UP = "2026-03-04T11:30:00Z", "2026-03-04T11:40:00Z"
CREATED = "2026-03-04T10:59:00Z"
NOW = "2026-03-04T12:10:00Z"
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
    up = replica.model_copy(update={"state": "ALIVE"})
    assert dict(_fields_from_log(up, log, UP)) == {"error": "exit code 3"}


class Cluster:
    """A dashboard that knows the times of each actor, and one log for all; `read` = the replicas whose log was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: str = LOG, times: Times = UP) -> None:
        self.read: list[int] = []
        self.asked: list[str] = []
        self.times = times
        self.log = log
        monkeypatch.setattr(uptimes, "_times", self.times_of)
        monkeypatch.setattr(uptimes, "read_log", self.read_log)

    def times_of(self, _: DashboardClient, actor_ids: Sequence[str]) -> dict[str, Times]:
        self.asked += actor_ids
        return dict.fromkeys(actor_ids, self.times)

    def read_log(self, _: DashboardClient, log: EngineLog, lines: int) -> Any:
        assert lines == LINES
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


def test_without_a_restarted_replica_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, replicas = Cluster(monkeypatch), [replica(0), replica(1, state="PENDING_CREATION")]
    assert (cluster.uptimes(*replicas), cluster.asked) == ((replicas, []), [])
    [unknown] = replicas = [replica(2, actorId=None, restarts=1)]
    assert (cluster.uptimes(unknown, all_replicas=True), cluster.asked) == ((replicas, []), [])


def test_only_replicas_that_ray_has_restarted_are_asked_about_unless_all_are_wanted(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    for all_replicas, asked in ((False, ["actor-1", "actor-2"]), (True, ["actor-0", "actor-1", "actor-2"])):
        cluster = Cluster(monkeypatch)
        found, _ = cluster.uptimes(replica(0), replica(1, restarts=1), replica(2, state="RESTARTING"),
                                 all_replicas=all_replicas)
        assert (cluster.asked, [one.replica_id for one in found]) == (asked, [0, 1, 2])


def test_a_replica_that_ray_does_not_know_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    monkeypatch.setattr(uptimes, "_times", lambda *_: {})
    assert cluster.uptimes(replica(0, restarts=1)) == ([replica(0, restarts=1)], [])


@pytest.mark.parametrize("more", [
    {"state": "PENDING_CREATION"}, {"state": "ALIVE", "constructed": False}, {"times": ("2026-03-04T11:30:00Z", "")}])
def test_the_time_of_a_replica_that_is_not_up_or_of_which_ray_knows_none_stays(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    cluster = Cluster(monkeypatch, log="", times=more.pop("times", UP))
    [found], _ = cluster.uptimes(replica(0, since=CREATED, **more), all_replicas=True)
    assert found.since == CREATED


LATE = "2026-03-04T12:09:00Z"
"""A minute before the inventory."""


@pytest.mark.parametrize(("more", "last_up", "read"), [
    ({"restarts": 1}, LATE, (True, True)), ({"restarts": 1}, UP[1], (False, True)), ({}, LATE, (False, False)),
    ({"state": "RESTARTING"}, UP[1], (True, True)), ({"state": "PENDING_CREATION"}, "", (False, True)),
    ({"state": "RESTARTING", "level": "WARM"}, "", (False, False)),
    ({"state": "RESTARTING", "fleet": None}, "", (False, False)),
    ({"state": "RESTARTING", "members": []}, "", (False, False)),
    ({"state": "RESTARTING", "members": [{"group": "main"}]}, "", (False, False)),
], ids=["restarted lately", "restarted long ago", "never restarted", "restarting", "starting", "WARM", "of no fleet",
        "without members", "without a node"])
def test_a_log_is_read_only_if_it_may_have_what_ray_does_not_keep(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], last_up: str, read: tuple[bool, bool]
) -> None:
    for all_replicas, expected in zip((False, True), read, strict=True):
        cluster = Cluster(monkeypatch, times=("2026-03-04T11:30:00Z", last_up))
        cluster.uptimes(replica(7, **more), all_replicas=all_replicas)
        assert cluster.read == [7] * expected


@pytest.mark.parametrize("count", range(1, 6))
def test_logs_are_read_of_restarting_then_starting_then_running_replicas_by_model(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(uptimes, "LOGS_READ", count)
    cluster, order = Cluster(monkeypatch), [
        replica(3, model="c", state="RESTARTING"), replica(5, model="d", state="RESTARTING"),
        replica(1, model="b", state="PENDING_CREATION"), replica(4, model="0", restarts=1),
        replica(2, model="a", restarts=1)]
    cluster.uptimes(*order[::-1], all_replicas=True)
    assert set(cluster.read) == {one.replica_id for one in order[:count]}


def test_a_starting_replica_begins_with_the_last_start_of_its_engine_since_it_was_created(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    again = "fleetctl: starting main/0 rank 0 at 2026-03-04T12:01:00Z\n"
    for since, log, begun in ((CREATED, LOG, "2026-03-04T11:00:00Z"), (CREATED, LOG + again, "2026-03-04T12:01:00Z"),
                              ("2026-03-04T11:00:00Z", LOG, "2026-03-04T11:00:00Z"),
                              ("2026-03-04T11:00:01Z", LOG, "2026-03-04T11:00:01Z"), (None, LOG, None)):
        cluster = Cluster(monkeypatch, log, NO_TIMES)
        [found], _ = cluster.uptimes(replica(0, state="PENDING_CREATION", since=since), all_replicas=True)
        assert (found.since, found.error) == (begun, None)


def test_a_restart_counts_from_when_ray_last_saw_the_replica_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, times=("2026-03-04T09:30:00Z", "2026-03-04T11:40:00Z"))
    [found], _ = cluster.uptimes(replica(0, state="RESTARTING", since=CREATED))
    assert (found.since, found.error) == ("2026-03-04T12:00:00Z", "signal 9"), "an earlier end is another story"


def test_bytes_that_are_no_text_and_logs_that_cannot_be_read_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    for data, error in ((b"\xff\n" + LOG.encode(), "signal 9"), (None, None)):
        monkeypatch.setattr(uptimes, "read_log", lambda *_, data=data: SimpleNamespace(data=data))
        [found], _ = cluster.uptimes(replica(0, state="RESTARTING"))
        assert found.error == error


def failure(**more: Any) -> Failure:
    return Failure(**{"model": "m", "replica_id": 0, "code": "REPLICA_DIED", "actor_id": "a", **more})


NO_CLIENT: Any = None


def test_only_failures_without_a_time_get_rays_time_of_death(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    timed, unknown = failure(at=CREATED), failure(actor_id=None)
    assert with_deaths(NO_CLIENT, [timed, unknown], {}, NOW) == [timed, unknown]
    assert cluster.asked == []
    found = with_deaths(NO_CLIENT, [timed, unknown, failure(actor_id="b")], {}, NOW)
    assert (cluster.asked, [one.at for one in found]) == (["b"], [CREATED, None, UP[1]])


@pytest.mark.parametrize(("at", "known", "found"), [
    ("2026-03-04T12:10:05Z", UP, "2026-03-04T12:10:05Z"), ("2026-03-04T14:10:00Z", UP, UP[1]),
    ("2026-03-04T14:10:00Z", NO_TIMES, NOW), ("2026-03-04T10:10:00Z", UP, "2026-03-04T10:10:00Z")],
    ids=["about now", "later", "later, and Ray does not know", "earlier"])
def test_a_failure_after_now_is_timed_by_ray_since_its_nodes_clock_is_ahead(
        monkeypatch: pytest.MonkeyPatch, at: str, known: Times, found: str) -> None:
    Cluster(monkeypatch, times=known)
    planned = {"a": Marks(fleet="other", spec_hash="h")}
    [one] = with_deaths(NO_CLIENT, [failure(at=at, fleet="lab", spec_hash="own")], planned, NOW)
    assert (one.at, one.fleet, one.spec_hash) == (found, "lab", "own")


@pytest.mark.parametrize(("at", "known", "found", "asked"), [
    ("2026-03-04T14:10:00Z", UP, UP[0], ["actor-0"]), ("2026-03-04T14:10:00Z", NO_TIMES, NOW, ["actor-0"]),
    ("2026-03-04T12:10:03Z", UP, "2026-03-04T12:10:03Z", [])], ids=["later", "Ray does not know", "about now"])
def test_a_replica_that_is_ready_after_now_is_so_since_rays_time(
        monkeypatch: pytest.MonkeyPatch, at: str, known: Times, found: str, asked: list[str]) -> None:
    cluster = Cluster(monkeypatch, times=known)
    [one], _ = cluster.uptimes(replica(0, readyAt=at))
    assert (one.ready_at, cluster.asked, cluster.read) == (found, asked, [])


def test_a_death_has_the_fleet_spec_and_nodes_that_were_planned_unless_it_has_its_own(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    Cluster(monkeypatch)
    planned = {"a": Marks(fleet="lab", spec_hash="h", members=(ReplicaMember(node_id="n1"),))}
    [bare] = with_deaths(NO_CLIENT, [failure()], planned, NOW)
    assert (bare.at, bare.fleet, bare.spec_hash, bare.node_ids) == (UP[1], "lab", "h", ["n1"])
    [full] = with_deaths(NO_CLIENT, [failure(fleet="own", spec_hash="k", node_ids=["n2"])], planned, NOW)
    assert (full.fleet, full.spec_hash, full.node_ids) == ("own", "k", ["n2"])
    [empty] = with_deaths(NO_CLIENT, [failure(fleet="")], {"a": Marks(fleet="")}, NOW)
    assert empty.fleet is None
    [other] = with_deaths(NO_CLIENT, [failure(actor_id="b")], planned, NOW)
    assert (other.fleet, other.spec_hash, other.node_ids) == (None, None, [])


def test_a_death_of_which_ray_does_not_tell_the_time_has_none_and_still_its_plan(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_times(*_: object) -> dict[str, Times]:
        raise InventoryError("no route")

    for times in (no_times, lambda *_: {}, lambda *_: {"a": NO_TIMES}):
        monkeypatch.setattr(uptimes, "_times", times)
        [found] = with_deaths(NO_CLIENT, [failure()], {"a": Marks(fleet="lab")}, NOW)
        assert (found.at, found.fleet) == (None, "lab")


def test_times_are_asked_for_two_hundred_actors_at_a_time_and_not_from_a_cache(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[list[str]]()

    class Client:
        def read_entries(self, path: str, within: Any, query: dict[str, str], read: Any, *, opening: str) -> Any:
            assert (path, within, query["nocache"], opening) == (LOGICAL_PATH, LOGICAL_KEYS, "1", "{")
            asked.append(query["ids"].split(","))
            return [read(name, {"startTime": 1_000, "timestamp": 2_000} if name != "a400" else {})
                    for name in asked[-1]], {}

    client: Any = Client()
    died = with_deaths(client, [failure(actor_id=f"a{number}") for number in range(401)], {}, NOW)
    assert sorted(map(len, asked)) == [1, 200, 200]
    assert {name for part in asked for name in part} == {f"a{number}" for number in range(401)}
    assert [one.at for one in died] == ["1970-01-01T00:00:02Z"] * 400 + [None]
    [[up], _] = with_uptimes(client, [replica(0, restarts=1, actorId="a1")], "fleet", CREATED, all_replicas=False)
    assert up.since == "1970-01-01T00:00:02Z"
    monkeypatch.setattr(uptimes, "read_log", lambda *_: SimpleNamespace(
        data=b"fleetctl: ended at 1970-01-01T00:00:01Z: signal 9\n"))
    for actor_id, error in (("a1", "signal 9"), ("a400", None)):  # when it first became ready; not known
        again = replica(0, restarts=1, actorId=actor_id)
        [[found], _] = with_uptimes(client, [again], "fleet", CREATED, all_replicas=True)
        assert found.error == error
