"""How soon a commit becomes the create of a replica: `python -m tests.benchmarks.watch.commits --json`.

On a real Ray, from before the push to the agent's first `replicaCreated` of the model that the commit adds, both by the
clock of this machine. With --push the forge's webhook tells of each push; without, the watch polls. Each commit names
one new model and drops the former one, whose replica is ended here. --own gives each apply a job of its own, as
before: the agents that wait are ended first. Also what an agent costs while it waits. With --json the last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from fleetctl.version import __version__
from tests.benchmarks.watch.__main__ import processor_s
from tests.chaos.fleet import Fleet, Watched
from tests.chaos.loop import Repository
from tests.e2e.cluster import RayCluster, eventually, running_cluster

SECRET = "a-long-secret"
LIMIT_S = 120.0


class Bench:
    """A cluster, a repository, and a watch of both that waits for commits."""

    def __init__(self, cluster: RayCluster, folder: Path, flags: argparse.Namespace) -> None:
        self.cluster, self.flags = cluster, flags
        models = {f"m{number}": [0.0] for number in range(flags.runs + 1)}
        self.fleet = Fleet("watched", folder, models)
        self.watched = Watched(cluster, self.fleet, cluster.address)
        self.repository = Repository(self.fleet, self.watched.env)
        self._secret, self._errors = folder / "secret", folder / "watch.err"
        self._secret.write_text(SECRET)
        self._rng, self._url = random.Random(1), ""
        cluster.add(names=["a"], gpus=1)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._push("m0")
        more = ["--push-secret-file", str(self._secret)] if self.flags.push else []
        with self._errors.open("w") as errors, subprocess.Popen(
                [sys.executable, "-m", "fleetctl", "watch", "--repo", str(self.repository.bare), "--path", "fleet.yaml",
                 "--interval", f"{self.flags.interval:g}s", "--listen", "127.0.0.1:0", *more],
                env=self.watched.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors) as process:
            try:
                self._url = eventually(self._listens_at, "the watch listens")
                eventually(lambda: self._alive("m0"), "the first revision runs", LIMIT_S)
                yield
            finally:
                process.kill()

    def commit(self, number: int) -> float:
        """Return the seconds from a push to the create of what it adds."""
        key = f"m{number}"
        self._pause()
        began = time.time()
        self._push(key)
        if self.flags.push:
            self._tell(key)
        created = eventually(lambda: self._created(key), f"{key} is created", LIMIT_S)
        eventually(lambda: self._alive(key), f"{key} runs", LIMIT_S)
        self.cluster.kill(namespace=self.fleet.name, name=f"ModelActor:m{number - 1}:0")
        return float(created) - began

    def idle(self, seconds: float) -> float:
        """Return the part of a core that the agent takes which waits, in percent."""
        pid = eventually(self._waiting, "an agent waits")
        time.sleep(5)
        used, began = processor_s(pid), time.monotonic()
        time.sleep(seconds)
        return 100 * (processor_s(pid) - used) / (time.monotonic() - began)

    def _pause(self) -> None:
        time.sleep(self.flags.pause + self._rng.uniform(0, self.flags.interval if not self.flags.push else 3))
        for job in self._unended() if self.flags.own else ():
            httpx.post(f"{self.cluster.address}/api/jobs/{job}/stop", timeout=30)
        eventually(lambda: not self.flags.own or not self._unended(), "no agent waits")

    def _unended(self) -> set[str]:
        """Return the jobs that have not ended; between two commits these are agents that wait."""
        return {job["submission_id"] for job in self._jobs() if job["status"] in ("PENDING", "RUNNING")}

    def _push(self, key: str) -> None:
        self.fleet.wanted = Counter({key: 1})
        self.fleet.write()
        self.repository.push("more")

    def _tell(self, key: str) -> None:
        body = json.dumps({"ref": "refs/heads/main", "after": key}).encode()
        signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        httpx.post(f"{self._url}/push", content=body, timeout=30, headers={
            "X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Event": "push", "X-GitHub-Delivery": key,
            "Content-Type": "application/json"}).raise_for_status()

    def _listens_at(self) -> str:
        """Return the address of the watch's server; "" = it does not listen yet."""
        line = next((line for line in self._errors.read_text().splitlines() if line.startswith("listening: ")), "")
        return line.removeprefix("listening: ").partition("/,")[0]

    def _jobs(self) -> list[dict[str, Any]]:
        rows = httpx.get(f"{self.cluster.address}/api/jobs/", headers={"User-Agent": "bench"}, timeout=30).json()
        return [row for row in rows if (row["metadata"] or {}).get("tool") == "fleetctl"]

    def _created(self, key: str) -> float | None:
        """Return when the create of a model's replica was reported, in seconds since the epoch."""
        time.sleep(1.5)  # reading the logs takes the dashboard's time
        newest = sorted((job for job in self._jobs() if job["metadata"]["verb"] == "apply"),
                        key=lambda job: int(job["start_time"]))[-2:]
        for job in newest:
            log = httpx.get(f"{self.cluster.address}/api/jobs/{job['submission_id']}/logs", timeout=30).json()["logs"]
            for line in log.splitlines():
                if '"type":"replicaCreated"' in line and (event := json.loads(line))["model"] == key:
                    return datetime.fromisoformat(event["time"]).timestamp()
        return None

    def _alive(self, key: str) -> bool:
        return any(row["name"] == f"ModelActor:{key}:0" and row["state"] == "ALIVE"
                   for row in self.cluster.actors(namespace=self.fleet.name))

    def _waiting(self) -> int | None:
        """Return the process of the agent that waits."""
        jobs = {job["submission_id"] for job in self._jobs()
                if job["metadata"]["verb"] == "standby" and job["status"] == "RUNNING"}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "-m" in words and any(f"{job}-request" in words for job in jobs):
                return int(entry.name)
        return None


def main() -> None:
    """Push the commits, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.watch.commits", description=__doc__)
    parser.add_argument("--interval", type=float, default=10, help="interval of the watch, in seconds")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pause", type=float, default=12, help="seconds between a replica that is ready and a push")
    parser.add_argument("--push", action="store_true", help="tell the watch of each push by a webhook")
    parser.add_argument("--own", action="store_true", help="give each apply a job of its own")
    parser.add_argument("--idle", type=float, default=60, help="seconds to measure an agent that waits; 0 = do not")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    took, loads, idle = list[float](), list[float](), None
    with tempfile.TemporaryDirectory() as name, running_cluster(Path(name)) as cluster:
        bench = Bench(cluster, Path(name), flags)
        with bench.watching():
            for number in range(1, flags.runs + 1):
                took.append(bench.commit(number))
                loads.append(os.getloadavg()[0])
                print(f"commit {took[-1]:.2f} s; load {loads[-1]:.1f}", flush=True)
            if flags.idle and not flags.own:
                idle = bench.idle(flags.idle)
        cluster.sweep(namespaces=[bench.fleet.name])
    ordered = sorted(took)
    result = {"benchmark": "watch.commits", "interval": flags.interval, "runs": flags.runs, "push": flags.push,
              "own job": flags.own, "p50": round(ordered[len(ordered) // 2], 2),
              "p95": round(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 2),
              "max": round(ordered[-1], 2), "idle percent of a core": idle and round(idle, 2),
              "load": [round(min(loads), 1), round(max(loads), 1)], "version": __version__,
              "python": platform.python_version(), "machine": f"{platform.machine()}, {os.cpu_count()} CPUs"}
    print(json.dumps(result) if flags.json else json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
