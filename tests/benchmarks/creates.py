"""How fast an apply issues its creates, against a stand-in for Ray: `python -m tests.benchmarks.creates --json`.

The agent's own apply creates 1,000 replicas on 125 nodes of eight cards. A call to Ray takes what it was measured to
take on a real one, a node starts four workers at a time, and its free resources lag by a second. With --json the last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text

sys.path.insert(0, str(Path(__file__).parents[1]))
from creating_ray import SHARE, CreatingRay

COSTS = {"create": 0.0025, "hold": 0.0005, "taken_names": 0.0032, "alive_nodes": 0.003, "draining_nodes": 0.0005,
         "free_by_node": 0.003, "actor_record": 0.0004}
"""Seconds of each call to Ray 2.60 with 1,000 actors on 4 nodes; what grows with the nodes, made larger for 125."""
LAG_S, AT_ONCE = 1.0, 4


def issue(replicas: int, cards: int, parallelism: int, worker_s: float, seed: int) -> dict[str, Any]:
    """Apply once; return the seconds of its creates."""
    rng = random.Random(seed)
    nodes = -(-replicas // cards)
    begun = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        ray = CreatingRay({f"n{number}": cards for number in range(nodes)}, lambda: time.monotonic() - begun,
                          lag_s=LAG_S, worker_s=lambda: rng.uniform(0.7, 1.3) * worker_s, at_once=AT_ONCE, costs=COSTS,
                          spend=time.sleep)
        ray.install(patch)
        waiting: list[int] = []
        ray.before_create = lambda _: waiting.append(
            sum(one.up is None or one.up > ray.now() for one in ray.actors.values()))
        order = [(f"m{number % 20}", number // 20, f"n{number // cards}", SHARE) for number in range(replicas)]
        summaries: list[Any] = []
        processor = time.process_time()
        code = ray.run(order, lambda kind, *_, **fields: summaries.append(fields) if kind == "runSummary" else None,
                       parallelism=parallelism, clock=time.monotonic)
        processor = time.process_time() - processor
    created = [one.created for one in ray.actors.values()]
    assert code == 0, summaries[-1]["outcomes"]
    assert len(created) == replicas
    return {"replicas": replicas, "nodes": nodes, "parallelism": parallelism, "workerSeconds": worker_s, "seed": seed,
            "firstToLastCreate": round(max(created) - min(created), 2),
            "untilAllReady": round(time.monotonic() - begun, 2), "mostWaiting": max(waiting) + 1,
            "processorSeconds": round(processor, 2), "reads": ray.calls["free_by_node"]}


def main() -> None:
    """Apply with each parallelism and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.creates", description=__doc__)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--cards", type=int, default=8, help="of each node")
    parser.add_argument("--worker", type=float, default=3.0, help="seconds in which a worker starts, +- 30 %%")
    parser.add_argument("--parallelism", type=int, nargs="+", default=[1000, 100])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for parallelism in options.parallelism:
        rows.append(issue(options.replicas, options.cards, parallelism, options.worker, options.seed))
        print(rows[-1], flush=True)
    if options.json:
        print(json.dumps({"benchmark": "creates", "version": __version__, "python": platform.python_version(),
                          "machine": machine_text(), "rows": rows}))


if __name__ == "__main__":
    main()
