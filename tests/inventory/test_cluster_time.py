"""The cluster's time: from the header `Date` of its answers, in whole seconds, and bounded."""

from __future__ import annotations

import time

import pytest
from fake_dashboard import FakeDashboard, status

from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.fetch import Contact, sent_at

NOON_S = 1_772_625_600.0
NOON = "Wed, 04 Mar 2026 12:00:00 GMT"
HERE = "2026-03-04T09:00:00Z"


@pytest.mark.parametrize(("headers", "found"), [
    ({"date": NOON}, NOON_S), ({"date": "Wed, 04 Mar 2026 13:00:00 +0100"}, NOON_S),
    ({"date": "Wed, 04 Mar 2026 12:00:00"}, NOON_S), ({"date": NOON, "age": "0"}, NOON_S),
    ({"date": NOON, "age": "40"}, None), ({"date": NOON, "age": "x"}, None), ({}, None), ({"date": ""}, None),
    ({"date": "soon"}, None), ({"date": "Thu, 01 Jan 1970 00:00:00 GMT"}, None),
    ({"date": "Fri, 31 Dec 9999 23:59:59 GMT"}, None), ({"date": "Wed, 04 Mar 99999999999 12:00:00 GMT"}, None),
    ({"date": "Wed, 04 Mar 2026 12:00:00 +99999999999999999999"}, None), ({"date": "9" * 5000}, None),
    ({"date": "Wed, 04 Mar 2026 25:61:00 GMT"}, None)])
def test_an_answer_was_sent_when_its_date_says_so_credibly(headers: dict[str, str], found: float | None) -> None:
    assert sent_at(headers) == found


def heard(monkeypatch: pytest.MonkeyPatch, *answers: tuple[float, str]) -> float:
    """The time after these answers, each with the seconds of this machine's clock at which it arrived, at 100 s."""
    contact = Contact(lambda: None, lambda: 0)
    for arrived_s, told in answers:
        monkeypatch.setattr(time, "monotonic", lambda at=arrived_s: at)
        contact.hear({"date": told})
    assert contact.ahead_s is not None
    return 100.0 + contact.ahead_s - NOON_S


def date(second: int, minute: int = 0) -> str:
    return f"Wed, 04 Mar 2026 12:{minute:02}:{second:02} GMT"


@pytest.mark.parametrize(("answers", "passed"), [
    ([(10.0, date(0))], 90.0), ([(10.9, date(0)), (11.0, date(1))], 90.0), ([(11.0, date(1)), (11.9, date(1))], 90.0),
    ([(10.0, date(0)), (12.0, date(30))], 118.0), ([(10.0, date(0, 30)), (12.0, date(2))], 90.0),
    ([(10.0, date(0)), (14.0, date(0)), (14.5, date(4))], 89.5)],
    ids=["one", "a second begins", "within a second", "set forward", "set back", "an answer was late"])
def test_time_goes_on_evenly_between_answers_and_follows_a_clock_that_is_set(
        monkeypatch: pytest.MonkeyPatch, answers: list[tuple[float, str]], passed: float) -> None:
    assert heard(monkeypatch, *answers) == passed


def test_an_inventory_has_the_clusters_time_whatever_this_machines_clock_says(dashboard: FakeDashboard) -> None:
    dashboard.date = date(0, 30)
    with DashboardClient(dashboard.url) as client:
        assert client.cluster_time() is None
        source = Live(client, lambda: HERE)
        assert source.now() == HERE, "nothing has answered yet"
        observed_at = source.read().observed_at
        assert "2026-03-04T12:30:00Z" <= observed_at < "2026-03-04T12:31:00Z"
        assert source.now() >= observed_at
        told = client.cluster_time()
        assert told is not None
        assert client.within(5.0).cluster_time() == pytest.approx(told, abs=60)


@pytest.mark.parametrize("told", [None, "now", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_without_a_credible_time_this_machines_counts(dashboard: FakeDashboard, told: str | None) -> None:
    dashboard.date = told
    with DashboardClient(dashboard.url) as client:
        inventory = Live(client, lambda: HERE).read()
    assert (inventory.observed_at, inventory.complete) == (HERE, True)


def test_an_error_tells_the_time_too(dashboard: FakeDashboard) -> None:
    dashboard.behaviours["version"] = status(404)
    with DashboardClient(dashboard.url) as client:
        assert client.get("/api/version").status_code == 404
        assert client.cluster_time() == pytest.approx(NOON_S, abs=60)
