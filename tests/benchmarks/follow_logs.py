"""The cost of `logs MODEL -f` while nothing is written: `python -m tests.benchmarks.follow_logs --json`.

A separate process follows the logs of a model's replicas from a stand-in for the dashboard. Once it has shown all
lines, its processor time and its GETs are counted. With --json the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fleetctl.inventory.engine_log import log_name
from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text
from tests.cluster_stand_in import ClusterStandIn, serve
from tests.stamped import stamped

MODEL, NODES, SETTLED_S = "org/one", 10, 15.0
"""Its interval grows until it is the one for silent engines."""


def cluster_of(replicas: int) -> ClusterStandIn:
    """Return a cluster with replicas that have written two lines each."""
    cluster = ClusterStandIn()
    for number in range(NODES):
        cluster.add_node(f"node-{number}")
    for replica in range(replicas):
        node = cluster.nodes[replica % NODES]["node_id"]
        cluster.add_replica(MODEL, replica, node, gpus=0)
        cluster.log_files[node, log_name("fleet", MODEL, replica, "main", 0, 0)] = stamped((1, "up"), (2, "serving"))
    return cluster


def processor_s(pid: int) -> float:
    """Return the processor time of a process."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(replicas: int, seconds: float) -> dict[str, Any]:
    """Follow the logs; return processor time and GETs over `seconds`."""
    with serve(cluster_of(replicas)) as cluster, tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home}
        with subprocess.Popen([sys.executable, "-m", "fleetctl", "logs", MODEL, "-f", "--address", cluster.url],
                              stdout=subprocess.PIPE, env=env, text=True) as process:
            assert process.stdout
            shown = [process.stdout.readline() for _ in range(2 * replicas)]
            assert sorted(shown) == sorted(f"[{one}] {text}\n" for one in range(replicas) for text in ("up", "serving"))
            time.sleep(SETTLED_S)
            began, used, gets = time.monotonic(), processor_s(process.pid), len(cluster.requests)
            time.sleep(seconds)
            passed = time.monotonic() - began
            used, gets = processor_s(process.pid) - used, len(cluster.requests) - gets
            process.terminate()
    return {"percentOfACore": round(100 * used / passed, 1), "getsPerSecond": round(gets / passed, 1)}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    found = measure(flags.replicas, flags.seconds)
    print(f"{flags.replicas} silent replicas: {found['percentOfACore']} % of a core, {found['getsPerSecond']} GETs/s")
    if flags.json:
        print(json.dumps({
            "benchmark": "follow_logs", "replicas": flags.replicas, "seconds": flags.seconds, "results": found,
            "seeds": "none: nothing is random",
            "machine": machine_text(),
            "versions": {"fleetctl": __version__, "python": platform.python_version()}}))


if __name__ == "__main__":
    main()
