"""Fragmentation Gradient Descent, rewritten from its paper and the authors' scheduler (Weng et al., ATC 2023).

A host's fragment for a task of the target workload: all its free GPU if the task cannot run, otherwise the cards too
small for it. A task goes where the expected fragment grows least. Unlike the authors' scheduler, which rounds scores to
0..100 and draws among equals, this one takes the exact best and the first of equals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.benchmarks.peers.arena import Choice, Floats, Hosts, Ints
from tests.benchmarks.placement.trace import POPULAR, Task


@dataclass(frozen=True)
class Fgd:
    """FGD for one target workload: tasks without their memory, as in the authors' code, and their frequencies."""

    cards: Ints
    milli: Ints
    cpu: Ints
    models: tuple[tuple[str, ...], ...]
    part: Floats
    name: str = "fgd"
    random_ties: bool = False

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Fgd:
        """Return the policy for a trace; its target are the most popular shapes that cover 95 % of the tasks."""
        counts = Counter((task.cards, task.milli, task.cpu_milli, task.models) for task in tasks)
        popular = sorted(counts, key=lambda shape: (-counts[shape], shape))
        part = np.array([counts[shape] for shape in popular], np.float64)
        kept = int(np.searchsorted(part.cumsum(), POPULAR * len(tasks))) + 1
        cards, milli, cpu = (np.array([shape[column] for shape in popular[:kept]], np.int64) for column in range(3))
        return cls(cards, milli, cpu, tuple(shape[3] for shape in popular[:kept]), part[:kept] / part[:kept].sum())

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """Score by the growth of the expected fragment, over every card that a share could go to."""
        allowed = np.stack([np.isin(hosts.model, one) if one else np.ones(len(hosts.cpu), np.bool_)
                         for one in self.models], axis=1)
        before = self._fragment(hosts.cards, hosts.cpu, allowed)
        cpu = hosts.cpu - task.cpu_milli
        if task.cards == 1 and task.milli < 1000:
            return self._best_card(hosts, task, before, cpu, allowed)
        free = hosts.cards == 1000
        taken = free & (free.cumsum(axis=1) <= task.cards)
        after = self._fragment(np.where(taken, 0, hosts.cards), cpu, allowed)
        return Choice(np.round(after - before, 6), np.zeros(len(cpu), np.int64))

    def _best_card(
        self, hosts: Hosts, task: Task, before: Floats, cpu: Ints, allowed: npt.NDArray[np.bool_]
    ) -> Choice:
        scores = np.full(hosts.cards.shape, np.inf)
        for card in range(hosts.cards.shape[1]):
            rows = np.flatnonzero(hosts.cards[:, card] >= task.milli)
            cards = hosts.cards[rows]
            cards[:, card] -= task.milli
            scores[rows, card] = np.round(self._fragment(cards, cpu[rows], allowed[rows]) - before[rows], 6)
        return Choice(scores.min(axis=1), scores.argmin(axis=1))

    def _fragment(self, cards: Ints, cpu: Ints, allowed: npt.NDArray[np.bool_]) -> Floats:
        """Return the expected fragment of each host in thousandths of a card."""
        free = np.maximum(cards, 0)
        large = free[:, None, :] >= self.milli[:, None]
        total = free.sum(axis=1)[:, None]
        runs = allowed & (cpu[:, None] >= self.cpu) & (large.sum(axis=2) >= self.cards) & (self.cards > 0)
        small = (free[:, None, :] * ~large).sum(axis=2)
        expected: Floats = np.where(runs, small, total) @ self.part
        return expected
