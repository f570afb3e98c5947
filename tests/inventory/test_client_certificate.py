"""A proxy that requires a client certificate over TLS, with its own authority."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from authority import Authority
from fake_dashboard import FakeDashboard, serve

from fleetctl.errors import ClusterUnreachable, InventoryError
from fleetctl.inventory.access import find_access
from fleetctl.inventory.client import DashboardClient


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.certificate))
    return made


@pytest.fixture
def guarded(authority: Authority) -> Iterator[FakeDashboard]:
    """A dashboard that serves TLS only to clients with a certificate of the authority."""
    server = authority.sign("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(server.certificate, server.key)
    with serve(tls=context) as fake:
        yield fake


def ask(dashboard: FakeDashboard, **environ: object) -> object:
    access = find_access({name: str(value) for name, value in environ.items()}, Path("/nonexistent"))
    with DashboardClient(dashboard.url, access, sleep=lambda _: None) as client:
        return client.get_json("/api/version")


def test_the_client_certificate_is_presented(guarded: FakeDashboard, authority: Authority):
    mine = authority.sign("mine")
    version = ask(guarded, FLEETCTL_CLIENT_CERT=mine.certificate, FLEETCTL_CLIENT_KEY=mine.key)
    assert version == guarded.bodies["version"]


def test_key_and_certificate_may_be_in_one_file(guarded: FakeDashboard, authority: Authority, tmp_path: Path):
    mine = authority.sign("mine")
    both = tmp_path / "both.pem"
    both.write_bytes(mine.certificate.read_bytes() + mine.key.read_bytes())
    assert ask(guarded, FLEETCTL_CLIENT_CERT=both) == guarded.bodies["version"]


def test_without_a_client_certificate_the_error_names_its_variables(guarded: FakeDashboard):
    with pytest.raises(ClusterUnreachable, match="TLS failed") as caught:
        ask(guarded)
    assert "FLEETCTL_CLIENT_CERT" in caught.value.hint


def test_an_untrusted_authority_is_reported_with_a_hint(
    guarded: FakeDashboard, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ClusterUnreachable, match="its certificate is not trusted") as caught:
        ask(guarded)
    assert "SSL_CERT_FILE" in caught.value.hint


def test_an_unreadable_authority_is_reported(guarded: FakeDashboard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent.pem")
    with pytest.raises(InventoryError, match="SSL_CERT_FILE or SSL_CERT_DIR cannot be read: no such file"):
        ask(guarded)


def test_a_key_that_does_not_match_its_certificate_is_named(
    guarded: FakeDashboard, authority: Authority, tmp_path: Path
):
    mine, other, locked = authority.sign("mine"), authority.sign("other"), authority.sign("locked", password=b"pass")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for certificate, key, words in [
        (mine.certificate, other.key, "key values mismatch"), (empty, mine.key, "pem"), (mine.certificate, empty, ""),
        (locked.certificate, locked.key, "its key has a password"),
    ]:
        with pytest.raises(InventoryError, match="cannot be used as a client certificate") as caught:
            ask(guarded, FLEETCTL_CLIENT_CERT=certificate, FLEETCTL_CLIENT_KEY=key)
        assert words in caught.value.message
        assert str(certificate) in caught.value.message
        assert str(key) in caught.value.message
    with pytest.raises(InventoryError, match=r"the file .*gone\.pem of FLEETCTL_CLIENT_CERT cannot be read: No such"):
        ask(guarded, FLEETCTL_CLIENT_CERT=tmp_path / "gone.pem")
    with pytest.raises(InventoryError, match=r"the file .*gone\.key of FLEETCTL_CLIENT_KEY cannot be read"):
        ask(guarded, FLEETCTL_CLIENT_CERT=mine.certificate, FLEETCTL_CLIENT_KEY=tmp_path / "gone.key")


def test_a_key_without_its_certificate_is_an_error(tmp_path: Path):
    with pytest.raises(InventoryError, match="FLEETCTL_CLIENT_KEY is set, but FLEETCTL_CLIENT_CERT is not"):
        find_access({"FLEETCTL_CLIENT_KEY": "k.pem"}, tmp_path)


def test_plain_http_needs_no_certificate(dashboard: FakeDashboard):
    assert ask(dashboard, FLEETCTL_CLIENT_CERT="/nonexistent.pem") == dashboard.bodies["version"]
