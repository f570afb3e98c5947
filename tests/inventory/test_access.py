"""Access to a dashboard: the order of headers, invalid headers, a proxy's login, and no secret in any output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_dashboard import FakeDashboard, answer

from fleetctl.errors import ClusterRefused, InventoryError
from fleetctl.inventory.access import Access, find_access, is_local, parse_headers
from fleetctl.inventory.client import DashboardClient

SECRET = "h4sh-h4sh"


def headers_sent_to(dashboard: FakeDashboard, access: Access) -> dict[str, str]:
    with DashboardClient(dashboard.url, access) as client:
        client.get_json("/api/version")
    return dashboard.requests[-1].headers


def test_headers_go_with_every_request_beside_the_token(dashboard: FakeDashboard, tmp_path: Path):
    environ = {"FLEETCTL_HEADERS": '{"X-Api-Key": "a b\\t1", "cf-access": "2"}', "RAY_AUTH_TOKEN": "t0ken"}
    headers = headers_sent_to(dashboard, find_access(environ, tmp_path))
    assert (headers["x-api-key"], headers["cf-access"], headers["authorization"]) == ("a b\t1", "2", "Bearer t0ken")
    assert headers["user-agent"].startswith("fleetctl/")


@pytest.mark.parametrize("name", ["Authorization", "authorization", "AUTHORIZATION"])
def test_a_configured_authorization_header_wins_over_the_token(
    dashboard: FakeDashboard, tmp_path: Path, name: str
):
    environ = {"FLEETCTL_HEADERS": json.dumps({name: "Basic abc", "X-Ray-Authorization": "Bearer t2"}),
               "RAY_AUTH_TOKEN": "t0ken"}
    headers = headers_sent_to(dashboard, find_access(environ, tmp_path))
    assert headers["authorization"] == "Basic abc"
    assert headers["x-ray-authorization"] == "Bearer t2"


@pytest.mark.parametrize("text", [
    SECRET, f'["{SECRET}"]', f'[["X-Key", "{SECRET}"]]', f'{{"X-Key": ["{SECRET}"]}}',
    f'{{"X-Key": {{"a": "{SECRET}"}}}}',
    f'{{"{SECRET} x": "1"}}', f'{{"": "{SECRET}"}}', f'{{"X-Key": "{SECRET}\\n"}}', f'{{"X-Key": " {SECRET}"}}',
    f'{{"X-Key": "{SECRET}ü"}}', f'{{"X-Key": "1", "x-key": "{SECRET}"}}', f'{{"Host:": "{SECRET}"}}',
    f'{{"User-Agent": "{SECRET}"}}', f'{{"Content-Length": "{SECRET}"}}', f'{{"Accept-Encoding": "{SECRET}"}}',
    f'{{"X-Key": 1, "Y": "{SECRET}"}}', '{"X-Key": null}', '"x"', "1", f"{{{SECRET}", "[" * 100_000,
])
def test_headers_that_cannot_be_sent_are_refused_and_not_shown(text: str):
    with pytest.raises(InventoryError) as caught:
        parse_headers(text)
    assert "FLEETCTL_HEADERS" in caught.value.message
    assert SECRET not in caught.value.message + (caught.value.hint or "")


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_headers_are_optional(text: str):
    assert parse_headers(text) == {}


def test_no_repr_contains_a_secret(tmp_path: Path):
    environ = {"FLEETCTL_HEADERS": f'{{"X-Key": "{SECRET}"}}', "RAY_AUTH_TOKEN": SECRET}
    assert SECRET not in repr(find_access(environ, tmp_path))


@pytest.mark.parametrize(("address", "local"), [
    ("http://127.0.0.1:8265", True), ("https://localhost/ray", True), ("http://[::1]:8265", True), ("auto", True),
    ("127.0.0.1:6379", True), ("[::1]:6379", True), ("127.9.9.9:1", True),
    ("http://ray-head:8265", False), ("10.0.0.1:6379", False), ("http://0.0.0.0:1", False), ("http://127.1:1", False),
    ("http://localhost.example.com", False), ("http://127.0.0.1.example.com", False), ("ray-head:6379", False),
])
def test_local_addresses_are_recognized(address: str, local: bool):
    assert is_local(address) is local


@pytest.mark.parametrize("challenge", ['Basic realm="corp"', "Negotiate", 'Bearer, basic realm="x"', "NTLM"])
def test_a_login_of_the_proxy_is_distinguished_from_the_clusters_token(dashboard: FakeDashboard, challenge: str):
    dashboard.behaviours["version"] = lambda handler: answer(handler, 401, b"", headers={"WWW-Authenticate": challenge})
    with DashboardClient(dashboard.url, Access(SECRET)) as client, pytest.raises(ClusterRefused) as caught:
        client.get_json("/api/version")
    assert "a proxy in front of" in caught.value.message
    assert "the cluster's token is for the cluster alone" in caught.value.message
    assert "FLEETCTL_HEADERS" in caught.value.hint


@pytest.mark.parametrize("headers", [{}, {"WWW-Authenticate": 'Bearer realm="ray"'}])
def test_a_401_without_a_proxy_login_refers_to_the_token(dashboard: FakeDashboard, headers: dict[str, str]):
    dashboard.behaviours["version"] = lambda handler: answer(handler, 401, b"", headers=headers)
    with DashboardClient(dashboard.url, Access(SECRET)) as client, \
            pytest.raises(ClusterRefused, match="the token header"):
        client.get_json("/api/version")


@pytest.mark.parametrize(("code", "challenge"), [(401, "Basic"), (401, ""), (403, "")])
def test_a_refused_authorization_header_is_named_as_the_cause(
    dashboard: FakeDashboard, code: int, challenge: str
):
    dashboard.behaviours["version"] = lambda handler: answer(
        handler, code, b"", headers={"WWW-Authenticate": challenge} if challenge else {})
    access = Access("t0ken", {"Authorization": f"Basic {SECRET}"})
    with DashboardClient(dashboard.url, access) as client, \
            pytest.raises(ClusterRefused, match="the Authorization in FLEETCTL_HEADERS") as caught:
        client.get_json("/api/version")
    assert SECRET not in caught.value.message
