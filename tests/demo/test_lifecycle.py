"""The error if the demo does not come up, and the variables that `demo down` unsets. No Ray is started."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.cli.entry import run
from fleetctl.demo.home import DemoHome
from fleetctl.demo.lifecycle import start_cluster
from fleetctl.errors import FleetctlError

OVERLOADED = """#!/bin/sh
echo 'Traceback (most recent call last):' >&2
echo '  File "cluster.py", line 48, in keep' >&2
echo 'TimeoutError: the node did not come up within 60 s' >&2
exit 1
"""


@pytest.fixture
def home() -> Iterator[DemoHome]:
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as folder:
        yield DemoHome(Path(folder) / "h")


def test_if_ray_does_not_start_the_error_is_one_sentence_with_a_hint(home: DemoHome, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(OVERLOADED)
    python.chmod(0o755)
    with pytest.raises(FleetctlError) as caught:
        start_cluster(home, os.environ, str(python), lambda _: None)
    assert caught.value.message == "Ray did not start: TimeoutError: the node did not come up within 60 s"
    assert "Traceback" not in f"{caught.value.message}{caught.value.hint}"
    assert "try again when it is idle" in str(caught.value.hint)
    assert "Traceback" in home.log.read_text()  # the hint names this log


@pytest.mark.parametrize(("variables", "unset"), [
    ({}, ""),
    ({"FLEETCTL_ADDRESS": "http://127.0.0.1:1", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "OURS"},
     "unset FLEETCTL_ADDRESS RAY_AUTH_MODE RAY_AUTH_TOKEN_PATH\n"),
    ({"FLEETCTL_ADDRESS": "http://127.0.0.1:1", "RAY_AUTH_TOKEN_PATH": "/mine"}, ""),
    ({"FLEETCTL_ADDRESS": "https://ray.lab", "RAY_AUTH_TOKEN_PATH": "OURS"}, "unset RAY_AUTH_TOKEN_PATH\n"),
])
def test_down_unsets_only_the_variables_of_the_demo(
    home: DemoHome, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variables: dict[str, str],
    unset: str
) -> None:
    for name in ("FLEETCTL_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLEETCTL_DEMO_HOME", str(home.path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("OURS", str(home.token_file)))
    assert run(["demo", "down"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (unset, "no demo cluster is up\n")
