"""Placement on Alibaba's GPU cluster trace: `python -m tests.benchmarks.openb --nodes CSV --pods CSV --seed 42 --json`.

`--mode online`: tasks arrive one by one (the protocol is in `placement/trace.py`). Peers know the typical tasks of the
trace; the product plans 1, 10 or 100 tasks at a time (`--policy`), knowing the tasks so far or the total demand
(", demand known"). `--mode batch`: all tasks that arrive up to `--load` are planned as one fleet by the same packer.
Prints one JSON line per peer and ours last. Every placement is checked by code that shares nothing with the planner; a
violation gives exit code 1. The license of the trace does not allow shipping it: without --nodes and --pods it is read
from $FLEETCTL_BENCH_DATA/openb, and without that variable a small cluster named "synthetic" is used.
`make bench-placement` runs all traces over several seeds (`placement/suite.py`); `docs/benchmarks.md` has the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tests.benchmarks.placement.measure import Run, about_machine, measure, our_names, peer_names, published_fgd
from tests.benchmarks.placement.trace import Trace, read_trace, synthetic_trace

NODES = "openb_node_list_gpu_node.csv"
DATA = "FLEETCTL_BENCH_DATA"


def main() -> None:
    """Run the benchmark."""
    flags = _flags()
    trace, published = _trace(flags.nodes, flags.pods, flags.load)
    if flags.card_memory:
        trace = trace.with_card_memory()
    run = Run(trace, flags.seed, flags.mode, flags.load)
    wrong = 0
    for name in ([] if flags.no_peers else peer_names(run.mode)):
        line = measure(name, run, flags.ray_hosts)
        wrong += line["violations"]
        quoted = published if name == "fgd" and run.mode == "online" else None
        print(json.dumps({**line, **({"published": quoted} if quoted else {})}), flush=True)
    ours = measure(flags.policy or our_names(run.mode)[-1], run)
    wrong += ours["violations"] + ours.get("needlesslyRefused", 0)
    if flags.json:
        print(json.dumps({**ours, **({"publishedFgd": published} if published else {}), **about_machine()}))
    else:
        print(f"{ours['gpuAllocPct']:.2f} % of the GPUs in {ours['seconds']:.1f} s")
    sys.exit(1 if wrong else 0)


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=Path, help="node list of the trace")
    parser.add_argument("--pods", type=Path, help="pod list of the trace")
    parser.add_argument("--seed", type=int, default=42, help="seed of the arrivals; published runs have 42 to 51")
    parser.add_argument("--mode", choices=("online", "batch"), default="online")
    parser.add_argument("--policy", help="how the product plans, such as 'fleetctl, 10 a plan'")
    parser.add_argument("--card-memory", action="store_true",
                        help="the memory of the cards is known, so that they are of several kinds")
    parser.add_argument("--load", type=float, default=1.0, help="GPU demand that arrives, as a part of the capacity")
    parser.add_argument("--no-peers", action="store_true", help="only ours")
    parser.add_argument("--ray-hosts", type=int, default=75,
                        help="run Ray's scheduler on a sample of about N hosts, as all take hours; 0 = skip it")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser.parse_args()


def _trace(nodes: Path | None, pods: Path | None, load: float) -> tuple[Trace, float | None]:
    """Return the trace and FGD's published result at this load."""
    folder = Path(os.environ[DATA]) / "openb" if os.environ.get(DATA) else None
    if nodes is None and folder is not None:
        nodes = folder / NODES
    if pods is None and folder is not None:
        pods = folder / "openb_pod_list_default.csv"
    if nodes is None or pods is None:
        print(f"no --nodes and --pods, and {DATA} is not set: using a synthetic cluster", file=sys.stderr)
        return synthetic_trace(), None
    return read_trace(nodes, pods), published_fgd(pods, load)


if __name__ == "__main__":
    main()
