"""A truncated, refused or partial reading is never treated as a small cluster."""

from __future__ import annotations

import pytest
from fake_dashboard import (
    LOGICAL,
    PARTS,
    FakeDashboard,
    cut_off,
    half_gzip,
    hang_up,
    once,
    redirect,
    serve,
    shortened,
    slow,
    status,
)

from fleetctl.errors import ClusterRefused, ClusterUnreachable, InventoryError
from fleetctl.inventory.client import PASSING, DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.planner.options import require_complete

BUT_NODES = [part for part in PARTS if part != "nodes"]
FAILURES = {
    "cut off": (cut_off, "cut off"),
    "hung up": (hang_up, "cut off"),
    "500": (status(500, b'{"result": false, "msg": "GCS is down"}'), "500: GCS is down"),
    "404": (status(404), "404"),
    "garbage": (status(200, b"<html>hello"), "not with complete JSON"),
    "empty": (status(200, b""), "not with complete JSON"),
    "half": (status(200, b'{"result": true, "data": {"re'), "not with complete JSON"),
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


def test_a_login_page_is_an_error_at_once(read, dashboard: FakeDashboard):
    dashboard.behaviours["nodes"] = redirect
    with pytest.raises(ClusterRefused, match=r"redirects /api/v0/nodes to login\.example"):
        read()


def test_a_dashboard_that_hangs_is_an_error_after_the_timeout(read, dashboard: FakeDashboard):
    dashboard.behaviours["nodes"] = slow(dashboard)
    with pytest.raises(ClusterUnreachable, match="did not answer /api/v0/nodes in time"):
        read(timeout_s=0.3)


def test_a_part_that_hangs_makes_the_reading_incomplete(read, dashboard: FakeDashboard):
    dashboard.behaviours["summary"] = slow(dashboard)
    inventory = read(timeout_s=2.0)
    assert not inventory.complete
    assert any("the cards could not be read" in warning for warning in inventory.warnings)


def test_a_closed_port_is_unreachable():
    with serve() as fake:
        url = fake.url
    client = DashboardClient(url, sleep=lambda _: None)
    with client, pytest.raises(ClusterUnreachable, match="cannot reach"):
        Live(client, lambda: "now").read()


CUTS = [
    ({"total": 20_000, "num_after_truncation": 10_000}, "was cut: 10000 of 20000 rows"),
    ({"num_filtered": 10_001}, "was cut"),
]
ACTORS = [part for part in PARTS if part.startswith("actors_")]


@pytest.mark.parametrize(("counts", "words"), CUTS)
def test_a_truncated_list_of_nodes_makes_the_reading_incomplete(read, dashboard: FakeDashboard, counts, words):
    dashboard.listing("nodes").update(counts)
    inventory = read()
    assert not inventory.complete
    assert any(words in warning for warning in inventory.warnings)


@pytest.mark.parametrize("part", ACTORS)
@pytest.mark.parametrize(("counts", "words"), CUTS)
def test_a_truncated_list_of_actors_is_reported_without_loss(read, dashboard: FakeDashboard, part, counts, words):
    whole = read()
    dashboard.listing(part).update(counts)
    dashboard.beyond += dashboard.rows(part)
    dashboard.rows(part).clear()
    inventory = read()
    assert inventory.complete, inventory.warnings
    assert inventory.replicas == whole.replicas
    assert any(words in note for note in inventory.warnings)


@pytest.mark.parametrize("warnings", [5, "slow", {"a": 1}, True, [None], [["x"]]])
def test_warnings_of_any_shape_make_a_list_incomplete(read, dashboard: FakeDashboard, warnings: object):
    dashboard.listing("nodes")["warnings"] = warnings
    found = read()
    assert not found.complete
    assert any(warning.startswith("/api/v0/nodes: ") for warning in found.warnings)


def beyond_the_cut(dashboard: FakeDashboard, number: int = 3, **fields: object) -> None:
    """Add an actor without a repr that only the dashboard's own list has."""
    dashboard.beyond.append(dashboard.rows("actors_pending_creation")[0] | {
        "actor_id": f"beyond-{number}", "name": f"ModelActor:org/far:{number}", "repr_name": "", **fields})
    dashboard.listing("actors_alive").update(CUTS[0][0])


@pytest.mark.parametrize(("namespace", "fleet"), [("invfleet", "lab"), ("elsewhere", None)])
def test_a_starting_replica_beyond_the_cut_is_in_the_namespace_of_its_apply(
        read, dashboard: FakeDashboard, namespace: str, fleet: str | None):
    dashboard.bodies["jobs"][0]["metadata"]["namespace"] = namespace
    beyond_the_cut(dashboard, name="ModelActor:org/slow:0", node_id=None)
    dashboard.rows("actors_pending_creation").clear()
    inventory = read()
    assert inventory.complete, inventory.warnings
    [slow] = [replica for replica in inventory.replicas if replica.model == "org/slow"]
    assert (slow.fleet, slow.replica_id) == (fleet, 0 if fleet else None)
    planned = "8184334e3588e8311b4f3d36354966dc0ae0f0d6f4ba180f7e8e426e"
    assert [member.node_id for member in slow.members] == [planned]


def test_replicas_of_unknown_namespace_beyond_the_cut_keep_their_ids(read, dashboard: FakeDashboard):
    for number in range(300):
        beyond_the_cut(dashboard, number, state="ALIVE", job_id="08000000", ray_namespace="theirs")
    inventory = read()
    assert inventory.complete, inventory.warnings
    far = [replica for replica in inventory.replicas if replica.model == "org/far"]
    assert {(replica.replica_id, replica.fleet) for replica in far} == {(number, None) for number in range(300)}
    assert not [request for request in dashboard.requests if request.query.get("filter_keys") == "actor_id"]


def test_the_claim_of_a_foreign_replica_on_its_group_is_read_from_both_lists(read, dashboard: FakeDashboard):
    group = "9690ca3677668088d0dcb743c6de17000000"
    row = dashboard.rows("actors_alive")[0] | {
        "name": "ModelActor:org/far:3", "repr_name": "", "placement_group_id": group, "job_id": "08000000",
        "required_resources": {f"GPU_group_{group}": 1.0, f"GPU_group_0_{group}": 1.0, f"bundle_group_{group}": 0.001}}
    dashboard.rows("actors_alive").append(row | {"actor_id": "listed"})
    beyond_the_cut(dashboard, **(row | {"actor_id": "beyond"}))
    far = [replica for replica in read().replicas if replica.model == "org/far"]
    assert [member.gpus for replica in far for member in replica.members] == [10_000, 10_000]


@pytest.mark.parametrize("failure", [name for name in FAILURES if name not in ("no list", "a list")])
def test_a_truncated_list_of_actors_without_the_dashboards_list_makes_the_reading_incomplete(
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
def test_a_list_cut_off_by_the_server_makes_the_reading_incomplete(read, dashboard: FakeDashboard, part, counts, words):
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
def test_empty_rows_make_the_reading_incomplete(read, dashboard: FakeDashboard, part: str):
    dashboard.rows(part)[0].clear()
    inventory = read()
    assert not inventory.complete
    assert any("cannot be read" in warning for warning in inventory.warnings)


@pytest.mark.parametrize("part", ["nodes", "actors_alive"])
def test_a_list_with_unexpected_rows_makes_the_reading_incomplete(read, dashboard: FakeDashboard, part: str):
    dashboard.listing(part)["result"] = ["a", "b"]
    inventory = read()
    assert not inventory.complete
    assert any("without a list of rows" in warning for warning in inventory.warnings)


@pytest.mark.parametrize("fail", [hang_up, cut_off, shortened, half_gzip, *map(status, sorted(PASSING))])
@pytest.mark.parametrize("part", ["nodes", "summary", "version", "actors_alive", "placement_groups"])
def test_one_failed_answer_to_a_request_leaves_no_warning(read, dashboard: FakeDashboard, part: str, fail):
    expected = read()
    once(dashboard, part, fail)
    found = read()
    assert (found.complete, found.warnings) == (True, expected.warnings)
