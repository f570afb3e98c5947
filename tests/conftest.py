"""Fixtures for every folder: one small fleet, one small inventory, and the command line as a user runs it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from in_process import run_here
from random_cases import cases

# No deadline: these machines are shared, and an example's duration says nothing about the code. The same examples
# in every run: a failure here must also occur at a developer's desk.
settings.register_profile("same everywhere", max_examples=cases(50), deadline=None, derandomize=True,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same everywhere")

# The run keeps many objects (parsed sources, recorded answers) and creates few reference cycles. A collection after
# every few hundred new objects would take a tenth of the whole run.
gc.set_threshold(100_000, 50, 100)

# Keep compiled code in all processes that tests start: compiling tests and program in each takes a fifth of a run.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A Ray call without a Ray would start one, in this process and for the rest of the run: make it an error.
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"

# A runner in a shell's background ignores Ctrl-C, and under nohup a hangup; every command that a test starts
# would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/one
    replicas: 3
    workers:
    - name: main
      members:
      - resources: {gpus: 8}
        engine: {command: [serve, one], env: {WORD: "hush-hush", FROM: {fromNode: HF_TOKEN}}}
  - key: org/two
    replicas: 1
    workers:
    - name: main
      members:
      - resources: {cpus: 1}
        engine: {command: [serve, two]}
"""

SNAPSHOT = """\
{"formatVersion": "1.0", "kind": "Inventory", "observedAt": "2026-03-04T12:00:00Z", "source": "a test",
 "nodes": [
  {"id": "a1", "name": "node-a", "resources": {"total": {"GPU": 8, "CPU": 16, "memory": 1099511627776}}},
  {"id": "b2", "name": "node-b", "resources": {"total": {"GPU": 8, "CPU": 16, "memory": 1099511627776}}}]}
"""

SLOW = {"run_process", "run", "empty", "repository", "desk", "pull", "upstream"}
"""Fixtures that start processes: a test that uses one is `slow`. `run` is an engine below its guards; those from
`empty` on are repositories, and git is a process or ten for each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start processes."""
    for item in items:
        if SLOW & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


RunCli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """A fleet of two models: one wants 3 x 8 GPUs and has a secret in its environment, the other 1 CPU."""
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


@pytest.fixture
def snapshot_file(tmp_path: Path) -> Path:
    """Two empty nodes with 8 GPUs each."""
    path = tmp_path / "snapshot.json"
    path.write_text(SNAPSHOT)
    return path


@pytest.fixture
def run_cli(tmp_path: Path) -> RunCli:
    """Run `fleetctl ...` in this process, without this machine's settings and home."""

    def running(
        *arguments: str | Path, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run_here(*arguments, stdin=stdin, env={**home_of(tmp_path), **(env or {})})

    return running


@pytest.fixture
def run_process(tmp_path: Path) -> RunCli:
    """Run `fleetctl ...` in a process of its own, for behavior of processes; without this machine's settings and
    home."""

    def running(
        *arguments: str | Path, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fleetctl", *map(str, arguments)], input=stdin, capture_output=True, text=True,
            timeout=300, check=False, env={**home_of(tmp_path), **(env or {})})

    return running


def home_of(folder: Path) -> dict[str, str]:
    """Return an environment with only a path, a home and a temporary folder."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
