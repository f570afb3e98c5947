"""The cost of an idle watch of a large cluster: `python -m tests.benchmarks.watch.large --json`.

It observes a stand-in for a dashboard whose cluster has all replicas of the fleet. With --json the last line is one
JSON object.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.fleetfile.load import load_fleet
from fleetctl.version import __version__
from tests.benchmarks.large.cluster import LargeCluster
from tests.benchmarks.large.dashboard import serve
from tests.benchmarks.watch.__main__ import MIB, processor_s

DEFAULT_INTERVAL_S = 30
REQUESTED_ONCE_PER_LOOK = "/nodes"


def measured(cluster: LargeCluster, looks: int) -> dict[str, Any]:
    """Run a watch for `looks` observations after the first plan."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "fleet.yaml"
        file.write_text(cluster.fleet_text({}))
        cluster = replace(cluster, spec_hashes={one.key: one.spec_hash for one in load_fleet([str(file)]).models})
        with serve(cluster) as (url, requested), subprocess.Popen(
                [sys.executable, "-m", "fleetctl", "watch", "-f", str(file), "--address", url, "--interval", "1s",
                 "--listen", "127.0.0.1:0"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            try:
                _wait_for(requested, 3)  # an observation, another to plan, another
                began = processor_s(process.pid)
                _wait_for(requested, 3 + looks)
                used = processor_s(process.pid) - began
                lines = (Path("/proc") / str(process.pid) / "status").read_text().splitlines()
            finally:
                process.kill()
    memory = {line.split(":")[0]: int(line.split()[1]) * 1024 / MIB for line in lines
              if line.startswith(("VmR", "VmH"))}
    return {"replicas": len(cluster.replicas), "look_ms": round(1000 * used / looks),
            "core_percent_at_30s": round(100 * used / looks / DEFAULT_INTERVAL_S, 1),
            "resident_mib": round(memory["VmRSS"]), "most_mib": round(memory["VmHWM"])}


def _wait_for(requested: list[str], looks: int) -> None:
    while requested.count(REQUESTED_ONCE_PER_LOOK) < looks:
        time.sleep(0.05)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.watch.large", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="of eight cards each")
    parser.add_argument("--idle", type=int, default=800, help="nodes without replicas; two others have 20")
    parser.add_argument("--models", type=int, default=40, help="of each of three kinds")
    parser.add_argument("--looks", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    found = measured(LargeCluster(nodes=flags.nodes, models=flags.models, idle=flags.idle), flags.looks)
    result = {"benchmark": "watch.large", "nodes": flags.nodes, "idle": flags.idle, "models": 3 * flags.models,
              "looks": flags.looks, **found,
              "load": round(os.getloadavg()[0], 1), "version": __version__, "python": platform.python_version(),
              "machine": f"{platform.machine()}, {os.cpu_count()} CPUs"}
    print(json.dumps(result) if flags.json else json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
