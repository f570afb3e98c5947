"""The way to an address: NO_PROXY keeps the token from a proxy, and every message names the proxy."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from fake_dashboard import FakeDashboard, status

from fleetctl.apply.jobs import document, put
from fleetctl.errors import ApplyError, ClusterRefused, ClusterUnreachable, FleetctlError, ForgeError, InventoryError
from fleetctl.forge.http import ForgeClient
from fleetctl.inventory.access import Access
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.fetch import Bounds, Route, is_readable_by_others

FAR = "http://10.1.2.3:8265"
LOGIN = "me:hush-hush"


@pytest.fixture
def proxy(dashboard: FakeDashboard, monkeypatch: pytest.MonkeyPatch) -> str:
    """A proxy that answers itself, with a login in its address; returns how messages name it."""
    host = dashboard.url.removeprefix("http://")
    monkeypatch.setenv("HTTP_PROXY", f"http://{LOGIN}@{host}")
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    return f"through the proxy http://***@{host} (HTTP_PROXY)"


def failure_of(action: Callable[[DashboardClient], object], **bounds: int) -> FleetctlError:
    client = DashboardClient(FAR, Access("a-token"), bounds=Bounds(**bounds), sleep=lambda _: None)
    with client, pytest.raises(FleetctlError) as caught:
        action(client)
    return caught.value


def test_a_network_in_no_proxy_keeps_the_token_from_the_proxy(
    dashboard: FakeDashboard, proxy: str, monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    assert Route(FAR).proxy is None
    monkeypatch.setenv("NO_PROXY", "11.0.0.0/8")
    with DashboardClient(FAR, Access("a-token")) as through:
        through.get("/api/version")
    assert [request.headers["authorization"] for request in dashboard.requests] == ["Bearer a-token"]


def test_this_machine_is_reached_without_the_proxy(dashboard: FakeDashboard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with DashboardClient(dashboard.url, Access("a-token")) as client:
        assert client.get("/api/version").status_code == 200


@pytest.mark.parametrize(("code", "words"), [
    (401, "did not recognize the token header (401"), (403, "refused the request (403"),
    (407, "the proxy requires a login of its own (407"), (404, "does not exist (404"), (503, "answered 503"),
])
def test_a_refusal_names_the_proxy_without_its_login(dashboard: FakeDashboard, proxy: str, code: int, words: str):
    dashboard.behaviours["version"] = status(code)
    error = failure_of(lambda client: client.get_json("/api/version"))
    assert words in error.message
    assert proxy in error.message
    assert "hush" not in f"{error.message} {error.hint}"
    assert "wrong one" not in error.message
    if isinstance(error, ClusterRefused):
        assert "NO_PROXY" in (error.hint or "")


def test_an_answer_that_is_no_json_names_the_proxy(dashboard: FakeDashboard, proxy: str):
    dashboard.behaviours["version"] = status(200, b"<html>blocked</html>")
    assert proxy in failure_of(lambda client: client.get_json("/api/version")).message
    entries = failure_of(lambda client: client.read_entries("/api/version", (), {}, lambda *_: None))
    assert proxy in entries.message
    assert proxy in failure_of(lambda client: client.get("/api/version"), answer_bytes=5).message


def test_a_refused_upload_names_the_proxy(dashboard: FakeDashboard, proxy: str):
    error = failure_of(lambda client: put(client, document("name", {})))
    assert isinstance(error, ApplyError)
    assert proxy in error.message


def test_an_unreachable_proxy_is_blamed_itself(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:  # bound, and nothing listens
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HTTP_PROXY", f"http://{LOGIN}@127.0.0.1:{taken.getsockname()[1]}")
        error = failure_of(lambda client: client.get("/api/version"))
        with ForgeClient(FAR, {}, sleep=lambda _: None) as forge, pytest.raises(ForgeError) as caught:
            forge.send("GET", "/api")
    assert isinstance(error, ClusterUnreachable)
    for found in (error, caught.value):
        assert f"cannot reach {FAR} through the proxy http://***@127.0.0.1:" in found.message
        assert "NO_PROXY" in (found.hint or "")
        assert "hush" not in found.message
    assert "connection refused" in error.message


def test_a_forge_behind_a_proxy_names_it(dashboard: FakeDashboard, proxy: str):
    dashboard.behaviours["/repos"] = status(403)
    with ForgeClient(FAR, {"Authorization": "Bearer t"}) as forge, pytest.raises(ForgeError) as caught:
        forge.send("GET", "/repos")
    assert proxy in caught.value.message


@pytest.mark.parametrize("proxy_url", ["socks9://127.0.0.1:1", "http://[::1"])
def test_an_unusable_proxy_is_an_error_for_a_dashboard_and_a_forge(monkeypatch: pytest.MonkeyPatch, proxy_url: str):
    monkeypatch.setenv("HTTP_PROXY", proxy_url)
    with pytest.raises(InventoryError, match="HTTP_PROXY is not a usable proxy"):
        DashboardClient(FAR)
    with pytest.raises(ForgeError, match="HTTP_PROXY is not a usable proxy"):
        ForgeClient(FAR, {})
    DashboardClient("http://127.0.0.1:1").close()


@pytest.mark.parametrize(("url", "expected", "readable"), [
    ("http://10.1.2.3:8265", "", True), ("http://ray-head.example:8265", "", True), ("http://[fd00::7]:8265", "", True),
    ("https://10.1.2.3:8265", "", False), ("http://127.0.0.1:8265", "", False), ("http://[::1]:8265", "", False),
    ("http://localhost:8265", "", False), ("http://0.0.0.0:8265", "", True),
    (f"http://{socket.gethostname()}:8265", "", False),
    ("http://10.1.2.3:8265", "10.0.0.0/8", False), ("http://ray-head.example:8265", "ray-head.example", False),
    ("http://ray-head.example:8265", "*", False), ("http://10.1.2.3:8265", "10.1.2.3:80", True),
    ("http://[", "", False), ("http://host:port", "", False),
])
def test_a_secret_is_readable_on_plain_http_to_other_machines(url: str, expected: str, *, readable: bool):
    assert is_readable_by_others(url, expected) is readable


@pytest.mark.usefixtures("proxy")
def test_a_secret_for_this_machine_is_readable_by_others_if_it_goes_through_a_proxy():
    own = f"http://{socket.gethostname()}:8265"
    assert is_readable_by_others(own, "")
    assert not is_readable_by_others(own, socket.gethostname())
    assert not is_readable_by_others("http://127.0.0.1:8265", "")
