"""An independent check of a placement: every task on one allowed host, and nothing on any host given out twice.

Knows nothing of the planner: it lays the tasks on cards by itself, from what was reported per task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.benchmarks.placement.trace import Host, Task


@dataclass(frozen=True, slots=True)
class Stay:
    """One task on one host, on these cards of it."""

    task: Task
    host: int
    cards: tuple[int, ...]


def violations(hosts: Sequence[Host], stays: Sequence[Stay]) -> list[str]:
    """Return what is wrong with a placement; an empty list when it holds."""
    wrong: list[str] = []
    cpu, mib = [host.cpu_milli for host in hosts], [host.mib for host in hosts]
    cards = [[1000] * host.cards for host in hosts]
    for number, stay in enumerate(stays):
        host, task = hosts[stay.host], stay.task
        if task.models and host.model not in task.models:
            wrong.append(f"task {number} may not run on {host.model}")
        if len(set(stay.cards)) != task.cards:
            wrong.append(f"task {number} asks for {task.cards} cards and got {stay.cards}")
        cpu[stay.host] -= task.cpu_milli
        mib[stay.host] -= task.mib
        for card in stay.cards:
            cards[stay.host][card] -= task.milli
    for place, host in enumerate(hosts):
        if cpu[place] < 0 or mib[place] < 0 or min(cards[place], default=0) < 0:
            wrong.append(f"{host.name} is overcommitted: CPU {cpu[place]}, memory {mib[place]}, cards {cards[place]}")
    return wrong


def needlessly_refused(hosts: Sequence[Host], arrivals: Sequence[Task], answers: Sequence[Stay | None]) -> int:
    """Return how many tasks were refused although a host could take them at that moment."""
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


def gpu_alloc_pct(hosts: Sequence[Host], stays: Sequence[Stay]) -> float:
    """Return the share of all cards that is given out, in percent."""
    return 100 * sum(stay.task.gpu_milli for stay in stays) / (1000 * sum(host.cards for host in hosts))
