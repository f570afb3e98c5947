"""Fixtures of this folder: a cluster that stands in, and `fleetctl` run in this process against it."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, all_ready, serve
from published import validator

from fleetctl.cli import console
from fleetctl.cli.entry import run


@dataclass(frozen=True)
class Shown:
    """How a command ended: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines; each is checked against the published schema of events."""
        found = [json.loads(line) for line in self.out.splitlines()]
        for line in found:
            validator("event").validate(line)
        return found

    @property
    def summary(self) -> dict[str, Any]:
        """The one line of `--format json`; its code is the process's."""
        [line] = self.lines
        assert line["type"] == "runSummary"
        assert line["exitCode"] == self.code
        return line


Cli = Callable[..., Shown]


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """Two nodes of 8 GPUs; the agent creates what is planned, and all of it becomes ready."""
    stand_in = ClusterStandIn(on_submit=lambda request: all_ready(request)[-1:])
    stand_in.add_node("node-a")
    stand_in.add_node("node-b")
    with serve(stand_in):
        yield stand_in


@pytest.fixture
def cli(
    cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """Run a command line on the cluster, without a terminal; `typed` = a person sits there and types this."""
    for name in ("FLEETCTL_NAMESPACE", "FLEETCTL_DEBUG", "NO_COLOR", "FORCE_COLOR", "CI", "RAY_AUTH_TOKEN",
                 "RAY_AUTH_TOKEN_PATH", "GITHUB_ACTIONS", "FLEETCTL_CONTEXT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # reports of unexpected errors go there
    monkeypatch.setenv("FLEETCTL_ADDRESS", cluster.url)

    def running(*arguments: str | Path, typed: str | None = None) -> Shown:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO(typed or ""))
            patch.setattr(console, "may_ask", lambda: typed is not None)
            code = run([str(argument) for argument in arguments])
        return Shown(code, *capsys.readouterr())

    return running


@pytest.fixture
def fits(fleet_file: Path) -> Path:
    """The fleet with targets that two nodes can hold."""
    fleet_file.write_text(fleet_file.read_text().replace("replicas: 3", "replicas: 2"))
    return fleet_file
