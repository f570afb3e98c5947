"""The HTTP client: its requests, retries and error messages."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest
from fake_dashboard import FakeDashboard, cut_off, half_gzip, hang_up, once, serve, shortened, status

from fleetctl.demo.lifecycle import free_port
from fleetctl.errors import ClusterRefused, ClusterUnreachable, FleetctlError, InventoryError
from fleetctl.inventory.access import Access
from fleetctl.inventory.client import PASSING, RETRY_DELAYS_S, DashboardClient

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


@pytest.mark.parametrize("fail", [cut_off, shortened, half_gzip, *map(status, sorted(PASSING))])
@pytest.mark.parametrize("ask", [
    lambda client: client.get_json("/api/version"),
    lambda client: client.read_entries("/api/version", (), {}, lambda key, value: value, opening="{"),
])
def test_one_answer_that_is_cut_short_or_of_a_passing_status_is_asked_for_again(dashboard: FakeDashboard, fail, ask):
    waits: list[float] = []
    once(dashboard, "version", fail)
    with DashboardClient(dashboard.url, sleep=waits.append) as client:
        assert ask(client)
    assert waits == [RETRY_DELAYS_S[0]]


@pytest.mark.parametrize("code", sorted(PASSING))
def test_a_status_that_does_not_pass_is_reported_as_it_is(dashboard: FakeDashboard, code: int):
    dashboard.behaviours["version"] = status(code, b"busy")
    waits: list[float] = []
    with DashboardClient(dashboard.url, sleep=waits.append) as client:
        for ask in (lambda: client.get_json("/api/version"),
                    lambda: client.read_entries("/api/version", (), {}, lambda key, value: value, opening="{")):
            with pytest.raises(InventoryError, match=f"^/api/version answered {code}: busy$"):
                ask()
        assert client.get("/api/version").status_code == code
    assert tuple(waits) == 3 * RETRY_DELAYS_S
    assert len(dashboard.requests) == 9


def test_json_that_is_never_complete_is_reported_as_it_is(dashboard: FakeDashboard):
    dashboard.behaviours["version"] = shortened
    with DashboardClient(dashboard.url, sleep=lambda _: None) as client, pytest.raises(InventoryError) as caught:
        client.get_json("/api/version")
    assert caught.value.message == "/api/version answered 200, but not with complete JSON (34 bytes)"
    assert len(dashboard.requests) == 3


@pytest.mark.parametrize("fail", [shortened, status(503)])
def test_no_wait_goes_beyond_the_time_of_a_request(dashboard: FakeDashboard, fail):
    dashboard.behaviours["version"] = fail
    waits: list[float] = []
    with DashboardClient(dashboard.url, sleep=waits.append) as client, pytest.raises(InventoryError, match="answered"):
        client.within(RETRY_DELAYS_S[0]).get_json("/api/version")
    assert waits == []


def test_a_request_that_changes_something_is_sent_again_if_the_connection_was_refused():
    port = free_port()
    started: list[FakeDashboard] = []
    with ExitStack() as opened:
        def start(_: float) -> None:
            started.append(opened.enter_context(serve(port=port)))
            started[0].bodies["/api/packages"] = {}

        with DashboardClient(f"http://127.0.0.1:{port}", sleep=start) as client:
            assert client.request("PUT", "/api/packages", content=b"x").status_code == 200
    [dashboard] = started
    assert [request.method for request in dashboard.requests] == ["PUT"]


@pytest.mark.parametrize("fail", [hang_up, cut_off, *map(status, sorted(PASSING))])
def test_requests_that_change_something_are_sent_once(dashboard: FakeDashboard, fail):
    dashboard.behaviours["/api/jobs/"] = fail
    waits: list[float] = []
    with DashboardClient(dashboard.url, sleep=waits.append) as client, suppress(FleetctlError):
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


@pytest.mark.parametrize("change", [
    lambda client: client.request("PUT", "/api/packages/gcs/x", content=b"x"),
    lambda client: client.request("POST", "/api/jobs/", json={}),
    lambda client: client.request("DELETE", "/api/jobs/x"),
    lambda client: client.within(5).request("POST", "/api/jobs/", json={}),
    lambda client: client.without_access().request("POST", "/api/jobs/", json={}),
])
def test_a_client_that_only_reads_sends_nothing_but_gets(dashboard: FakeDashboard, change):
    with DashboardClient(dashboard.url, reads_only=True) as client:
        assert client.get_json("/api/version")
        with pytest.raises(InventoryError, match="only reads the cluster"):
            change(client)
    assert [request.method for request in dashboard.requests] == ["GET"]
