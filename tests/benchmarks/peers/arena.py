"""Where peers choose nodes: free CPU, memory and cards of all hosts, and one loop over the arrivals.

Scores depend only on the host and the task, so they are cached per shape of task and renewed for changed hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tests.benchmarks.placement.check import TaskPlacement
from tests.benchmarks.placement.trace import Host, Task

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hosts:
    """Free thousandths of each card (-1 = no such card), CPU thousandths and MiB; one row per host."""

    cards: Ints
    cpu: Ints
    mib: Ints
    model: npt.NDArray[np.str_]
    most: Ints
    """The capacity: cards in thousandths, CPU thousandths, MiB; shape (hosts, 3)."""

    def rows(self, rows: Ints) -> Hosts:
        """Return some of the hosts, as a copy."""
        return Hosts(self.cards[rows], self.cpu[rows], self.mib[rows], self.model[rows], self.most[rows])

    @property
    def gpu(self) -> Ints:
        """Free thousandths of all cards of a host."""
        free: Ints = np.maximum(self.cards, 0).sum(axis=1)
        return free

    def fits(self, task: Task) -> npt.NDArray[np.bool_]:
        """Return which hosts have room for a task."""
        fits = (self.cpu >= task.cpu_milli) & (self.mib >= task.mib)
        if task.cards:
            fits &= (self.cards >= task.milli).sum(axis=1) >= task.cards
        if task.models:
            fits &= np.isin(self.model, task.models)
        return fits

    def tightest(self, task: Task) -> Ints:
        """Return the card for a share if the scheduler has no rule for cards: the fullest that holds it."""
        tight: Ints = np.where(self.cards >= task.milli, self.cards, 1001).argmin(axis=1)
        return tight


class Choice(NamedTuple):
    """Scores of hosts for one task (lower is better), and the card a share would go to."""

    scores: Floats
    card: Ints


class Policy(Protocol):
    """A scheduler's rule."""

    name: str
    random_ties: bool

    def choose(self, hosts: Hosts, task: Task) -> Choice:
        """Score hosts, all of which have room for the task."""


def opened(hosts: Sequence[Host]) -> Hosts:
    """Return empty hosts."""
    cards = np.full((len(hosts), max(host.cards for host in hosts)), -1, np.int64)
    for place, host in enumerate(hosts):
        cards[place, : host.cards] = 1000
    cpu, mib = (np.array(values, np.int64) for values in zip(*((h.cpu_milli, h.mib) for h in hosts), strict=True))
    most = np.stack([np.maximum(cards, 0).sum(axis=1), cpu, mib], axis=1)
    return Hosts(cards, cpu, mib, np.array([host.model for host in hosts]), most)


def run(policy: Policy, hosts: Sequence[Host], arrivals: Sequence[Task], seed: int) -> list[TaskPlacement | None]:
    """Place tasks one by one; return the placements in their order, None = refused."""
    now, random = opened(hosts), Random(seed)
    version = np.zeros(len(hosts), np.int64)
    known: dict[Task, tuple[Floats, Ints, Ints]] = {}
    answers: list[TaskPlacement | None] = []
    for task in arrivals:
        if task not in known:
            known[task] = np.full(len(hosts), np.inf), np.zeros(len(hosts), np.int64), np.full(len(hosts), -1)
        scores, card, scored = known[task]
        _renew(policy, now, task, scores, card, np.flatnonzero(scored != version))
        scored[:] = version
        place = _pick(scores, random, ties=policy.random_ties)
        if place is None:
            answers.append(None)
            continue
        cards = _cards(now, place, task, int(card[place]))
        now.cards[place, list(cards)] -= task.milli
        now.cpu[place] -= task.cpu_milli
        now.mib[place] -= task.mib
        version[place] += 1
        answers.append(TaskPlacement(task, place, cards))
    return answers


def _renew(policy: Policy, now: Hosts, task: Task, scores: Floats, card: Ints, stale: Ints) -> None:
    rows = now.rows(stale)
    fits = rows.fits(task)
    scores[stale[~fits]] = np.inf
    if fits.any():
        choice = policy.choose(rows.rows(np.flatnonzero(fits)), task)
        scores[stale[fits]], card[stale[fits]] = choice


def _pick(scores: Floats, random: Random, *, ties: bool) -> int | None:
    least = scores.min()
    if least == np.inf:
        return None
    return random.choice(np.flatnonzero(scores == least).tolist()) if ties else int(scores.argmin())


def _cards(now: Hosts, place: int, task: Task, card: int) -> tuple[int, ...]:
    if task.cards == 1 and task.milli < 1000:
        return (card,)
    return tuple(np.flatnonzero(now.cards[place] == 1000)[: task.cards].tolist())
