"""The cost of `inventory`, `plan` and `status` on a large cluster: `python -m tests.benchmarks.large_cluster --json`.

Runs the commands as a user would, against a stand-in for the dashboard in another process. A wrong answer ends the run
with an error. With --json the last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fleetctl.fleetfile.load import load_fleet
from fleetctl.version import __version__
from tests.benchmarks.large.cluster import LargeCluster
from tests.benchmarks.machine import machine_text

CLUSTERS = {
    "small": LargeCluster(nodes=20, models=10, starting=10),
    "thousand": LargeCluster(nodes=200, models=20, starting=20, idle=100),
    "groups": LargeCluster(nodes=20, models=10, starting=10, groups=10_200),
    "crowded": LargeCluster(nodes=20, models=10, starting=10, foreign=12_000, named=5_000, groups=10_200),
    "large": LargeCluster(nodes=2_000, models=100, starting=300),
}
MORE = {"whole": 4, "half": 6, "gang": 2}


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run of a command: wall-clock seconds, processor seconds and peak memory."""

    seconds: float
    processor: float
    peak_mib: float


@contextmanager
def dashboard(cluster: LargeCluster) -> Iterator[str]:
    """Run the stand-in in a separate process."""
    command = [sys.executable, "-m", "tests.benchmarks.large.dashboard", json.dumps(asdict(cluster))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdin
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait()


def measured(arguments: Sequence[str], folder: Path) -> tuple[Cost, Any]:
    """Run one command; return its cost and its output as JSON or text."""
    with (folder / "out.json").open("w+b") as out:
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "fleetctl", *arguments], stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{arguments[0]} ended with {process.returncode}"
        out.seek(0)
        text = out.read().decode()
        return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024), (
            json.loads(text) if "json" in arguments else text)


def check_inventory(cluster: LargeCluster, inventory: Any) -> None:
    """Raise AssertionError unless the inventory has every node and replica exactly once."""
    assert inventory["complete"], inventory["warnings"]
    assert len(inventory["nodes"]) == cluster.nodes
    listed = inventory["replicas"]
    ours = {(one["model"], one["replicaId"]): one for one in listed if one.get("fleet") == "lab"}
    assert len(ours) == len(cluster.replicas) == sum(one.get("fleet") == "lab" for one in listed)
    for placed in cluster.replicas:
        one = ours[placed.model, placed.replica_id]
        assert (one["state"] != "ALIVE") == placed.starting
        assert len(one["members"]) == len(placed.seats)
    assert len(listed) == len(cluster.replicas) + cluster.named


def check_plan(cluster: LargeCluster, plan: Any) -> None:
    """Raise AssertionError unless the plan creates exactly the missing replicas."""
    created = sorted(action["model"] for action in plan["actions"])
    assert created == sorted(cluster.model(kind, number) for kind, count in MORE.items() for number in range(count))
    assert not plan["blocked"]
    assert not plan["drift"]
    assert plan["summary"]["live"] == len(cluster.replicas)


def check_status(cluster: LargeCluster, shown: str) -> None:
    """Raise AssertionError unless every replica has a row."""
    starting = sum(one.starting for one in cluster.replicas)
    assert shown.splitlines()[-1] == f"Replicas: {len(cluster.replicas) - starting} ready, {starting} starting"
    assert sum(line.startswith("org/") for line in shown.splitlines()) == len(cluster.replicas) + 3 * cluster.models


def with_hashes(cluster: LargeCluster, path: Path) -> LargeCluster:
    """Write the fleet file of a cluster; return the cluster with the spec hashes of the file."""
    path.write_text(cluster.fleet_text(MORE))
    return replace(cluster, spec_hashes={model.key: model.spec_hash for model in load_fleet([str(path)]).models})


def measure(cluster: LargeCluster, rounds: int) -> dict[str, list[Cost]]:
    """Run the commands `rounds` times against a cluster."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fleet = folder / "fleet.yaml"
        cluster = with_hashes(cluster, fleet)
        costs: dict[str, list[Cost]] = {"inventory": [], "plan": [], "status": []}
        with dashboard(cluster) as url:
            for _ in range(rounds):
                cost, inventory = measured(["inventory", "--address", url, "--format", "json"], folder)
                check_inventory(cluster, inventory)
                costs["inventory"].append(cost)
                cost, plan = measured(["plan", "--address", url, "-f", str(fleet), "--format", "json"], folder)
                check_plan(cluster, plan)
                costs["plan"].append(cost)
                cost, shown = measured(["status", "--address", url, "-f", str(fleet)], folder)
                check_status(cluster, shown)
                costs["status"].append(cost)
    return costs


def summary(costs: Sequence[Cost]) -> dict[str, Any]:
    """The median, the least and the most of all runs."""
    by_part = {part: [getattr(cost, part) for cost in costs] for part in ("seconds", "processor", "peak_mib")}
    return {part: {"median": round(statistics.median(values), 2), "least": round(min(values), 2),
                   "most": round(max(values), 2)} for part, values in by_part.items()}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", choices=[*CLUSTERS, "all"], default="all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    results = {}
    for name in CLUSTERS if flags.world == "all" else [flags.world]:
        results[name] = {command: summary(costs) for command, costs in measure(CLUSTERS[name], flags.rounds).items()}
        for command, cost in results[name].items():
            seconds, processor, peak = (cost[part]["median"] for part in ("seconds", "processor", "peak_mib"))
            print(f"{name:8} {command:9} {seconds:6.2f} s  {processor:6.2f} s of processor  {peak:5.0f} MiB")
    if flags.json:
        print(json.dumps({
            "benchmark": "large_cluster", "rounds": flags.rounds, "seeds": "none: nothing is random",
            "worlds": {name: {key: value for key, value in asdict(CLUSTERS[name]).items() if key != "spec_hashes"}
                       for name in results},
            "machine": machine_text(),
            "versions": {"fleetctl": __version__, "python": platform.python_version()}, "results": results,
        }))


if __name__ == "__main__":
    main()
