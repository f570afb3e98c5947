"""Where an engine's log is searched: on its node while Ray lists the replica, otherwise on every living node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, serve

from fleetctl.documents.inventory import Inventory
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import EngineLog, LogRead, Search, log_name, logs_of, read_log, search_logs

NAME = log_name("fleet", "org/m:1", 3, "main", 0, 0)


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    with serve(ClusterStandIn()) as stand_in:
        yield stand_in


@pytest.fixture
def client(cluster: ClusterStandIn) -> Iterator[DashboardClient]:
    with DashboardClient(cluster.url, sleep=lambda _: None) as dashboard:
        yield dashboard


def inventory(*replicas: dict[str, Any], **nodes: str) -> Inventory:
    return Inventory.model_validate({
        "observedAt": "2026-03-04T12:00:00Z", "source": "a test", "replicas": list(replicas),
        "nodes": [{"id": name, "name": name, "state": state} for name, state in nodes.items()]})


def gang(model: str, replica_id: int) -> dict[str, Any]:
    return {"model": model, "replicaId": replica_id, "members": [
        {"group": "main", "copy": 1, "role": "Leader", "rank": 0, "nodeId": "a"},
        {"group": "main", "copy": 1, "role": "Worker", "rank": 1, "nodeId": "b"}]}


def test_a_listed_replica_has_one_log_per_member_on_its_node() -> None:
    live = inventory(gang("org/m:1", 2), gang("org/m:1", 3), gang("org/m", 3))
    assert logs_of(live, "fleet", "org/m:1", 3) == [
        EngineLog(3, "main", 1, 0, log_name("fleet", "org/m:1", 3, "main", 1, 0), ("a",)),
        EngineLog(3, "main", 1, 1, log_name("fleet", "org/m:1", 3, "main", 1, 1), ("b",))]
    assert [log.label for log in logs_of(live, "fleet", "org/m:1", 3)] == ["main/1 rank 0", "main/1 rank 1"]
    assert logs_of(live, "fleet", "org/m:1", 4) == []


def test_a_replica_without_a_node_has_no_log_to_read() -> None:
    live = inventory({"model": "m", "replicaId": 0, "members": [{"group": "main"}]})
    [log] = logs_of(live, "fleet", "m", 0)
    assert log.node_ids == ()


def test_the_logs_of_an_ended_replica_are_searched_on_living_nodes(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    worker = log_name("fleet", "org/m:1", 3, "a-1", 2, 10)
    for node, name in [("a", NAME), ("b", worker), ("dead", NAME),
                       ("a", log_name("fleet", "org/m:1", 31, "main", 0, 0)),
                       ("a", log_name("other", "org/m:1", 3, "main", 0, 0)),
                       ("a", log_name("fleet", "org/m-1", 3, "main", 0, 0))]:
        cluster.log_files[node, name] = "x"
    found = search_logs(client, inventory(a="ALIVE", b="ALIVE", dead="DEAD"), "fleet", "org/m:1", 3)
    assert found == Search((EngineLog(3, "main", 0, 0, NAME, ("a",)), EngineLog(3, "a-1", 2, 10, worker, ("b",))))


@pytest.mark.parametrize(("answer", "why"), [
    ((500, '{"result": false, "msg": "no agent", "data": {}}'), "/api/v0/logs answered 500: no agent"),
    ((404, ""), "does not exist (404)"),
    ((403, ""), "403 on /api/v0/logs"),
    ((200, "<html>"), "not with complete JSON"),
    ((200, '{"result": false, "msg": "no agent", "data": {"result": null}}'), "without a list of files: no agent"),
    ((200, "{}"), "without a list of files"),
    ((200, "[1]"), "without a list of files"),
])
def test_an_unreachable_node_is_reported_and_hides_no_other(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str], why: str
) -> None:
    cluster.log_files["b", NAME] = "x"
    cluster.answer_of_node["a"] = answer
    found = search_logs(client, inventory(a="ALIVE", b="ALIVE"), "fleet", "org/m:1", 3)
    assert [log.node_ids for log in found.logs] == [("b",)]
    [failure] = found.failed
    assert failure.startswith("a: ")
    assert why in failure


def test_log_files_of_other_programs_are_left_out(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.answer_of_node["a"] = (200, '{"data": {"result": {"internal": ["fleetctl-not-ours.log"]}}}')
    assert search_logs(client, inventory(a="ALIVE"), "fleet", "org/m:1", 3) == Search(())


def test_the_last_lines_are_read_and_nothing_is_written(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.log_files["b", NAME] = "one\ntwo\nthree\n"
    log = EngineLog(3, "main", 0, 0, NAME, ("a", "b"))
    assert read_log(client, log, 2) == LogRead(log, b"two\nthree\n", whole=False)
    assert read_log(client, log, 100) == LogRead(log, b"one\ntwo\nthree\n")
    assert read_log(client, log, 100, last_bytes=12) == LogRead(log, b"two\nthree\n", whole=False)
    assert cluster.writes() == []


def test_a_missing_log_is_none_and_an_empty_one_is_empty(cluster: ClusterStandIn, client: DashboardClient) -> None:
    assert read_log(client, EngineLog(3, "main", 0, 0, NAME, ("a",)), 10).data is None
    assert read_log(client, EngineLog(3, "main", 0, 0, NAME, ()), 10).data is None
    cluster.log_files["a", NAME] = ""
    assert read_log(client, EngineLog(3, "main", 0, 0, NAME, ("a",)), 10).data == b""


@pytest.mark.parametrize("answer", [
    (500, "A file is not found at: /tmp/ray/session/logs/x.log"), (500, 'File "x.log" not found on node a'),
    (200, "[failed] File not found"), (404, "Not Found"),
])
def test_a_missing_file_is_not_a_failure(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str]
) -> None:
    cluster.answer_of_node["a"] = answer
    log = EngineLog(3, "main", 0, 0, NAME, ("a",))
    assert read_log(client, log, 10) == LogRead(log, None)


@pytest.mark.parametrize(("answer", "why"), [
    ((500, "UNAUTHENTICATED: Invalid or missing authentication token\n  at ..."),
     "the dashboard answered 500: UNAUTHENTICATED: Invalid or missing authentication token"),
    ((502, "<html>Bad gateway"), "the dashboard answered 502: <html>Bad gateway"),
    ((200, "[failed] the agent is gone"), "the dashboard answered: [failed] the agent is gone"),
    ((403, ""), "403 on /api/v0/logs/file"),
])
def test_a_failure_is_distinguished_from_a_missing_log(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str], why: str
) -> None:
    cluster.answer_of_node["a"] = answer
    [failure] = read_log(client, EngineLog(3, "main", 0, 0, NAME, ("a",)), 10).failed
    assert why in failure
