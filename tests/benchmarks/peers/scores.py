"""Scores of schedulers in wide use, each as its own documentation or source gives it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.benchmarks.peers.arena import Choice, Hosts
from tests.benchmarks.placement.trace import Task


@dataclass(frozen=True, slots=True)
class FirstFit:
    """The first host in file order that holds the task, as scripts and simple operators do it."""

    name: str = "first-fit"
    random_ties: bool = False

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """All equal: the first one is taken."""
        return Choice(np.zeros(len(hosts.cpu)), hosts.tightest(task))


@dataclass(frozen=True, slots=True)
class AnyFit:
    """Any host that holds the task, drawn with a seed."""

    name: str = "random"
    random_ties: bool = True

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """All equal: one is drawn."""
        return Choice(np.zeros(len(hosts.cpu)), hosts.tightest(task))


@dataclass(frozen=True, slots=True)
class MostAllocated:
    """Kubernetes' NodeResourcesFit with MostAllocated: mean of the used parts, in whole percent; ties drawn."""

    name: str = "kubernetes-most-allocated"
    random_ties: bool = True

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """CPU and memory at weight 1, as by default, and the GPU beside them."""
        used = _used_after(hosts, task)
        asked = np.array([task.gpu_milli > 0, True, True])
        score = np.floor((np.floor(100 * used) * asked).sum(axis=1) / asked.sum())
        return Choice(-score, hosts.tightest(task))


@dataclass(frozen=True, slots=True)
class VolcanoBinpack:
    """Volcano's binpack plugin: the used part of each resource that the task asks for; GPU weight 10 as it advises."""

    name: str = "volcano-binpack"
    random_ties: bool = True
    gpu_weight: int = 10

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """CPU and memory at weight 1."""
        weights = np.array([self.gpu_weight * (task.gpu_milli > 0), task.cpu_milli > 0, task.mib > 0], np.float64)
        score = (_used_after(hosts, task) * weights).sum(axis=1) / max(1.0, weights.sum())
        return Choice(-np.round(100 * score, 6), hosts.tightest(task))


def _used_after(hosts: Hosts, task: Task) -> np.ndarray:
    """Return the parts of GPU, CPU and memory in use with the task there, shape (hosts, 3)."""
    left = np.stack([hosts.gpu - task.gpu_milli, hosts.cpu - task.cpu_milli, hosts.mib - task.mib], axis=1)
    return 1 - left / np.maximum(hosts.most, 1)
