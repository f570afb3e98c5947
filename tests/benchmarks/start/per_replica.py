"""What each replica costs beside its engine: `python -m tests.benchmarks.start.per_replica --json`.

Many replicas of an engine that does nothing run on a real Ray of many nodes on this machine, created by `fleetctl
apply` and, on the same cluster, by a plain Ray script (`plain.py`). Of each replica count its actor and all processes
below it except the engine. With --json the last line is one JSON object.
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
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text
from tests.benchmarks.start.plain import ENGINE
from tests.e2e.cluster import RayCluster, eventually, running_cluster, tree_of

PLAIN = Path(__file__).parent / "plain.py"
CARDS, SETTLE_S = 8, 10.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
FLEET = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "bench"}}


@dataclass(frozen=True)
class Cost:
    """What one replica has used so far: processor seconds; how many bytes its processes hold, shared ones in part."""

    processor_s: float
    memory: int
    processes: int


def cost_of(actor: int) -> Cost:
    """Return what an actor and the processes below it have used, without its engine."""
    own = [pid for pid in (actor, *tree_of(actor)) if command_of(pid) != ENGINE]
    return Cost(sum(map(processor_s, own)), sum(map(memory, own)), len(own))


def command_of(pid: int) -> list[str]:
    """Return the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")


def processor_s(pid: int) -> float:
    """Return the processor seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


def memory(pid: int) -> int:
    """Return the proportional set size of a process in bytes: pages that n processes share count as 1/n."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


class Bench:
    """One cluster, and the replicas on it."""

    def __init__(self, cluster: RayCluster, folder: Path, count: int, idle_s: float) -> None:
        self.cluster, self.folder, self.count, self.idle_s = cluster, folder, count, idle_s
        self.env = {**os.environ, "FLEETCTL_ADDRESS": cluster.address, "FLEETCTL_NAMESPACE": "bench"}

    def measure(self, namespace: str) -> dict[str, Any]:
        """Return the costs of all replicas in a namespace: of their starts, and per minute afterwards."""
        time.sleep(SETTLE_S)
        actors = [row["pid"] for row in self.cluster.actors(namespace=namespace)]
        assert len(actors) == self.count, f"{len(actors)} actors"
        begun, start = time.monotonic(), [cost_of(pid) for pid in actors]
        time.sleep(self.idle_s)
        passed, later = time.monotonic() - begun, [cost_of(pid) for pid in actors]
        a_minute = [(after.processor_s - before.processor_s) * 60 / passed
                    for before, after in zip(start, later, strict=True)]
        return {"start, processor seconds": spread([cost.processor_s for cost in start]),
                "a minute, processor seconds": spread(a_minute),
                "memory, MiB": spread([cost.memory / 2**20 for cost in later]),
                "processes": spread([float(cost.processes) for cost in later])}

    def by_hand(self) -> dict[str, Any]:
        """Start all with the plain script, measure, and end them."""
        with subprocess.Popen([sys.executable, str(PLAIN), self.cluster.gcs(), str(self.count)], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()) as script:
            assert script.stdout is not None
            times = json.loads(script.stdout.readline())
            costs = self.measure("by-hand")
            script.communicate("end\n")
        return {**{name: round(seconds, 2) for name, seconds in times.items()}, **costs}

    def by_apply(self, parallelism: int) -> dict[str, Any]:
        """Start all with `fleetctl apply`, and measure."""
        model = {"key": "bench", "replicas": self.count, "startupTimeout": "20m", "workers": [
            {"name": "main", "members": [{"resources": {"gpus": 1}, "engine": {"command": ENGINE}}]}]}
        file = self.folder / "fleet.yaml"
        file.write_text(yaml.safe_dump({**FLEET, "spec": {"models": [model]}}))
        done = subprocess.run(
            [sys.executable, "-m", "fleetctl", "apply", "-f", str(file), "--yes", "--format", "jsonl", "--parallelism",
             str(parallelism)], env=self.env, capture_output=True, text=True, check=False)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 0, (events[-1:], done.stderr[-2000:])
        created, ready = ([moment(event["time"]) for event in events if event["type"] == kind]
                          for kind in ("replicaCreated", "replicaReady"))
        return {"parallelism": parallelism, "firstToLastCreate": round(max(created) - min(created), 2),
                "untilAllReady": round(max(ready) - min(created), 2), **self.measure("bench")}

    def settle(self, nodes: list[str]) -> None:
        """Remove all replicas, and wait until Ray has all cards back."""
        self.cluster.sweep(namespaces=["bench", "by-hand"])
        eventually(lambda: all(self.cluster.free(node=node, resource="GPU") == CARDS for node in nodes), "all are free")
        time.sleep(SETTLE_S)


def spread(values: list[float]) -> dict[str, float]:
    """Return the median, the least and the most."""
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def moment(text: str) -> float:
    """Return the seconds since the epoch of an event's time."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def main() -> None:
    """Measure both ways on one cluster and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.start.per_replica", description=__doc__)
    parser.add_argument("--replicas", type=int, default=120)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--cpus", type=int, default=2, help="of each node: Ray starts as many workers there at once")
    parser.add_argument("--parallelism", type=int, nargs="+", default=[1000])
    parser.add_argument("--idle", type=float, default=60, help="how long to watch the replicas once they are ready")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    nodes = [f"n{number}" for number in range(options.nodes)]
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, running_cluster(Path(name)) as cluster:
        for node in nodes:  # one by one: sixteen at once do not join in time on two cores
            cluster.add(names=[node], gpus=CARDS, cpus=options.cpus)
        bench = Bench(cluster, Path(name), options.replicas, options.idle)
        bench.settle(nodes)
        rows["plain script"] = bench.by_hand()
        print("plain script", json.dumps(rows["plain script"]), flush=True)
        for parallelism in options.parallelism:
            bench.settle(nodes)
            rows[f"fleetctl, {parallelism} at a time"] = bench.by_apply(parallelism)
            print("fleetctl", json.dumps(rows[f"fleetctl, {parallelism} at a time"]), flush=True)
        bench.settle(nodes)
    if options.json:
        print(json.dumps({"benchmark": "per_replica", "version": __version__, "python": platform.python_version(),
                          "machine": machine_text(), "nodes": options.nodes, "replicas": options.replicas, **rows}))


if __name__ == "__main__":
    main()
