"""One policy on one trace with one seed: place, check and report as one flat JSON object."""

from __future__ import annotations

import csv
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text
from tests.benchmarks.peers.arena import Policy, run
from tests.benchmarks.peers.fgd import Fgd
from tests.benchmarks.peers.ray_scheduler import ray_scheduler
from tests.benchmarks.peers.scores import AnyFit, FirstFit, MostAllocated, VolcanoBinpack
from tests.benchmarks.placement import ours
from tests.benchmarks.placement.check import TaskPlacement, gpu_alloc_pct, needlessly_refused, violations
from tests.benchmarks.placement.trace import Task, Trace

RAY = "ray-autoscaler-v2"
OURS = "fleetctl"
MERGES = {f"{OURS}, {size} a plan" + (", demand known" if known else ""): (size, known)
          for known in (False, True) for size in (1, 10, 100)}
"""By name: the number of tasks per plan, and whether the file has the total demand from the start."""
PEERS: dict[str, Callable[[Trace], Policy]] = {
    "random": lambda _: AnyFit(),
    "first-fit": lambda _: FirstFit(),
    "kubernetes-most-allocated": lambda _: MostAllocated(),
    "volcano-binpack": lambda _: VolcanoBinpack(),
    "fgd": lambda trace: Fgd.of(trace.tasks),
}


@dataclass(frozen=True, slots=True)
class Run:
    """A trace with the seed, mode and load of one run."""

    trace: Trace
    seed: int
    mode: str
    load: float

    def arrivals(self) -> list[Task]:
        """Return the tasks in order of arrival; peers get this order in both modes, as sorted tasks suit them worse."""
        return self.trace.arrivals(self.seed, self.load)


def peer_names(mode: str) -> list[str]:
    """Return the peers; Ray's scheduler gets all tasks at once, so it is compared in batch mode."""
    return [*PEERS, RAY] if mode == "batch" else list(PEERS)


def our_names(mode: str) -> list[str]:
    """Return the names of the product's policies in a mode."""
    return [OURS] if mode == "batch" else list(MERGES)


def measure(name: str, what: Run, ray_hosts: int = 75) -> dict[str, Any]:
    """Place the tasks of a run with one policy and return the measurements."""
    if name == RAY:
        return _ray(what, ray_hosts)
    arrivals = what.arrivals()
    began, busy = time.perf_counter(), time.process_time()
    handled, answers = _place(name, what, arrivals)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    line = _line(name, what, arrivals, [placement for placement in answers if placement is not None], seconds)
    line["cpuSeconds"] = round(busy, 3)
    if what.mode == "online":
        line["needlesslyRefused"] = needlessly_refused(what.trace.hosts, handled, answers)
    return line


def _place(name: str, what: Run, arrivals: Sequence[Task]) -> tuple[Sequence[Task], Sequence[TaskPlacement | None]]:
    """Return the tasks in the order of placement, and the placement of each."""
    if name in PEERS:
        return arrivals, run(PEERS[name](what.trace), what.trace.hosts, arrivals, what.seed)
    if name == OURS:
        return arrivals, ours.batch(what.trace, arrivals)
    size, known = MERGES[name]
    answers = ours.merge_by_merge(what.trace, arrivals, size, known=known)
    return [task for task, _ in answers], [placement for _, placement in answers]


def _line(
    name: str, what: Run, arrivals: Sequence[Task], placements: Sequence[TaskPlacement], seconds: float
) -> dict[str, Any]:
    wrong = violations(what.trace.hosts, placements)
    return {
        "benchmark": "openb", "policy": name, "trace": what.trace.name, "mode": what.mode, "load": what.load,
        "seed": what.seed, "gpuAllocPct": round(gpu_alloc_pct(what.trace.hosts, placements), 4),
        "tasksArrived": len(arrivals), "tasksPlaced": len(placements),
        "cpuOnlyArrived": sum(not task.cards for task in arrivals),
        "cpuOnlyPlaced": sum(not placement.task.cards for placement in placements),
        "seconds": round(seconds, 3), "violations": len(wrong), **({"example": wrong[0]} if wrong else {}),
    }


def _ray(what: Run, hosts: int) -> dict[str, Any]:
    """Measure Ray's scheduler on every n-th host, and ours on the same sample."""
    every = max(1, len(what.trace.hosts) // hosts) if hosts else 0
    if not every:
        return {"benchmark": "openb", "policy": RAY, "trace": what.trace.name, "mode": what.mode, "violations": 0,
                "note": "skipped"}
    sample = Run(Trace(what.trace.name, what.trace.hosts[::every], what.trace.tasks), what.seed, what.mode, what.load)
    arrivals = sample.arrivals()
    began = time.perf_counter()
    promised = ray_scheduler(sample.trace.hosts, arrivals)
    seconds = time.perf_counter() - began
    own = measure(OURS, sample)
    return {
        **_line(RAY, sample, arrivals, promised.placements, seconds),
        "sampledHosts": len(sample.trace.hosts),
        "promisedPct": round(100 * sum(task.gpu_milli for task in promised.tasks) / sample.trace.capacity, 4),
        "fleetctlGpuAllocPct": own["gpuAllocPct"], "fleetctlSeconds": own["seconds"],
        "note": f"every {every}th host; promisedPct counts GPUs per node as Ray does, gpuAllocPct what its cards hold",
    }


def published_fgd(pods: Path, load: float) -> float | None:
    """Return the GPU allocation in percent published by FGD's authors, if the table is beside the trace."""
    table = pods.parent / "published_allocation.csv"
    if not table.exists():
        return None
    with table.open() as text:
        for row in csv.DictReader(text):
            if (row["workload"], row["policy"]) == (pods.stem, "06-FGD") and float(row["arrived_pct"]) == 100 * load:
                return float(row["gpu_alloc_pct_mean"])
    return None


def about_machine() -> dict[str, Any]:
    """Return the machine and the versions of a measurement."""
    return {
        "machine": machine_text(),
        "versions": {"fleetctl": __version__, "python": platform.python_version(),
                     **{name: version(name) for name in ("numpy", "scipy", "ray")}},
    }
