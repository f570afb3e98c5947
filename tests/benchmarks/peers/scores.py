"""Scores of widely used schedulers, each according to its documentation or source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.benchmarks.peers.arena import Choice, Hosts
from tests.benchmarks.placement.trace import Task


@dataclass(frozen=True, slots=True)
class FirstFit:
    """The first host in file order that holds the task, as in scripts and simple operators."""

    name: str = "first-fit"
    random_ties: bool = False

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """Score all hosts equally; the first one is taken."""
        return Choice(np.zeros(len(hosts.cpu)), hosts.tightest(task))


@dataclass(frozen=True, slots=True)
class AnyFit:
    """Any host that holds the task, drawn with a seed."""

    name: str = "random"
    random_ties: bool = True

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """Score all hosts equally; a random one is taken."""
        return Choice(np.zeros(len(hosts.cpu)), hosts.tightest(task))


@dataclass(frozen=True, slots=True)
class MostAllocated:
    """Kubernetes' NodeResourcesFit with MostAllocated: mean of the used fractions in whole percent; random ties."""

    name: str = "kubernetes-most-allocated"
    random_ties: bool = True

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """Weigh CPU and memory with 1, the default, and the GPU too."""
        used = _used_after(hosts, task)
        counted = np.array([task.gpu_milli > 0, True, True])
        score = np.floor((np.floor(100 * used) * counted).sum(axis=1) / counted.sum())
        return Choice(-score, hosts.tightest(task))


@dataclass(frozen=True, slots=True)
class VolcanoBinpack:
    """Volcano's binpack plugin: the used fraction of each claimed resource; GPU weight 10 as its docs advise."""

    name: str = "volcano-binpack"
    random_ties: bool = True
    gpu_weight: int = 10

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """Weigh CPU and memory with 1."""
        weights = np.array([self.gpu_weight * (task.gpu_milli > 0), task.cpu_milli > 0, task.mib > 0], np.float64)
        score = (_used_after(hosts, task) * weights).sum(axis=1) / max(1.0, weights.sum())
        return Choice(-np.round(100 * score, 6), hosts.tightest(task))


def _used_after(hosts: Hosts, task: Task) -> np.ndarray:
    """Return the used fractions of GPU, CPU and memory with the task placed, shape (hosts, 3)."""
    left = np.stack([hosts.gpu - task.gpu_milli, hosts.cpu - task.cpu_milli, hosts.mib - task.mib], axis=1)
    return 1 - left / np.maximum(hosts.most, 1)
