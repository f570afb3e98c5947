"""The HTTP client: its requests, retries and error messages."""

from __future__ import annotations

import pytest
from fake_dashboard import FakeDashboard, hang_up, status

from fleetctl.errors import ClusterRefused, ClusterUnreachable, FleetctlError, InventoryError
from fleetctl.inventory.access import Access
from fleetctl.inventory.client import RETRY_DELAYS_S, DashboardClient

TOKEN = "s3cret-t0ken"


def test_the_token_is_sent_as_a_bearer_header(dashboard: FakeDashboard):
    with DashboardClient(dashboard.url, Access(TOKEN)) as client:
        client.get_json("/api/version")
    assert dashboard.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_without_a_token_no_header_is_sent(dashboard: FakeDashboard):
    with DashboardClient(dashboard.url) as client:
        client.get_json("/api/version")
    assert "authorization" not in dashboard.requests[0].headers


@pytest.mark.parametrize(("code", "token", "words"), [
    (401, None, "requires a token, and there is none"),
    (401, TOKEN, "did not recognize the token header"),
    (403, TOKEN, "it is the wrong one"),
    (403, None, "refused the request"),
])
def test_a_refusal_has_a_hint_and_never_shows_the_token(dashboard: FakeDashboard, code, token, words):
    dashboard.behaviours["version"] = status(code, TOKEN.encode())
    with DashboardClient(dashboard.url, Access(token)) as client, pytest.raises(ClusterRefused) as caught:
        client.get_json("/api/version")
    assert words in caught.value.message
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token"):
        assert name in caught.value.hint
    assert TOKEN not in caught.value.message + caught.value.hint


def test_gets_are_retried_with_growing_waits_and_then_given_up(dashboard: FakeDashboard):
    dashboard.behaviours["version"] = hang_up
    waits: list[float] = []
    with DashboardClient(dashboard.url, sleep=waits.append) as client, pytest.raises(InventoryError):
        client.get("/api/version")
    assert tuple(waits) == RETRY_DELAYS_S
    assert len(dashboard.requests) == 3


def test_requests_that_change_something_are_sent_once(dashboard: FakeDashboard):
    dashboard.behaviours["/api/jobs/"] = hang_up
    waits: list[float] = []
    with DashboardClient(dashboard.url, sleep=waits.append) as client, pytest.raises(FleetctlError):
        client.request("POST", "/api/jobs/", json={"entrypoint": "x"})
    assert waits == []
    assert len(dashboard.requests) == 1


def test_other_answers_are_returned_unchanged(dashboard: FakeDashboard):
    dashboard.behaviours["/api/jobs/"] = status(400, b"bad entrypoint")
    with DashboardClient(dashboard.url) as client:
        answer = client.request("POST", "/api/jobs/", json={})
    assert (answer.status_code, answer.text) == (400, "bad entrypoint")


def test_a_404_hints_that_the_address_may_not_be_a_dashboard(dashboard: FakeDashboard):
    with DashboardClient(dashboard.url) as client, pytest.raises(InventoryError) as caught:
        client.get_json("/api/v0/nothing")
    assert "ray[default]" in caught.value.hint


def test_an_error_answer_is_quoted_by_its_first_line_only(dashboard: FakeDashboard):
    dashboard.behaviours["version"] = status(500, b"Traceback\n  secret line")
    with DashboardClient(dashboard.url) as client, pytest.raises(InventoryError) as caught:
        client.get_json("/api/version")
    assert caught.value.message == "/api/version answered 500: Traceback"


@pytest.mark.parametrize("url", ["http://host.invalid:8265", "http://127.0.0.1:1"])
def test_a_refused_connection_is_reported_with_a_hint(url: str):
    with DashboardClient(url, sleep=lambda _: None) as client, pytest.raises(ClusterUnreachable) as caught:
        client.get("/api/version")
    assert url in caught.value.message
    assert "dashboard's address" in caught.value.hint


def test_tls_to_a_plain_port_is_explained(dashboard: FakeDashboard):
    url = dashboard.url.replace("http://", "https://")
    with DashboardClient(url, sleep=lambda _: None) as client, pytest.raises(ClusterUnreachable) as caught:
        client.get("/api/version")
    assert "http://" in caught.value.hint
