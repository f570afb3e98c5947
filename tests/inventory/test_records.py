"""Records: read by their ids, beside old notes in a short list of jobs; a slow list never holds up a plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_dashboard import JOBS, FakeDashboard, slow, status
from record_rows import record

from fleetctl.errors import ClusterRefused, InventoryError
from fleetctl.inventory import records as records_module
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.records import Records, read_records, with_runs_of

EARLY, LATE = "2026-03-04T12:00:00.000Z", "2026-03-04T13:00:00.000Z"
EARLY_MS = 1_772_625_600_000


@pytest.fixture
def client(dashboard: FakeDashboard) -> Any:
    dashboard.bodies["jobs"] = []
    with DashboardClient(dashboard.url, sleep=lambda _: None) as found:
        yield found


def add_job(dashboard: FakeDashboard, job: str, start_time: int = EARLY_MS, state: str = "SUCCEEDED",
            driver: str = "", **metadata: str) -> None:
    dashboard.bodies["jobs"].append({
        "submission_id": job, "job_id": driver or None, "status": state, "start_time": start_time,
        "driver_info": {"id": driver} if driver else None, "metadata": {"tool": "fleetctl", **metadata}})


def payloads(found: Records, kind: str) -> list[dict[str, Any]]:
    return [dict(one.payload) for one in found.of(kind)]


def test_old_notes_alone_are_records(dashboard: FakeDashboard, client: DashboardClient) -> None:
    reload = {"actorId": "x", "model": "m"}
    add_job(dashboard, "c", verb="cordon", node="n1", reason="why")
    add_job(dashboard, "a", verb="apply", fleet="lab", namespace="ns", draining="n1 n2",
            reloads=json.dumps([reload, 7]), unfetched='[{"nodeId": "n1", "artifact": "a"}]')
    found = read_records(client)
    assert payloads(found, "cordon") == [{"tool": "fleetctl", "verb": "cordon", "node": "n1", "reason": "why"}]
    assert [one.subject for one in found.of("draining")] == ["n1", "n2"]
    assert (found.of("reload")[0].subject, found.of("reload")[0].at) == ("x/a", EARLY)
    assert payloads(found, "reload")[0] == {**reload, "fleet": "lab", "namespace": "ns"}
    assert [one.subject for one in found.of("unfetched")] == ["n1/a"]
    assert (list(found.failures), list(found.warnings), found.listed) == ([], [], True)


def test_rows_alone_are_records_of_every_fleet(dashboard: FakeDashboard, client: DashboardClient) -> None:
    dashboard.records.put("reload", [record("x/j", model="m")], "lab")
    dashboard.records.put("reload", [record("y/j", model="n")], "prod.v2")
    dashboard.records.put("draining", [record("n1")])
    found = read_records(client)
    assert payloads(found, "reload") == [{"model": "m"}, {"model": "n"}]
    assert [one.subject for one in found.of("draining")] == ["n1"]
    assert (found.failures, found.warnings) == ([], [])


@pytest.mark.parametrize(("at", "wins"), [(LATE, "row"), ("2026-03-04T11:00:00.000Z", "job"), (EARLY, "row")])
def test_of_a_row_and_an_old_note_the_newest_counts(
        dashboard: FakeDashboard, client: DashboardClient, at: str, wins: str) -> None:
    add_job(dashboard, "c", verb="cordon", node="n1", reason="job")
    dashboard.records.put("cordon", [record("n1", at, verb="cordon", reason="row")])
    found = read_records(client)
    assert [one["reason"] for one in payloads(found, "cordon")] == [wins]


def test_records_are_in_the_order_of_their_times(dashboard: FakeDashboard, client: DashboardClient) -> None:
    dashboard.records.put("cordon", [record("b", LATE), record("a", EARLY)])
    assert [one.subject for one in read_records(client).of("cordon")] == ["a", "b"]


GOOD = record("n1", verb="cordon")
DAMAGED: list[Any] = [
    7, None, "x", [], {}, {**GOOD, "subject": 7}, {**GOOD, "payload": "x"}, {**GOOD, "payload": None},
    {**GOOD, "at": 1}, {**GOOD, "at": "now"}, {**GOOD, "at": "9999-99-99T99:99:99.999Z"},
    {**GOOD, "at": "2026-03-04T12:00:00Z"}]


@pytest.mark.parametrize("one", DAMAGED)
def test_a_damaged_record_is_left_out_and_its_row_is_named(
        dashboard: FakeDashboard, client: DashboardClient, one: object) -> None:
    dashboard.records.put("cordon", [one, GOOD])
    found = read_records(client)
    assert payloads(found, "cordon") == [{"verb": "cordon"}]
    assert found.warnings == ["1 of 2 records in fleetctl.records.cordon cannot be read; they are left out"]


@pytest.mark.parametrize(("metadata", "words"), [
    ({"records": "{}"}, "cannot be read"), ({"records": "[" * 9999}, "cannot be read"),
    ({"records": "no JSON"}, "cannot be read"), ({"records": json.dumps([GOOD] * 6000)}, "cannot be read"),
    ({"version": "x"}, "has no records of fleetctl"),
    ({"tool": "fleetctl"}, "has no records of fleetctl"), ({"version": "1.7"}, ""),
])
def test_a_row_that_cannot_be_read_is_left_out_with_a_warning(
        dashboard: FakeDashboard, client: DashboardClient, metadata: dict[str, str], words: str) -> None:
    dashboard.records.put("cordon", [GOOD], **metadata)
    dashboard.records.put("slots", [record("n1", slots="4")])
    found = read_records(client)
    assert len(found.of("cordon")) == (0 if words else 1)
    assert len(found.of("slots")) == 1
    assert [words in text and "fleetctl.records.cordon" in text for text in found.warnings] == ([True] if words else [])


def test_a_row_of_a_newer_fleetctl_is_a_failure(dashboard: FakeDashboard, client: DashboardClient) -> None:
    dashboard.records.put("cordon", [GOOD], version="2.0")
    assert "was written by a newer fleetctl" in read_records(client).failures[0]


def test_a_row_that_someone_has_deleted_is_named(dashboard: FakeDashboard, client: DashboardClient) -> None:
    dashboard.records.put("cordon", [GOOD])
    del dashboard.records.rows["fleetctl.records.cordon"]
    assert "fleetctl.records.cordon is gone" in read_records(client).warnings[0]


def test_made_up_rows_hide_no_notes_about_nodes(
        dashboard: FakeDashboard, client: DashboardClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_ROWS", 4)
    dashboard.records.put("slots", [record("n1", slots="4")])
    for number in range(6):
        dashboard.records.put("reload", [], f"a{number}")
    found = read_records(client)
    assert (len(found.of("slots")), found.failures) == (1, [
        "7 rows hold records; only 4 of them were read"])


def test_a_made_up_run_asks_for_no_list(dashboard: FakeDashboard, client: DashboardClient) -> None:
    dashboard.records.put("run", [record("", verb="apply"), record("../x", verb="apply")], jobs="9999")
    assert read_records(client).runs == []
    assert JOBS not in {request.path for request in dashboard.requests}


@pytest.mark.parametrize("rows", ["7", "[7]", "no JSON", '["../x", "raysubmit_1", "fleetctl.records.x y", ""]', "{}"])
def test_only_rows_of_records_are_asked_for_and_a_damaged_row_of_runs_hides_no_cordon(
        dashboard: FakeDashboard, client: DashboardClient, rows: str) -> None:
    dashboard.records.put("cordon", [GOOD])
    dashboard.records.put("run", [], rows=rows)
    found = read_records(client)
    assert (found.failures, len(found.of("cordon"))) == ([], 1)
    assert {request.path for request in dashboard.requests} == {
        JOBS, *(f"{JOBS}fleetctl.records.{kind}" for kind in ("run", "cordon", "slots", "pause", "draining"))}


def test_a_row_of_runs_that_is_someone_elses_hides_no_cordon(dashboard: FakeDashboard, client: DashboardClient) -> None:
    dashboard.records.put("cordon", [GOOD])
    dashboard.records.rows["fleetctl.records.run"]["metadata"] = {}
    found = read_records(client)
    assert (len(found.of("cordon")), found.warnings) == (1, [
        "fleetctl.records.run has no records of fleetctl; it is left out"])


def test_a_list_that_never_answers_costs_some_seconds_and_the_history(
        dashboard: FakeDashboard, client: DashboardClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "LIST_S", 0.2)
    dashboard.behaviours[JOBS] = slow(dashboard)
    dashboard.records.put("cordon", [GOOD])
    found = read_records(client)
    assert (len(found.of("cordon")), found.listed, found.failures) == (1, False, [])
    [warning] = found.warnings
    assert warning.startswith("the list of jobs could not be read: ")
    assert warning.endswith("the history, and notes by earlier releases, are not known")


def test_a_list_that_never_answers_on_a_cluster_without_records_leaves_cordons_unknown(
        dashboard: FakeDashboard, client: DashboardClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "ONLY_LIST_S", 0.2)
    dashboard.behaviours[JOBS] = slow(dashboard)
    found = read_records(client)
    assert not found.failures
    assert found.warnings == [found.unknown]
    assert found.unknown.startswith("the jobs could not be read, so cordons are unknown: ")


@pytest.mark.parametrize(("counts", "reads"), [
    ({}, True), ({"jobs": "2000", "drivers": "2000"}, True), ({"jobs": "2001"}, False), ({"drivers": "2001"}, False),
    ({"jobs": "x"}, True)])
def test_a_long_list_is_not_read(
        dashboard: FakeDashboard, client: DashboardClient, counts: dict[str, str], reads: bool) -> None:
    add_job(dashboard, "c", verb="cordon", node="n1")
    dashboard.records.put("run", [], **counts)
    found = read_records(client)
    assert (found.listed, len(found.of("cordon"))) == (reads, int(reads))
    assert (JOBS in {request.path for request in dashboard.requests}) == reads
    assert bool(found.warnings) != reads
    assert all("was not read: the history" in text for text in found.warnings)


def test_without_need_the_list_is_read_only_if_there_are_no_records(
        dashboard: FakeDashboard, client: DashboardClient) -> None:
    assert read_records(client, with_list=False).listed
    dashboard.records.put("run", [])
    found = read_records(client, with_list=False)
    assert (found.listed, found.warnings) == (False, [])


def test_a_row_that_cannot_be_fetched_is_a_failure(dashboard: FakeDashboard, client: DashboardClient) -> None:
    dashboard.records.put("cordon", [GOOD])
    dashboard.behaviours[f"{JOBS}fleetctl.records.cordon"] = status(500)
    assert "the records in fleetctl.records.cordon could not be read" in read_records(client).failures[0]


@pytest.mark.parametrize(("code", "fails"), [(404, False), (403, False), (500, True)])
def test_a_proxy_that_hides_the_rows_is_named_and_the_list_still_counts(
        dashboard: FakeDashboard, client: DashboardClient, code: int, fails: bool) -> None:
    add_job(dashboard, "c", verb="cordon", node="n1")
    dashboard.behaviours[f"{JOBS}fleetctl.records.run"] = status(code)
    found = read_records(client)
    assert len(found.of("cordon")) == 1
    problems = found.failures if fails else found.warnings
    assert problems[0].startswith("the records could not be read, so reloads and drains are unknown: ")
    assert len([*found.failures, *found.warnings]) == 1


def test_neither_rows_nor_list_is_an_error(dashboard: FakeDashboard, client: DashboardClient) -> None:
    dashboard.behaviours["jobs"] = status(403)
    with pytest.raises(ClusterRefused):
        read_records(client)
    dashboard.behaviours["jobs"] = status(500)
    with pytest.raises(InventoryError):
        read_records(client)


def test_runs_come_from_list_and_records_and_a_missing_end_is_looked_up(
        dashboard: FakeDashboard, client: DashboardClient) -> None:
    add_job(dashboard, "listed", verb="apply", fleet="lab")
    run = {"verb": "apply", "fleet": "lab", "driver": "0a"}
    dashboard.records.put("run", [
        record("listed", EARLY, **run), record("over", LATE, **run, ended=True), record("gone", LATE, **run),
        record("killed", LATE, **run), record("running", "2026-03-04T13:00:00.250Z", **run, ending='["m/0"]')])
    add_job(dashboard, "killed", state="FAILED")
    add_job(dashboard, "running", state="RUNNING")
    dashboard.behaviours[JOBS] = status(500)
    found = read_records(client)
    states = {job.submission_id: job.ended for job in found.runs}
    assert states == {"listed": True, "over": True, "gone": True, "killed": True, "running": False}
    last = found.runs[-1]
    assert (last.submission_id, last.start_time_ms, last.driver_id) == ("running", EARLY_MS + 3_600_250, "0a")
    assert last.metadata == {"tool": "fleetctl", "verb": "apply", "fleet": "lab", "ending": '["m/0"]'}
    del dashboard.behaviours[JOBS]
    assert [job.metadata.get("ending") for job in read_records(client).runs if job.submission_id == "running"] == [
        '["m/0"]']


def test_the_run_of_a_driver_is_looked_up_if_the_list_was_not_read(
        dashboard: FakeDashboard, client: DashboardClient) -> None:
    add_job(dashboard, "ours", driver="0a000000", verb="apply", fleet="lab")
    add_job(dashboard, "theirs", driver="0b000000", tool="other")
    dashboard.records.put("run", [], jobs="9999")
    dashboard.behaviours[f"{JOBS}0d000000"] = status(500)
    known = read_records(client)
    assert known.runs == []
    found, unread = with_runs_of(client, known, ["0a000000", "0b000000", "0c000000", "0d000000", "0a000000"])
    assert [(job.submission_id, job.driver_id) for job in found.runs] == [("ours", "0a000000")]
    assert unread == {"0d000000"}

