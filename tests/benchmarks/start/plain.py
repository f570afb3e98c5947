"""The plain Ray script to compare with: `plain.py GCS COUNT`; one actor with one engine each, spread over the nodes.

Prints the seconds until all are up as JSON, keeps them until a line comes, then ends them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ENGINE = ["sleep", "1000000"]


class Replica:
    """One engine."""

    def __init__(self) -> None:
        self._engine = subprocess.Popen(ENGINE)

    def stop(self) -> None:
        """End the engine."""
        self._engine.kill()
        self._engine.wait()


def main() -> None:
    """Create all replicas at once, wait until all are up, and end them when asked."""
    address, count = sys.argv[1], int(sys.argv[2])
    ray.init(address=address, namespace="by-hand", log_to_driver=False, logging_level="ERROR")
    nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU"))
    kind, begun = ray.remote(Replica), time.time()
    made = [kind.options(
        name=f"r{number}", lifetime="detached", num_cpus=0, num_gpus=1,
        scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=False)).remote()
        for number in range(count)]
    created = time.time()
    ray.get([one.__ray_ready__.remote() for one in made])
    print(json.dumps({"firstToLastCreate": created - begun, "untilAllReady": time.time() - begun}), flush=True)
    sys.stdin.readline()
    ray.get([one.stop.remote() for one in made])
    for one in made:
        ray.kill(one)


if __name__ == "__main__":
    main()
