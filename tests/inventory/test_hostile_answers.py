"""No answer takes more memory or time than its bounds."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fake_dashboard import FakeDashboard, answer, status
from hostile_dashboard import Endless, drip, gzip_bomb

from fleetctl.errors import ClusterUnreachable, InventoryError
from fleetctl.inventory import answer as answers
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.fetch import Bounds

MIB = 1 << 20
BETWEEN = 32 * MIB
"""What may be on the way beside: the buffers of both ends, and the parts read ahead."""


def client_of(dashboard: FakeDashboard, **bounds: float) -> DashboardClient:
    return DashboardClient(dashboard.url, bounds=Bounds(**bounds), sleep=lambda _: None)


def test_an_endless_answer_is_read_up_to_its_bound(dashboard: FakeDashboard):
    endless = dashboard.behaviours["version"] = Endless()
    with client_of(dashboard, answer_bytes=MIB) as client, pytest.raises(InventoryError, match="more than 1 MiB"):
        client.get_json("/api/version")
    assert endless.over.wait(30)
    assert endless.sent < MIB + BETWEEN


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_bound_holds_for_every_request(dashboard: FakeDashboard, method: str):
    dashboard.behaviours["/api/jobs/"] = Endless()
    with client_of(dashboard, answer_bytes=MIB) as client, pytest.raises(InventoryError, match="more than 1 MiB"):
        client.request(method, "/api/jobs/")


@pytest.mark.slow
def test_a_gzip_bomb_is_unpacked_up_to_its_bound(dashboard: FakeDashboard):
    dashboard.behaviours["version"] = gzip_bomb(1024 * MIB)
    program = """
import resource, sys
from fleetctl.errors import InventoryError
from fleetctl.inventory.fetch import Bounds
from fleetctl.inventory.client import DashboardClient
client = DashboardClient(sys.argv[1], bounds=Bounds(answer_bytes=8 << 20))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    client.get_json("/api/version")
except InventoryError as error:
    print(error.message)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program, dashboard.url], capture_output=True, text=True, timeout=300,
                          check=True)
    message, grown_kib = done.stdout.splitlines()
    assert "more than 8 MiB" in message
    assert int(grown_kib) < 64 << 10


@pytest.mark.parametrize("packing", ["br", "gzip, gzip", "zstd", "deflate"])
def test_a_content_encoding_that_was_not_requested_is_refused(dashboard: FakeDashboard, packing: str):
    dashboard.behaviours["version"] = lambda handler: answer(handler, 200, b"x", headers={"Content-Encoding": packing})
    with client_of(dashboard) as client, pytest.raises(InventoryError, match="was not requested"):
        client.get_json("/api/version")
    assert dashboard.requests[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("body", [b"no gzip at all", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"])
def test_broken_gzip_is_an_error(dashboard: FakeDashboard, body: bytes):
    dashboard.behaviours["version"] = lambda handler: answer(handler, 200, body, headers={"Content-Encoding": "gzip"})
    with client_of(dashboard) as client, pytest.raises(InventoryError, match="gzip"):
        client.get_json("/api/version")


@pytest.mark.parametrize("begin", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Long: ",
], ids=["body", "headers"])
def test_an_answer_that_arrives_byte_by_byte_has_a_total_time_limit(dashboard: FakeDashboard, begin: bytes):
    dashboard.behaviours["nodes"] = drip(dashboard, begin)
    with client_of(dashboard, total_s=0.5) as client:
        client.get_json("/api/version")
        with pytest.raises(ClusterUnreachable, match=r"did not finish its answer to /api/v0/nodes within 0\.5 s"):
            client.get_json("/api/v0/nodes")


def test_a_body_that_arrives_byte_by_byte_is_bounded_at_a_new_address_too(dashboard: FakeDashboard):
    dashboard.behaviours["nodes"] = drip(dashboard, b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    with client_of(dashboard, total_s=0.5, silent_s=0.4) as client, pytest.raises(ClusterUnreachable, match="finish"):
        client.get_json("/api/v0/nodes")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_json_that_nests_too_deep_is_refused(dashboard: FakeDashboard, body: bytes):
    dashboard.behaviours["version"] = status(200, body)
    with client_of(dashboard) as client:
        with pytest.raises(InventoryError, match="not with complete JSON"):
            client.get_json("/api/version")
        with pytest.raises(ValueError, match="deep"):
            client.get("/api/version").json()


def test_json_of_too_many_values_is_refused(
    dashboard: FakeDashboard, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(answers, "MAX_VALUES", 100)
    dashboard.behaviours["version"] = status(200, b"[" + b"{}," * 100 + b"0]")
    dashboard.behaviours["nodes"] = status(200, b"[" + b'"aaaa",' * 20 + b"0]")
    with client_of(dashboard) as client:
        assert len(client.get("/api/v0/nodes").json()) == 21
        with pytest.raises(ValueError, match="too many values"):
            client.get("/api/version").json()


@pytest.mark.parametrize("charset", ["zlib_codec", "utf-16", "idna", "no-such"])
def test_a_charset_unpacks_nothing(dashboard: FakeDashboard, charset: str):
    dashboard.behaviours["version"] = lambda handler: answer(
        handler, 500, "größe".encode(), headers={"Content-Type": f"text/plain; charset={charset}"})
    with client_of(dashboard) as client:
        assert client.get("/api/version").text == "größe"
