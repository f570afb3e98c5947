"""A reading that is cut off, refused or partial is never taken for a small cluster."""

from __future__ import annotations

import pytest
from fake_dashboard import LOGICAL, PARTS, FakeDashboard, cut_off, hang_up, redirect, serve, slow, status

from fleetctl.errors import ClusterRefused, ClusterUnreachable, InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import read_dashboard
from fleetctl.planner.complete import require_complete

BUT_NODES = [part for part in PARTS if part != "nodes"]
FAILURES = {
    "cut off": (cut_off, "cut off"),
    "hung up": (hang_up, "cut off"),
    "500": (status(500, b'{"result": false, "msg": "GCS is down"}'), "500: GCS is down"),
    "404": (status(404), "404"),
    "garbage": (status(200, b"<html>hello"), "not with whole JSON"),
    "empty": (status(200, b""), "not with whole JSON"),
    "half": (status(200, b'{"result": true, "data": {"re'), "not with whole JSON"),
    "no list": (status(200, b'{"result": true, "data": {}}'), "without"),
    "a list": (status(200, b"[1, 2]"), "answered"),
    "result false": (status(200, b'{"result": false, "msg": "no"}'), ""),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("part", PARTS)
def test_any_part_that_fails_makes_the_reading_incomplete(read, dashboard: FakeDashboard, part: str, failure: str):
    behaviour, words = FAILURES[failure]
    dashboard.behaviours[part] = behaviour
    inventory = read()
    assert not inventory.complete
    assert any("could not be read" in warning and words in warning for warning in inventory.warnings)
    with pytest.raises(InventoryError, match="not complete"):
        require_complete(inventory)


@pytest.mark.parametrize("code", [401, 403])
@pytest.mark.parametrize("part", BUT_NODES)
def test_a_part_that_is_refused_makes_the_reading_incomplete(read, dashboard: FakeDashboard, part: str, code: int):
    dashboard.behaviours[part] = status(code)
    inventory = read()
    assert not inventory.complete
    assert any(str(code) in warning for warning in inventory.warnings)
    assert len(inventory.nodes) == 4


@pytest.mark.parametrize("code", [401, 403])
def test_refused_nodes_are_an_error_at_once(read, dashboard: FakeDashboard, code: int):
    dashboard.behaviours["nodes"] = status(code)
    with pytest.raises(ClusterRefused, match=str(code)):
        read()


def test_a_login_page_in_front_is_an_error_at_once(read, dashboard: FakeDashboard):
    dashboard.behaviours["nodes"] = redirect
    with pytest.raises(ClusterRefused, match=r"redirects /api/v0/nodes to login\.example"):
        read()


def test_a_dashboard_that_hangs_is_an_error_after_the_timeout(read, dashboard: FakeDashboard):
    dashboard.behaviours["nodes"] = slow(dashboard)
    with pytest.raises(ClusterUnreachable, match="did not answer /api/v0/nodes in time"):
        read(timeout_s=0.3)


def test_a_part_that_hangs_makes_the_reading_incomplete(read, dashboard: FakeDashboard):
    dashboard.behaviours["summary"] = slow(dashboard)
    inventory = read(timeout_s=0.5)
    assert not inventory.complete
    assert any("the cards could not be read" in warning for warning in inventory.warnings)


def test_nothing_there_is_unreachable():
    with serve() as fake:
        url = fake.url
    client = DashboardClient(url, sleep=lambda _: None)
    with client, pytest.raises(ClusterUnreachable, match="nothing usable"):
        read_dashboard(client, observed_at="now")


CUTS = [
    ({"total": 20_000, "num_after_truncation": 10_000}, "was cut: 10000 of 20000 rows"),
    ({"num_filtered": 10_001}, "was cut"),
]
ACTORS = [part for part in PARTS if part.startswith("actors_")]


@pytest.mark.parametrize(("counts", "words"), CUTS)
def test_a_list_of_nodes_that_is_cut_makes_the_reading_incomplete(read, dashboard: FakeDashboard, counts, words):
    dashboard.listing("nodes").update(counts)
    inventory = read()
    assert not inventory.complete
    assert any(words in warning for warning in inventory.warnings)


@pytest.mark.parametrize("part", ACTORS)
@pytest.mark.parametrize(("counts", "words"), CUTS)
def test_a_list_of_actors_that_is_cut_is_told_and_loses_no_replica(read, dashboard: FakeDashboard, part, counts, words):
    whole = read()
    dashboard.listing(part).update(counts)
    dashboard.beyond += dashboard.rows(part)
    dashboard.rows(part).clear()
    inventory = read()
    assert inventory.complete, inventory.warnings
    assert inventory.replicas == whole.replicas
    assert any(words in note for note in inventory.warnings)


def test_a_replica_beyond_the_cut_without_a_namespace_of_its_own_is_looked_up(read, dashboard: FakeDashboard):
    row = dashboard.rows("actors_alive")[0] | {"actor_id": "beyond", "name": "ModelActor:org/far:3", "repr_name": ""}
    dashboard.beyond.append(row)
    dashboard.listing("actors_alive").update(CUTS[0][0])
    assert "org/far" in {replica.model for replica in read().replicas}


@pytest.mark.parametrize("failure", [name for name in FAILURES if name not in ("no list", "a list")])
def test_a_cut_list_of_actors_without_the_long_one_makes_the_reading_incomplete(
        read, dashboard: FakeDashboard, failure: str):
    behaviour, words = FAILURES[failure]
    dashboard.listing("actors_alive").update(CUTS[0][0])
    dashboard.behaviours[LOGICAL] = behaviour
    inventory = read()
    assert not inventory.complete
    assert any("could not be read" in warning and words in warning for warning in inventory.warnings)


@pytest.mark.parametrize("part", [part for part in PARTS if part not in ("summary", "version")])
@pytest.mark.parametrize(("counts", "words"), [
    ({"partial_failure_warning": "a source is down"}, "is partial: a source is down"),
    ({"warnings": ["old data"]}, "old data"),
])
def test_a_list_that_is_cut_short_makes_the_reading_incomplete(read, dashboard: FakeDashboard, part, counts, words):
    dashboard.listing(part).update(counts)
    inventory = read()
    assert not inventory.complete
    assert any(words in warning for warning in inventory.warnings)


def test_no_nodes_at_all_is_not_an_empty_cluster(read, dashboard: FakeDashboard):
    dashboard.listing("nodes").update({"result": [], "total": 0, "num_after_truncation": 0, "num_filtered": 0})
    inventory = read()
    assert not inventory.complete
    assert "the cluster lists no nodes at all" in inventory.warnings


@pytest.mark.parametrize("part", ["nodes", "actors_alive"])
def test_rows_that_say_nothing_make_the_reading_incomplete(read, dashboard: FakeDashboard, part: str):
    dashboard.rows(part)[0].clear()
    inventory = read()
    assert not inventory.complete
    assert any("cannot be read" in warning for warning in inventory.warnings)


def test_a_failed_try_is_repeated_and_forgotten(read, dashboard: FakeDashboard):
    tries = []

    def fail_once(handler) -> None:
        tries.append(1)
        if len(tries) == 1:
            hang_up(handler)
        else:
            del dashboard.behaviours["nodes"]
            handler.do_GET()

    dashboard.behaviours["nodes"] = fail_once
    assert read().complete
