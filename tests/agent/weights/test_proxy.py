"""Which requests go through a proxy: NO_PROXY is read as curl and Go read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from origin_server import origin_over_http

from fleetctl.agent.weights.proxy import Proxy, is_listed, proxy_for
from fleetctl.agent.weights.sources import HttpOrigin, SourceFailed

PROXIES = {"http": "http://proxy:3128", "https": "http://proxy:3129"}


@pytest.mark.parametrize(("entries", "host"), [
    ("10.0.0.0/8", "10.1.2.3"), ("10.9.9.9/8", "10.1.2.3"), ("192.168.0.0/16,10.0.0.0/8", "10.1.2.3"),
    ("10.1.2.3", "10.1.2.3"), ("10.1.2.3/32", "10.1.2.3"), ("0.0.0.0/0", "10.1.2.3"), ("10.1.2.3:8265", "10.1.2.3"),
    ("10.0.0.0/8", "::ffff:10.1.2.3"), ("fd00::/8", "fd00::7"), ("FD00::7", "fd00::7"), ("[fd00::7]", "fd00::7"),
    ("[fd00::7]:8265", "fd00::7"), ("[fd00::]/8", "fd00::7"), ("fd00:0:0:0:0:0:0:7", "fd00::7"),
    ("fe80::/10", "fe80::1%eth0"),
    ("ray-head", "ray-head"), ("Ray-Head", "RAY-head"), ("ray-head.", "ray-head"), ("ray-head", "ray-head."),
    ("example.com", "example.com"), ("example.com", "ray.example.com"), (".example.com", "ray.example.com"),
    (".example.com", "example.com"), ("*.example.com", "a.b.example.com"), ("example.com:8265", "ray.example.com"),
    ("http://ray-head", "ray-head"), ("bücher.example", "xn--bcher-kva.example"),
    ("*", "anything"), ("a, *", "anything"), (" a ,\tray-head , b", "ray-head"), ("a ray-head b", "ray-head"),
])
def test_a_listed_host_is_reached_directly(entries: str, host: str) -> None:
    assert is_listed(host, 8265, entries)


@pytest.mark.parametrize(("entries", "host"), [
    ("", "ray-head"), (",, ,", "ray-head"), (".", "ray-head"), ("*.", "ray-head"),
    ("10.0.0.0/8", "11.1.2.3"), ("10.0.0.0/8", "ray-head"), ("10.0.0.0/8", "10.example.com"), ("10.", "10.1.2.3"),
    ("10.0.0.0/99", "10.1.2.3"), ("10.0.0.0/x", "10.1.2.3"), ("2.3", "10.1.2.3"), ("fd00::/8", "10.1.2.3"),
    ("0.0.0.0/0", "fd00::7"), ("fd00::/8", "fe80::7"), ("[fd00::7]:80", "fd00::7"), ("10.1.2.3:80", "10.1.2.3"),
    ("example.com", "badexample.com"), ("example.com", "example.com.evil.org"), ("ray.example.com", "example.com"),
    ("*example.com", "ray.example.com"), ("example.com:80", "example.com"), ("example.com:x", "example.com"),
    ("[", "ray-head"), ("[]", "ray-head"), ("::::", "ray-head"), ("/8", "10.1.2.3"),
])
def test_any_other_host_is_not(entries: str, host: str) -> None:
    assert not is_listed(host, 8265, entries)


@pytest.mark.parametrize(("url", "settings", "proxy"), [
    ("http://ray-head:8265", PROXIES, Proxy("http://proxy:3128", "HTTP_PROXY")),
    ("https://ray.example.com", PROXIES, Proxy("http://proxy:3129", "HTTPS_PROXY")),
    ("http://ray-head:8265", {"all": "socks5://proxy:1"}, Proxy("socks5://proxy:1", "ALL_PROXY")),
    ("http://ray-head:8265", {"http": "proxy:3128"}, Proxy("http://proxy:3128", "HTTP_PROXY")),
    ("http://ray-head:8265", {"https": "http://proxy:3129"}, None),
    ("http://ray-head", {**PROXIES, "no": "ray-head:80"}, None),
    ("https://ray-head", {**PROXIES, "no": "ray-head:443"}, None),
    ("http://[fd00::7]:8265", {**PROXIES, "no": "fd00::/8"}, None),
    ("http://localhost:8265", PROXIES, None), ("http://LOCALHOST", PROXIES, None), ("http://127.0.0.9", PROXIES, None),
    ("http://[::1]:8265", PROXIES, None), ("http://[", PROXIES, None), ("http://ray-head:x", PROXIES, None),
])
def test_the_proxy_is_chosen_by_scheme_and_never_for_this_machine(
    url: str, settings: dict[str, str], proxy: Proxy | None,
) -> None:
    assert proxy_for(url, settings) == proxy


def test_the_settings_are_those_of_the_environment_and_lower_case_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://upper:1")
    monkeypatch.setenv("http_proxy", "http://lower:1")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8")
    assert proxy_for("http://10.1.2.3") is None
    assert proxy_for("http://11.1.2.3") == Proxy("http://lower:1", "HTTP_PROXY")


@pytest.mark.parametrize(("url", "shown"), [
    ("http://proxy:3128", "the proxy http://proxy:3128 (HTTP_PROXY)"),
    ("http://me:hush@proxy:3128/", "the proxy http://***@proxy:3128 (HTTP_PROXY)"),
    ("http://hush@proxy", "the proxy http://***@proxy (HTTP_PROXY)"),
    ("http://me:hu@sh@proxy:1?token=hush", "the proxy http://***@proxy:1 (HTTP_PROXY)"),
])
def test_a_proxy_is_named_without_its_login(url: str, shown: str) -> None:
    assert str(Proxy(url, "HTTP_PROXY")) == shown


def test_an_origin_in_a_network_of_no_proxy_gets_its_login_directly_and_another_names_its_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    with origin_over_http(tmp_path) as proxy, origin_over_http(tmp_path) as origin:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("//", "//me:hush@"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
        with pytest.raises(SourceFailed, match=r"HTTP status 404$"), \
                HttpOrigin(origin.url.replace("//", "//user:pass@")).open("absent", 0):
            pass
        assert (len(origin.requests), len(proxy.requests)) == (1, 0)
        with pytest.raises(SourceFailed) as caught, HttpOrigin("http://10.1.2.3").open("absent", 0):
            pass
        named = proxy.url.rstrip("/").replace("//", "//***@")
    assert str(caught.value) == f"absent: HTTP status 404 through the proxy {named} (HTTP_PROXY)"
