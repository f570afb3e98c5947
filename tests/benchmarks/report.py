"""How long a review of a large change takes: `python -m tests.benchmarks.report --models 2000 --json`.

Creates a git repository whose fleet file raises every target since the last commit, and a snapshot of nodes with room
for a part; then runs `fleetctl plan` in every format, with and without `--base`, as a user would. With --json the last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from fleetctl.render.report.formats import ReportFormat
from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text

HEAD = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: benchmark}\nspec:\n  models:\n"
MODEL = """\
  - key: org/model-%d
    replicas: %d
    workers:
    - name: main
      members:
      - resources: {gpus: %s, cpus: 1}
        engine:
          command: [vllm, serve, org/model-%d]
          args: [--port, $(FLEETCTL_PORT), --max-model-len, "4096"]
          env: {HF_HUB_OFFLINE: "1"}
"""
SIZES = ("1", "2", "4", "0.5", "8")


def fleet_text(models: int, replicas: int) -> str:
    """A fleet of `models` models of five sizes, each with `replicas` replicas."""
    return HEAD + "".join(MODEL % (number, replicas, SIZES[number % len(SIZES)], number) for number in range(models))


def snapshot(nodes: int) -> str:
    """An inventory of empty nodes with 8 GPUs each."""
    total = {"GPU": 8, "CPU": 128, "memory": 1 << 40}
    return json.dumps({"formatVersion": "1.0", "kind": "Inventory", "observedAt": "2026-03-04T12:00:00Z",
                       "source": "a benchmark", "nodes": [{"id": f"id-{number}", "name": f"node-{number}",
                                                           "resources": {"total": total}} for number in range(nodes)]})


def repository(folder: Path, models: int, nodes: int) -> None:
    """Write the snapshot, commit the fleet with one replica per model, then set two in the working tree."""
    (folder / "snapshot.json").write_text(snapshot(nodes))
    (folder / "fleet.yaml").write_text(fleet_text(models, 1))
    git = ["git", "-C", str(folder), "-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    for step in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *step], check=True)
    (folder / "fleet.yaml").write_text(fleet_text(models, 2))


def measure(folder: Path, flags: Sequence[str], rounds: int) -> dict[str, Any]:
    """Run the command; return its wall-clock seconds, processor seconds and characters of output."""
    command = [sys.executable, "-m", "fleetctl", "plan", "-f", "fleet.yaml", "--inventory", "snapshot.json", *flags]
    taken, busy, written = [], [], ""
    for _ in range(rounds):
        began, worked = time.perf_counter(), processor_seconds()
        written = subprocess.run(command, cwd=folder, check=True, capture_output=True, encoding="utf-8").stdout
        taken.append(time.perf_counter() - began)
        busy.append(processor_seconds() - worked)
    return {"seconds": round(statistics.median(taken), 3), "processor": round(statistics.median(busy), 3),
            "characters": len(written)}


def processor_seconds() -> float:
    """The processor seconds of ended children: on a shared machine more reliable than the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository(folder, flags.models, flags.nodes)
        results = {chosen: measure(folder, ["--format", chosen], flags.rounds) for chosen in get_args(ReportFormat)}
        results["markdown --base"] = measure(folder, ["--format", "markdown", "--base", "HEAD"], flags.rounds)
    for name, result in results.items():
        print(f"{name:16} {result['seconds']:7.3f} s  {result['processor']:7.3f} s of processor  "
              f"{result['characters']:>9} characters")
    if flags.json:
        print(json.dumps({
            "benchmark": "report", "models": flags.models, "nodes": flags.nodes, "rounds": flags.rounds,
            "machine": machine_text(),
            "versions": {"fleetctl": __version__, "python": platform.python_version()}, "results": results,
        }))


if __name__ == "__main__":
    main()
