"""All traces, both modes, several seeds: `python -m tests.benchmarks.placement.suite --seeds 42-51`.

One JSON line per trace, mode and policy, with mean and standard deviation over the seeds. Traces are those in
$FLEETCTL_BENCH_DATA/openb, or else only the synthetic one. The exit code is 1 if any placement breaks a rule.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.openb import DATA, NODES
from tests.benchmarks.placement.measure import Run, about_machine, measure, our_names, peer_names, published_fgd
from tests.benchmarks.placement.trace import Trace, read_trace, synthetic_trace

AVERAGED = ("gpuAllocPct", "seconds", "cpuSeconds", "promisedPct", "fleetctlGpuAllocPct", "fleetctlSeconds")


def main() -> None:
    """Run the suite."""
    flags = _flags()
    wrong = 0
    for trace, published in _traces(flags.traces):
        for mode in flags.modes:
            for name in flags.only or [*([] if flags.no_peers else peer_names(mode)), *our_names(mode)]:
                lines = [measure(name, Run(trace, seed, mode, flags.load)) for seed in flags.seeds]
                wrong += sum(line["violations"] + line.get("needlesslyRefused", 0) for line in lines)
                print(json.dumps(_summary(lines, flags.seeds, published)), flush=True)
    sys.exit(1 if wrong else 0)


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=_seeds, default=_seeds("42-44"), help="the published runs have 42-51")
    parser.add_argument("--modes", nargs="+", choices=("online", "batch"), default=["online", "batch"])
    parser.add_argument("--traces", nargs="*", help="default, gpushare100 ...; all by default")
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--only", nargs="*", help="only these policies, such as 'fleetctl, 10 a plan'")
    return parser.parse_args()


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def _traces(names: list[str] | None) -> Iterator[tuple[Trace, float | None]]:
    if not os.environ.get(DATA):
        print(f"{DATA} is not set: using a synthetic cluster instead of the traces", file=sys.stderr)
        yield synthetic_trace(), None
        return
    folder = Path(os.environ[DATA]) / "openb"
    for pods in sorted(folder.glob("openb_pod_list_*.csv")):
        if not names or pods.stem.removeprefix("openb_pod_list_") in names:
            yield read_trace(folder / NODES, pods), published_fgd(pods, 1.0)


def _summary(lines: list[dict[str, Any]], seeds: list[int], published: float | None) -> dict[str, Any]:
    first = lines[0]
    same = {name: first[name] for name in ("benchmark", "policy", "trace", "mode", "load")}
    over = {name: _mean_sd([line[name] for line in lines]) for name in AVERAGED if name in first}
    return {
        **same, "seeds": seeds, **over,
        **{name: sum(line[name] for line in lines) for name in ("cpuOnlyArrived", "cpuOnlyPlaced", "violations")},
        **({"publishedFgd": published} if published else {}),
        **({"note": first["note"]} if "note" in first else {}), **about_machine(),
    }


def _mean_sd(values: list[float]) -> dict[str, float]:
    return {"mean": round(statistics.mean(values), 4),
            "sd": round(statistics.stdev(values), 4) if len(values) > 1 else 0.0}


if __name__ == "__main__":
    main()
