"""From an address to a dashboard. The lookup of a local Ray runs in a separate process, here a stand-in for Python."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from fleetctl.errors import ClusterUnreachable, InventoryError
from fleetctl.inventory import access
from fleetctl.inventory.access import dashboard_url, without_token


def stand_in(tmp_path: Path, script: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize("address", ["http://ray-head:8265", "https://ray.example/cluster-a", "http://[::1]:8265"])
def test_a_dashboard_url_is_kept_without_its_trailing_slash(address: str):
    assert dashboard_url(address, {}) == address
    assert dashboard_url(address + "/", {}) == address


@pytest.mark.parametrize("address", ["ray-head:8265", "[::1]:8265"])
def test_a_host_with_the_default_port_of_the_dashboard_is_a_dashboard(address: str, tmp_path: Path):
    """A lookup at this port would wait half a minute for an answer in another protocol."""
    assert dashboard_url(address, {}, python=stand_in(tmp_path, "exit 1")) == f"http://{address}"


@pytest.mark.parametrize("address", ["ray-head", "ray://ray-head:10001", "ftp://x", "http://", "http://h:x", "a b:1"])
def test_other_addresses_are_refused_with_the_allowed_forms(address: str):
    with pytest.raises(InventoryError) as caught:
        dashboard_url(address, {})
    assert "http(s)://host:8265" in caught.value.hint


@pytest.mark.parametrize("address", ["http://user:hush@h:1", "https://h/?token=hush", "http://h/#hush", "ftp://u:hush@h"])
def test_secrets_in_an_address_are_refused_and_not_repeated(address: str):
    with pytest.raises(InventoryError) as caught:
        dashboard_url(address, {})
    assert "hush" not in caught.value.message


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:6379", "[::1]:6379"])
def test_a_local_ray_is_looked_up_in_a_separate_process(tmp_path: Path, address: str):
    python = stand_in(tmp_path, 'echo "noise"; echo "url=http://10.0.0.1:8265/$GIVEN"')
    assert dashboard_url(address, {"GIVEN": "env"}, python=python) == "http://10.0.0.1:8265/env"


def test_without_ray_the_error_names_the_package_to_install(tmp_path: Path):
    with pytest.raises(InventoryError) as caught:
        dashboard_url("auto", {}, python=stand_in(tmp_path, "exit 3"))
    assert "ray[default]" in caught.value.hint


def test_an_interpreter_without_ray_has_its_own_error(tmp_path: Path):
    empty = tmp_path / "site"
    empty.mkdir()
    python = stand_in(tmp_path, f'exec {sys.executable} -S -I "$@"')
    with pytest.raises(InventoryError, match="not installed"):
        dashboard_url("auto", {}, python=python)


def test_a_module_in_the_current_folder_is_not_the_ray_that_looks_an_address_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The current folder may be the checkout of a change under review, and the lookup has the cluster's token."""
    for name in ("ray", "site", "encodings"):
        package = tmp_path / "checkout" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path / "checkout")
    with pytest.raises(InventoryError):  # -S: without the installed ray
        dashboard_url("127.0.0.1:1", {}, python=stand_in(tmp_path, f'exec {sys.executable} -S "$@"'))
    assert not (tmp_path / "ran").exists()


def test_if_no_ray_answers_the_error_has_the_last_line_and_a_dashboard_url_to_try(tmp_path: Path):
    python = stand_in(tmp_path, "echo 'Traceback' >&2; echo 'ConnectionError: no Ray there' >&2; exit 1")
    with pytest.raises(ClusterUnreachable, match="ConnectionError: no Ray there") as caught:
        dashboard_url("ray-head:6379", {}, python=python)
    assert "did you mean the dashboard at http://ray-head:6379?" in caught.value.hint


def test_only_a_slow_lookup_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reported: list[str] = []
    go_on = tmp_path / "go-on"
    python = stand_in(tmp_path, f'while [ ! -e {go_on} ]; do sleep 0.05; done; echo "url=http://10.0.0.1:8265"')

    def on_waiting() -> None:
        reported.append("now")
        go_on.touch()

    monkeypatch.setattr(access, "WAITING_S", 0.1)
    assert dashboard_url("auto", {}, python=python, on_waiting=on_waiting) == "http://10.0.0.1:8265"
    monkeypatch.setattr(access, "WAITING_S", 30.0)
    assert dashboard_url("auto", {}, python=python, on_waiting=on_waiting) == "http://10.0.0.1:8265"
    assert reported == ["now"]


def test_a_withheld_token_is_not_passed_to_the_lookup():
    kept = without_token({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_TOKEN_PATH": "p", "RAY_AUTH_MODE": "token", "PATH": "x"})
    assert kept == {"RAY_AUTH_MODE": "disabled", "PATH": "x"}
