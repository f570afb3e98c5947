"""How soon a watch reacts, and what it costs while idle: `python -m tests.benchmarks.watch --json`.

On a real Ray: from a push to the first replica that Ray lists, and from the end of a node to the replacement of its
replica. Both begin at a random moment of the interval. A watch cannot detect a lost node before Ray does, so the time
until Ray lists the node as dead is reported separately. With --json the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetctl.version import __version__
from tests.chaos.fleet import Fleet, Watched
from tests.chaos.loop import Repository
from tests.e2e.cluster import RayCluster, eventually, running_cluster

CARDS, SETTLE_S, MIB = 2, 8.0, 1 << 20


class Bench:
    """A cluster, a repository, and a watch of both."""

    def __init__(self, cluster: RayCluster, folder: Path, interval_s: float) -> None:
        self.cluster, self.interval_s = cluster, interval_s
        self.fleet = Fleet("watched", folder, {"one": [1.0], "gang": [1.0, 1.0]})
        self.watched = Watched(cluster, self.fleet, cluster.address)
        self.repository = Repository(self.fleet, self.watched.env)
        self._rng, self._nodes = random.Random(1), [f"n{number}" for number in range(3)]
        cluster.add(names=self._nodes, gpus=CARDS)

    @contextmanager
    def watching(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the watch with a status page that no client opens."""
        self._want(one=2)
        with subprocess.Popen(
                [sys.executable, "-m", "fleetctl", "watch", "--repo", str(self.repository.bare), "--path", "fleet.yaml",
                 "--interval", f"{self.interval_s:g}s", "--listen", "127.0.0.1:0"],
                env=self.watched.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            try:
                self._settled(2)
                yield process
            finally:
                process.kill()

    def commit(self) -> float:
        """Seconds from a push to the first replica that Ray lists. Restores the target and ends the replica."""
        before = self._random_moment()
        began = time.monotonic()
        self._want(one=3)
        new = self._first_new(before)
        took = time.monotonic() - began
        self._want(one=2)
        self._settled(3)
        time.sleep(2 * self.interval_s)  # the watch must read the lower target first, or it recreates the replica
        self.cluster.kill(namespace=self.fleet.name, name=next(row["name"] for row in self._rows() if row["id"] == new))
        self._settled(2)
        return took

    def node(self) -> tuple[float, float]:
        """Seconds from the end of a node with a replica until Ray lists it as dead, and from then to the replacement.

        Adds another node first.
        """
        self._nodes.append(f"m{self._rng.random()}")
        self.cluster.add(names=self._nodes[-1:], gpus=CARDS)
        before = self._random_moment()
        used = {row["node"] for row in self._rows()}
        lost = next(name for name in self._nodes if self.cluster.node_id(name=name) in used)
        self._nodes.remove(lost)
        lost_id, began = self.cluster.node_id(name=lost), time.monotonic()
        self.cluster.kill_node(name=lost)
        eventually(lambda: not self.cluster.lives(node_id=lost_id), "Ray lists the node as dead")
        dead = time.monotonic()
        self._first_new(before)
        ended = time.monotonic()
        self._settled(2)
        return dead - began, ended - dead

    def idle(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, float]:
        """The cost of the watch while nothing changes: processor, including its git processes, and final memory."""
        self._settled(2)
        time.sleep(2 * self.interval_s)  # replicas have just started, so it plans once more
        used, began = processor_s(process.pid), time.monotonic()
        time.sleep(seconds)
        share = (processor_s(process.pid) - used) / (time.monotonic() - began)
        status = (Path("/proc") / str(process.pid) / "status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return {"look_ms": round(1000 * share * self.interval_s), "core_percent_at_30s": round(
            100 * share * self.interval_s / 30, 2), "resident_mib": round(int(resident.split()[1]) * 1024 / MIB)}

    def _want(self, **wanted: int) -> None:
        self.fleet.wanted = Counter(wanted)
        self.fleet.write()
        self.repository.push("more")

    def _random_moment(self) -> set[str]:
        time.sleep(SETTLE_S + self._rng.uniform(0, self.interval_s))
        return self._ids()

    def _ids(self) -> set[str]:
        """Ids of actors: names are reused once all replicas of a model are gone."""
        return {row["id"] for row in self._rows()}

    def _rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.cluster.actors(namespace=self.fleet.name)
        return rows

    def _first_new(self, before: set[str]) -> str:
        new: set[str] = eventually(lambda: self._ids() - before, "a replica is created", 20 * self.interval_s + 60)
        return min(new)

    def _settled(self, count: int) -> None:
        eventually(lambda: [row["state"] for row in self._rows()] == ["ALIVE"] * count, f"{count} replicas run",
                   20 * self.interval_s + 60)


def processor_s(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended, in seconds."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _summary(interval_s: float, took: list[float]) -> dict[str, Any]:
    by = {"median": statistics.median(took), "min": min(took), "max": max(took)}
    return {**{key: round(value, 2) for key, value in by.items()},
            "of_interval": {key: round(value / interval_s, 2) for key, value in by.items()},
            "within_interval_and_3s": f"{sum(one <= interval_s + 3 for one in took)} of {len(took)}"}


def main() -> None:
    """Alternate both measurements and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.watch", description=__doc__)
    parser.add_argument("--interval", type=float, default=10, help="interval of the watch, in seconds")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--idle", type=float, default=60, help="seconds to measure the idle watch")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    commits, ray, nodes = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as name, running_cluster(Path(name)) as cluster:
        bench = Bench(cluster, Path(name), flags.interval)
        with bench.watching() as process:
            for _ in range(flags.runs):
                commits.append(bench.commit())
                by_ray, by_watch = bench.node()
                ray.append(by_ray)
                nodes.append(by_watch)
                print(f"commit {commits[-1]:.2f} s; node: Ray {ray[-1]:.2f} s, then {nodes[-1]:.2f} s; "
                      f"load {os.getloadavg()[0]:.1f}", flush=True)
            idle = bench.idle(process, flags.idle)
        cluster.sweep(namespaces=[bench.fleet.name])
    both = [one + other for one, other in zip(ray, nodes, strict=True)]
    result = {"benchmark": "watch", "interval": flags.interval, "runs": flags.runs,
              "commit to first create": _summary(flags.interval, commits),
              "node loss to its death in Ray's list": _summary(flags.interval, ray),
              "from then to the replacement's create": _summary(flags.interval, nodes),
              "node loss to the replacement's create": _summary(flags.interval, both),
              "idle": idle, "load": round(os.getloadavg()[0], 1),
              "version": __version__, "python": platform.python_version(),
              "machine": f"{platform.machine()}, {os.cpu_count()} CPUs"}
    print(json.dumps(result) if flags.json else json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
