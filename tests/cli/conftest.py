"""Fixtures of this folder: a stand-in cluster, and `fleetctl` run against it in this process."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_result import Cli, Result
from cluster_stand_in import ClusterStandIn, all_ready, serve

from fleetctl.cli import console
from fleetctl.cli.entry import run


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """Two nodes of 8 GPUs; the agent creates the planned replicas, and all of them become ready."""
    stand_in = ClusterStandIn(on_submit=lambda request: all_ready(request)[-1:])
    stand_in.add_node("node-a")
    stand_in.add_node("node-b")
    with serve(stand_in):
        yield stand_in


@pytest.fixture
def cli(
    cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """Run a command line on the cluster, without a terminal; with `typed` as if a user typed it at one."""
    for name in ("FLEETCTL_NAMESPACE", "FLEETCTL_DEBUG", "NO_COLOR", "FORCE_COLOR", "CI", "RAY_AUTH_TOKEN",
                 "RAY_AUTH_TOKEN_PATH", "GITHUB_ACTIONS", "FLEETCTL_CONTEXT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # reports of unexpected errors go there
    monkeypatch.setenv("FLEETCTL_ADDRESS", cluster.url)

    def run_command(*arguments: str | Path, typed: str | None = None) -> Result:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO(typed or ""))
            patch.setattr(console, "may_ask", lambda: typed is not None)
            code = run([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return run_command


@pytest.fixture
def fits(fleet_file: Path) -> Path:
    """The fleet file, with targets that fit on two nodes."""
    fleet_file.write_text(fleet_file.read_text().replace("replicas: 3", "replicas: 2"))
    return fleet_file
