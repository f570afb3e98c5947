"""A slow address: the wait is reported and bounded, and the error names the step that failed."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import httpx
import pytest
from fake_dashboard import FakeDashboard, answer

from fleetctl.errors import ClusterUnreachable
from fleetctl.inventory.answer import why_failed
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.fetch import Bounds


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a socket that accepts connections and never sends a byte."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"//127.0.0.1:{listening.getsockname()[1]}"


class Held:
    """Answers once its client has reported the wait; on the client's clock only held requests take time."""

    def __init__(self) -> None:
        self.reports = 0
        self.now = 0.0
        self._free = threading.Event()

    def monotonic(self) -> float:
        return self.now

    def on_waiting(self) -> None:
        self.reports += 1
        self._free.set()

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        self.now += 1
        assert self._free.wait(30)
        self._free.clear()
        answer(handler, 200, b"{}")


def test_a_wait_is_reported_once_and_again_after_a_fast_answer(
        dashboard: FakeDashboard, monkeypatch: pytest.MonkeyPatch):
    held = dashboard.behaviours["nodes"] = Held()
    monkeypatch.setattr("fleetctl.inventory.fetch.time", held)
    with DashboardClient(dashboard.url, bounds=Bounds(waiting_s=0.2), on_waiting=held.on_waiting) as client:
        client.get_json("/api/version")
        assert held.reports == 0
        client.get_json("/api/v0/nodes")
        assert held.reports == 1
        client.get_json("/api/version")
        client.get_json("/api/v0/nodes")
    assert held.reports == 2


def test_requests_within_a_limit_end_together_and_others_do_not(dashboard: FakeDashboard):
    dashboard.behaviours["jobs"] = lambda _: dashboard.released.wait(30)
    with DashboardClient(dashboard.url) as client:
        client.get("/api/version")
        limited = client.within(0.3)
        with pytest.raises(ClusterUnreachable, match=r"/api/jobs/ within 0\.3 s"):
            limited.get_json("/api/jobs/")
        with pytest.raises(ClusterUnreachable):
            limited.get_json("/api/version")
        client.get_json("/api/version")


def test_concurrent_waits_are_reported_once(silent: str):
    reports: list[str] = []
    bounds = Bounds(waiting_s=0.1, silent_s=0.5)
    with DashboardClient(f"http:{silent}", bounds=bounds, on_waiting=lambda: reports.append("now")) as client, \
            ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(client.get, "/api/version") for _ in range(5)]
        assert all(isinstance(one.exception(), ClusterUnreachable) for one in waiting)
    assert reports == ["now"]


def test_an_address_that_accepts_and_never_answers_is_given_up(silent: str):
    with DashboardClient(f"http:{silent}", bounds=Bounds(silent_s=0.3)) as client, \
            pytest.raises(ClusterUnreachable, match=r"accepted the connection but never answered within 0\.3 s"):
        client.get_json("/api/version")


def test_an_unfinished_tls_handshake_is_reported(silent: str):
    with DashboardClient(f"https:{silent}", bounds=Bounds(silent_s=0.3)) as client, \
            pytest.raises(ClusterUnreachable, match="did not finish the TLS handshake") as caught:
        client.get_json("/api/version")
    assert "does that port speak TLS?" in caught.value.hint


def test_a_name_that_cannot_be_resolved_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch):
    never = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: never.wait(30) and [])
    with DashboardClient("http://ray-head:8265", bounds=Bounds(silent_s=0.3), sleep=lambda _: None) as client, \
            pytest.raises(ClusterUnreachable, match=r"no connection was made within 0\.3 s"):
        client.get_json("/api/version")
    never.set()


def test_an_address_that_has_answered_before_gets_more_time(dashboard: FakeDashboard):
    held = dashboard.behaviours["nodes"] = Held()
    bounds = Bounds(silent_s=2, waiting_s=2.5)  # on_waiting releases the answer after silent_s is over
    with DashboardClient(dashboard.url, bounds=bounds, on_waiting=held.on_waiting) as client:
        client.get_json("/api/version")
        assert client.get_json("/api/v0/nodes") == {}


def test_an_interrupt_ends_the_wait(silent: str):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with DashboardClient(f"http:{silent}", bounds=Bounds(waiting_s=0.1), on_waiting=interrupt) as client, \
            pytest.raises(KeyboardInterrupt):
        client.get_json("/api/version")


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(("error", "cause", "words"), [
    (httpx.ConnectError("x"), os_error(errno.ECONNREFUSED), "connection refused, nothing listens there"),
    (httpx.ConnectError("x"), os_error(errno.EHOSTUNREACH), "no route to it (No route to host)"),
    (httpx.ConnectError("x"), os_error(errno.ENETUNREACH), "no route to it (Network is unreachable)"),
    (httpx.ConnectError("x"), socket.gaierror(-2, "Name or service not known"), "its name cannot be resolved"),
    (httpx.ConnectTimeout("x"), None, "the connection timed out"),
    (httpx.ConnectError(str(os_error(errno.EPERM))), os_error(errno.EPERM), "Operation not permitted"),
    (httpx.ConnectError("x"), ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "TLS failed"),
    (httpx.ProxyError("407 Proxy Authentication Required"), None, "the proxy refused (407 Proxy"),
    (httpx.LocalProtocolError("Illegal header value b'hush'"), None, "the request itself cannot be sent"),
    (httpx.UnsupportedProtocol("no such scheme"), None, "no such scheme"),
], ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None)
def test_the_cause_of_an_unreachable_address_is_explained(error: Exception, cause: Exception | None, words: str):
    error.__cause__ = cause
    found = why_failed("http://ray-head:8265", "/api/version", error)
    assert isinstance(found, ClusterUnreachable)
    assert found.message.startswith("cannot reach http://ray-head:8265: ")
    assert words in found.message
    assert "hush" not in found.message
