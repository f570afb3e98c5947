"""How long starts take, against a plain Ray script on the same cluster: `python -m tests.benchmarks.start --json`.

Runs alternate, each on a cluster that has settled. `--many 30 --delay 40` adds starts of many slow engines, which take
minutes. With --json the last line is one JSON object.
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
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from fleetctl.version import __version__
from tests.e2e.cluster import RayCluster, eventually, running_cluster

BY_HAND = Path(__file__).parent / "by_hand.py"
NODES, CARDS = 4, 2
SETTLE_S = 8.0
"""The wait before each measurement: Ray replaces used idle workers meanwhile."""


def fleet_file(folder: Path, count: int, delay_s: float, gpus: float) -> Path:
    """Write a fleet of one model with the stub engine."""
    engine = {"command": [sys.executable, "-m", "fleetctl.demo.stub_engine"],
              "args": ["--port", "$(FLEETCTL_PORT)", "--startup-delay", str(delay_s)],
              "readiness": {"http": {"path": "/health"}}}
    model = {"key": "bench", "replicas": count, "startupTimeout": "5m", "workers": [
        {"name": "main", "members": [{"resources": {"gpus": gpus}, "engine": engine}]}]}
    file = folder / "fleet.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "bench"},
                                    "spec": {"models": [model]}}))
    return file


class Bench:
    """One cluster, and the measurements on it."""

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.env = {**os.environ, "FLEETCTL_ADDRESS": cluster.address, "FLEETCTL_NAMESPACE": "bench"}

    def settle(self) -> None:
        """Remove all replicas and give Ray time to start its idle workers."""
        self.cluster.sweep(namespaces=["bench", "by-hand"])
        nodes = [f"n{number}" for number in range(NODES)]
        eventually(lambda: all(self.cluster.free(node=node, resource="GPU") == CARDS for node in nodes), "all are free")
        time.sleep(SETTLE_S)

    def by_hand(self, count: int, delay_s: float, gpus: float) -> float:
        """Seconds from the first create to the last ready in the plain script."""
        self.settle()
        done = subprocess.run([sys.executable, str(BY_HAND), self.cluster.gcs(), str(count), str(delay_s), str(gpus)],
                              capture_output=True, text=True, check=True, cwd=Path.cwd())
        return float(done.stdout)

    def apply(self, count: int, delay_s: float, gpus: float) -> dict[str, float]:
        """Seconds of the phases of one apply."""
        self.settle()
        file = fleet_file(self.folder, count, delay_s, gpus)
        begun = time.time()
        done = self._fleetctl("apply", "-f", str(file), "--yes", "--format", "jsonl")
        ended = time.time()
        events = [json.loads(line) for line in done.stdout.splitlines()]
        at = {kind: [moment(event["time"]) for event in events if event["type"] == kind] for kind in
              ("version", "replicaCreated", "replicaReady")}
        assert len(at["replicaReady"]) == count, done.stdout
        posted, created = self._posted("apply"), at["replicaCreated"]
        return {"start to POST": posted - begun, "POST to agent": at["version"][0] - posted,
                "agent to first create": created[0] - at["version"][0], "start to first create": created[0] - begun,
                "create to last ready": max(at["replicaReady"]) - created[0],
                "last ready to end": ended - max(at["replicaReady"])}

    def evict(self) -> dict[str, float]:
        """Seconds to evict one replica after an apply."""
        time.sleep(SETTLE_S)
        begun = time.time()
        self._fleetctl("evict", "bench/0", "--yes")
        return {"evict": time.time() - begun, "evict: start to POST": self._posted("evict") - begun}

    def _fleetctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "fleetctl", *arguments], env=self.env, capture_output=True,
                              text=True, check=True)

    def _posted(self, verb: str) -> float:
        """The start time of the last job of this kind, as reported by Ray."""
        request = urllib.request.Request(f"{self.cluster.address}/api/jobs/", headers={"User-Agent": "bench"})
        with urllib.request.urlopen(request) as answer:
            jobs = json.load(answer)
        return max(job["start_time"] for job in jobs if (job.get("metadata") or {}).get("verb") == verb) / 1000


def moment(text: str) -> float:
    """The seconds since the epoch of an event's time."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """The median, the least and the most of each phase."""
    return {key: {"median": round(statistics.median(row[key] for row in rows), 2),
                  "min": round(min(row[key] for row in rows), 2), "max": round(max(row[key] for row in rows), 2)}
            for key in rows[0]}


def main() -> None:
    """Alternate both measurements and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.start", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--many", type=int, default=0, help="also start N slow engines, once each way")
    parser.add_argument("--delay", type=float, default=40, help="startup seconds of a slow engine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, running_cluster(Path(name)) as cluster:
        cluster.add(names=[f"n{number}" for number in range(NODES)], gpus=CARDS)
        bench = Bench(cluster, Path(name))
        rows = []
        bench.by_hand(8, 0, 1)  # the first start warms the disk cache
        for run in range(options.runs):  # in alternating order: each leaves Ray different idle workers
            first = bench.by_hand(8, 0, 1) if run % 2 else 0
            applied = {**bench.apply(8, 0, 1), **bench.evict()}
            rows.append({"by hand: create to last ready": first or bench.by_hand(8, 0, 1), **applied})
            print(rows[-1], flush=True)
        result["eight"] = summary(rows)
        if options.many:
            gpus = 0.25
            many = {"by hand: create to last ready": bench.by_hand(options.many, options.delay, gpus),
                    **bench.apply(options.many, options.delay, gpus)}
            result["many"] = {"replicas": options.many, "delay": options.delay, **summary([many])}
        bench.settle()
    for name, phases in result.items():
        print(name, json.dumps(phases, indent=1))
    if options.json:
        print(json.dumps({"benchmark": "start", "version": __version__, "python": platform.python_version(),
                          "machine": f"{platform.machine()}, {os.cpu_count()} CPUs", "runs": options.runs, **result}))


if __name__ == "__main__":
    main()
