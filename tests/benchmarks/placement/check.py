"""An independent check of a placement: every task on one allowed host, and no host over-committed.

Shares no code with the planner: it computes the use of cards from the reported placement of each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.benchmarks.placement.trace import Host, Task


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """One task on a host and its cards."""

    task: Task
    host: int
    cards: tuple[int, ...]


def violations(hosts: Sequence[Host], placements: Sequence[TaskPlacement]) -> list[str]:
    """Return the violations of a placement."""
    wrong: list[str] = []
    cpu, mib = [host.cpu_milli for host in hosts], [host.mib for host in hosts]
    cards = [[1000] * host.cards for host in hosts]
    for number, placement in enumerate(placements):
        host, task = hosts[placement.host], placement.task
        if task.models and host.model not in task.models:
            wrong.append(f"task {number} may not run on {host.model}")
        if len(set(placement.cards)) != task.cards:
            wrong.append(f"task {number} asks for {task.cards} cards and got {placement.cards}")
        cpu[placement.host] -= task.cpu_milli
        mib[placement.host] -= task.mib
        for card in placement.cards:
            cards[placement.host][card] -= task.milli
    for place, host in enumerate(hosts):
        if cpu[place] < 0 or mib[place] < 0 or min(cards[place], default=0) < 0:
            wrong.append(f"{host.name} is overcommitted: CPU {cpu[place]}, memory {mib[place]}, cards {cards[place]}")
    return wrong


def needlessly_refused(hosts: Sequence[Host], arrivals: Sequence[Task], answers: Sequence[TaskPlacement | None]) -> int:
    """Return how many tasks were refused although a host had room for them at that moment."""
    cpu, mib = [host.cpu_milli for host in hosts], [host.mib for host in hosts]
    cards = [[1000] * host.cards for host in hosts]
    refused = 0
    for task, answer in zip(arrivals, answers, strict=True):
        if answer is not None:
            cpu[answer.host] -= task.cpu_milli
            mib[answer.host] -= task.mib
            for card in answer.cards:
                cards[answer.host][card] -= task.milli
            continue
        refused += any(
            cpu[place] >= task.cpu_milli and mib[place] >= task.mib
            and sum(free >= task.milli for free in cards[place]) >= task.cards
            and (not task.models or host.model in task.models)
            for place, host in enumerate(hosts)
        )
    return refused


def gpu_alloc_pct(hosts: Sequence[Host], placements: Sequence[TaskPlacement]) -> float:
    """Return the granted share of all cards, in percent."""
    return 100 * sum(placement.task.gpu_milli for placement in placements) / (1000 * sum(host.cards for host in hosts))
