"""Plans made in a subprocess: they are identical, load nothing heavy here, and have a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ended_processes import read_until_all_end
from planner.short_forms import short_fleet, short_inventory

from fleetctl.errors import ApplyError, InventoryError
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan
from fleetctl.watch import plan_process

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
from cluster_stand_in import ClusterStandIn, serve
from small_watcher import advance, watcher_of
from fleetctl.cli import watch
from fleetctl.watch.plan_process import make_plan_in_subprocess

cluster = ClusterStandIn()
cluster.add_node("a")
with serve(cluster):
    watcher = watcher_of(cluster, Path(sys.argv[1]) / "fleet.yaml")
    watcher.invocation = replace(watcher.invocation, make_plan=make_plan_in_subprocess)
    advance(watcher)
assert watcher.planned.plan.actions
assert not {"numpy", "scipy"} & sys.modules.keys(), "loaded in this process"
"""


def plan_in_subprocess(**inventory: Any) -> None:
    fleet = short_fleet({"models": [{"key": "one", "replicas": 1, "gpus": 1}]})
    seen = short_inventory({"nodes": [{"name": "n", "gpus": 8}]}).model_copy(update=inventory)
    plan_process.make_plan_in_subprocess(fleet, seen, PlanOptions(), PlanFacts(tool_version="1"))


def fake_planner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_planning_watch_loads_no_numpy(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=tests, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_plan_is_identical() -> None:
    fleet = short_fleet({"models": [
        {"key": "three", "replicas": 8, "gpus": 3}, {"key": "five", "replicas": 4, "gpus": 5},
        {"key": "gang", "replicas": 2, "gang": {"gpus": 4, "workers": 1}}]})
    seen = short_inventory({"nodes": [{"name": f"n{number}", "gpus": 8} for number in range(5)]})
    inputs = fleet, seen, PlanOptions(), PlanFacts(tool_version="1")
    assert plan_process.make_plan_in_subprocess(*inputs) == make_plan(*inputs)


def test_an_error_of_the_planner_is_raised_unchanged() -> None:
    with pytest.raises(InventoryError, match="is not complete"):
        plan_in_subprocess(complete=False)


def test_a_planner_beyond_the_time_limit_is_killed_with_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fake_planner(monkeypatch, tmp_path, f"(echo begun; exec sleep 1000) > {pipe} & wait")
    output, limit_s = b"", 0.2
    while not output:  # the shell may take longer than the limit to start
        monkeypatch.setattr(plan_process, "LONGEST_S", limit_s := 2 * limit_s)
        with pytest.raises(ApplyError, match="no plan after"):
            plan_in_subprocess()
        output = read_until_all_end(reader)
    os.close(reader)


def test_a_failed_planner_is_reported_with_its_last_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_planner(monkeypatch, tmp_path, "echo Traceback >&2; echo MemoryError >&2; exit 1")
    with pytest.raises(ApplyError, match="ended with 1: MemoryError"):
        plan_in_subprocess()


def test_the_memory_of_the_planner_is_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_planner(monkeypatch, tmp_path, "ulimit -d >&2; exit 1")
    with pytest.raises(ApplyError, match=f"ended with 1: {plan_process.MAX_MEMORY_BYTES >> 10}$"):
        plan_in_subprocess()
