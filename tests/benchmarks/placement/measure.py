"""One policy on one trace with one seed: place, check, and report as one flat JSON object."""

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
from tests.benchmarks.placement.check import Stay, gpu_alloc_pct, needlessly_refused, violations
from tests.benchmarks.placement.trace import Task, Trace

RAY = "ray-autoscaler-v2"
OURS = "fleetctl"
MERGES = {f"{OURS}, {size} a plan" + (", demand known" if known else ""): (size, known)
          for known in (False, True) for size in (1, 10, 100)}
"""So many tasks a plan, and whether the file says from the start what it wants in all."""
PEERS: dict[str, Callable[[Trace], Policy]] = {
    "random": lambda _: AnyFit(),
    "first-fit": lambda _: FirstFit(),
    "kubernetes-most-allocated": lambda _: MostAllocated(),
    "volcano-binpack": lambda _: VolcanoBinpack(),
    "fgd": lambda trace: Fgd.of(trace.tasks),
}


@dataclass(frozen=True, slots=True)
class Run:
    """What is placed, and how."""

    trace: Trace
    seed: int
    mode: str
    load: float

    def arrivals(self) -> list[Task]:
        """Return the tasks in order of arrival; peers see them so in both modes: sorted ones suit them worse."""
        return self.trace.arrivals(self.seed, self.load)


def peer_names(mode: str) -> list[str]:
    """Return the peers; Ray's scheduler sees all tasks at once, so it stands beside the batch mode."""
    return [*PEERS, RAY] if mode == "batch" else list(PEERS)


def our_names(mode: str) -> list[str]:
    """Return the ways in which the product places the tasks of a run."""
    return [OURS] if mode == "batch" else list(MERGES)


def measure(name: str, what: Run, ray_hosts: int = 75) -> dict[str, Any]:
    """Let one policy place the tasks of a run, and return what it reached."""
    if name == RAY:
        return _ray(what, ray_hosts)
    arrivals = what.arrivals()
    began, busy = time.perf_counter(), time.process_time()
    asked, answers = _place(name, what, arrivals)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    line = _line(name, what, arrivals, [stay for stay in answers if stay is not None], seconds)
    line["cpuSeconds"] = round(busy, 3)
    if what.mode == "online":
        line["needlesslyRefused"] = needlessly_refused(what.trace.hosts, asked, answers)
    return line


def _place(name: str, what: Run, arrivals: Sequence[Task]) -> tuple[Sequence[Task], Sequence[Stay | None]]:
    """Return the tasks in the order in which they were dealt with, and what each got."""
    if name in PEERS:
        return arrivals, run(PEERS[name](what.trace), what.trace.hosts, arrivals, what.seed)
    if name == OURS:
        return arrivals, ours.batch(what.trace, arrivals)
    size, known = MERGES[name]
    answers = ours.merge_by_merge(what.trace, arrivals, size, known=known)
    return [task for task, _ in answers], [stay for _, stay in answers]


def _line(name: str, what: Run, arrivals: Sequence[Task], stays: Sequence[Stay], seconds: float) -> dict[str, Any]:
    wrong = violations(what.trace.hosts, stays)
    return {
        "benchmark": "openb", "policy": name, "trace": what.trace.name, "mode": what.mode, "load": what.load,
        "seed": what.seed, "gpuAllocPct": round(gpu_alloc_pct(what.trace.hosts, stays), 4),
        "tasksArrived": len(arrivals), "tasksPlaced": len(stays),
        "cpuOnlyArrived": sum(not task.cards for task in arrivals),
        "cpuOnlyPlaced": sum(not stay.task.cards for stay in stays),
        "seconds": round(seconds, 3), "violations": len(wrong), **({"example": wrong[0]} if wrong else {}),
    }


def _ray(what: Run, hosts: int) -> dict[str, Any]:
    """Ray's scheduler on every n-th host, and ours on the very same sample."""
    every = max(1, len(what.trace.hosts) // hosts) if hosts else 0
    if not every:
        return {"benchmark": "openb", "policy": RAY, "trace": what.trace.name, "mode": what.mode, "violations": 0,
                "note": "left out"}
    sample = Run(Trace(what.trace.name, what.trace.hosts[::every], what.trace.tasks), what.seed, what.mode, what.load)
    arrivals = sample.arrivals()
    began = time.perf_counter()
    promised = ray_scheduler(sample.trace.hosts, arrivals)
    seconds = time.perf_counter() - began
    own = measure(OURS, sample)
    return {
        **_line(RAY, sample, arrivals, promised.stays, seconds),
        "sampledHosts": len(sample.trace.hosts),
        "promisedPct": round(100 * sum(task.gpu_milli for task in promised.tasks) / sample.trace.capacity, 4),
        "fleetctlGpuAllocPct": own["gpuAllocPct"], "fleetctlSeconds": own["seconds"],
        "note": f"every {every}th host; promisedPct counts GPUs per node as Ray does, gpuAllocPct what its cards hold",
    }


def published_fgd(pods: Path, load: float) -> float | None:
    """Return the GPU allocation in percent that FGD's authors published for a trace and load, if it lies beside it."""
    table = pods.parent / "published_allocation.csv"
    if not table.exists():
        return None
    with table.open() as text:
        for row in csv.DictReader(text):
            if (row["workload"], row["policy"]) == (pods.stem, "06-FGD") and float(row["arrived_pct"]) == 100 * load:
                return float(row["gpu_alloc_pct_mean"])
    return None


def about_machine() -> dict[str, Any]:
    """Return what the figures were taken on."""
    return {
        "machine": machine_text(),
        "versions": {"fleetctl": __version__, "python": platform.python_version(),
                     **{name: version(name) for name in ("numpy", "scipy", "ray")}},
    }
