"""Hosts and tasks of a trace, read from its CSV files or synthetic, and the order in which tasks arrive.

The protocol is that of FGD's published result tables (Weng et al., USENIX ATC 2023): tasks in the order of their names
are shuffled with a seed; while their GPU demand is below 1.3 times the capacity, tasks drawn at random from the trace
follow; if it is above, random ones are dropped. No task ends. `load` cuts the list when the demand so far reaches that
part of the capacity.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

OFFERED = 1.3
CARD_GIB = {"P100": 16, "T4": 16, "V100M16": 16, "A10": 24, "G2": 24, "V100M32": 32, "G3": 80}
"""The memory of a card by model; the trace hides what G2 and G3 are, so theirs are assumed."""
POPULAR = 0.95
"""The target workload: the most popular shapes that cover this part of the tasks."""


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One task: `cards` with `milli` thousandths of each; `models` = allowed card models, empty = all."""

    cards: int
    milli: int
    cpu_milli: int
    mib: int
    models: tuple[str, ...] = ()

    @property
    def gpu_milli(self) -> int:
        """Thousandths of a card in all."""
        return self.cards * self.milli


@dataclass(frozen=True, slots=True)
class Host:
    """One node."""

    name: str
    cpu_milli: int
    mib: int
    cards: int
    model: str
    card_gib: int = 0
    """The memory of each card; 0 = not known, as in the trace."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Hosts in file order, tasks in the order of their names."""

    name: str
    hosts: tuple[Host, ...]
    tasks: tuple[Task, ...]

    def with_card_memory(self) -> Trace:
        """Return the trace with the memory of each card, so that cards are of several kinds."""
        return replace(self, hosts=tuple(replace(host, card_gib=CARD_GIB.get(host.model, 0)) for host in self.hosts))

    @property
    def capacity(self) -> int:
        """Thousandths of a card in all."""
        return 1000 * sum(host.cards for host in self.hosts)

    def arrivals(self, seed: int, load: float) -> list[Task]:
        """Return the tasks that arrive until demand reaches `load` of the capacity."""
        random = Random(seed)
        order = list(self.tasks)
        random.shuffle(order)
        demand, goal = sum(task.gpu_milli for task in order), OFFERED * self.capacity
        while demand > goal:
            demand -= order.pop(random.randrange(len(order))).gpu_milli
        while demand < goal:
            order.append(self.tasks[random.randrange(len(self.tasks))])
            demand += order[-1].gpu_milli
        arrived, reached = [], 0
        for task in order:
            reached += task.gpu_milli
            if reached > load * self.capacity:
                break
            arrived.append(task)
        return arrived

    def target(self) -> dict[Task, float]:
        """Return the popular shapes, each with the number that together fill the cluster."""
        counts = Counter(self.tasks)
        popular: dict[Task, float] = {}
        covered = 0
        for task, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            if covered >= POPULAR * len(self.tasks):
                break
            popular[task] = count
            covered += count
        scale = self.capacity / max(1, sum(task.gpu_milli * count for task, count in popular.items()))
        return {task: count * scale for task, count in popular.items()}


def read_trace(nodes: Path, pods: Path) -> Trace:
    """Read the node list and the pod list of a trace in the format of Alibaba's cluster-trace-gpu-v2023."""
    with nodes.open() as text:
        hosts = tuple(Host(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
                      for row in csv.DictReader(text))
    with pods.open() as text:
        rows = sorted(csv.DictReader(text), key=lambda row: row["name"])
    return Trace(pods.stem, hosts, tuple(_task(row) for row in rows))


def _task(row: dict[str, str]) -> Task:
    cards = int(row["num_gpu"])
    models = tuple(sorted(model for model in (row.get("gpu_spec") or "").split("|") if model))
    return Task(cards, int(row["gpu_milli"]) if cards else 0, int(row["cpu_milli"]), int(row["memory_mib"]), models)


SYNTHETIC_HOSTS: Sequence[tuple[int, Host]] = (
    (20, Host("", 96_000, 393_216, 8, "big")), (14, Host("", 104_000, 524_288, 2, "roomy")),
    (6, Host("", 16_000, 122_880, 2, "lean")), (3, Host("", 64_000, 262_144, 8, "old")),
)
SYNTHETIC_TASKS: Sequence[tuple[int, Task]] = (
    (26, Task(1, 1000, 11_000, 49_152)), (8, Task(1, 1000, 3_000, 8_192)), (15, Task(1, 810, 3_000, 5_600)),
    (9, Task(1, 470, 8_000, 30_517)), (5, Task(1, 320, 4_000, 22_888)), (4, Task(1, 190, 2_000, 8_192)),
    (4, Task(1, 650, 12_000, 47_104)), (4, Task(1, 1000, 18_000, 64_512)), (3, Task(1, 1000, 8_000, 16_384, ("big",))),
    (2, Task(8, 1000, 80_000, 262_144)), (2, Task(2, 1000, 20_000, 65_536)), (1, Task(4, 1000, 40_000, 131_072)),
    (12, Task(0, 0, 12_500, 57_344)), (5, Task(0, 0, 32_000, 49_152)),
)


def synthetic_trace() -> Trace:
    """Return a small cluster and a realistic mix of tasks, used when no trace is available."""
    hosts = [Host(f"host-{kind}-{number:03}", host.cpu_milli, host.mib, host.cards, host.model)
             for kind, (count, host) in enumerate(SYNTHETIC_HOSTS) for number in range(4 * count)]
    tasks = [task for count, task in SYNTHETIC_TASKS for _ in range(12 * count)]
    return Trace("synthetic", tuple(hosts), tuple(tasks))
