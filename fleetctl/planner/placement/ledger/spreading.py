"""Chooses nodes for a spread model: the least crowded value of its label, and there the best fit.

Only certainty about Ray's choice of cards comes first. Nodes are examined one after another, best fit first, and kept
by value, so that placing many replicas of one model examines each node about once, and most nodes never.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from heapq import heappop, heappush

from fleetctl.planner.placement.ledger.candidates import Allowed, Candidates, FitKey
from fleetctl.planner.placement.ledger.crowds import Crowd, Value

Count = Callable[[int], int]
"""Returns how many replicas of the model touch a node."""
Waiting = tuple[FitKey, int, int]
"""A fitting node: the fit, the replicas of the model that touch it, its number."""


@dataclass(frozen=True, slots=True)
class Crowding:
    """How crowded each value is for one replica; `mine` = the values that it already touches, at no cost."""

    crowd: Crowd
    value_of: Callable[[int], Value]
    values: int
    """The number of values."""
    apart: bool
    """Each node has a value of its own."""
    mine: Set[Value] = frozenset()

    def of(self, value: Value) -> int:
        """Return how crowded a value is; 0 = this replica already touches it."""
        return 0 if value in self.mine else 1 + self.crowd.get(value, 0)

    def at(self, node: int) -> int:
        """Return how crowded the value of a node is."""
        return self.of(self.value_of(node))

    @property
    def least(self) -> int:
        """A lower bound on how crowded any value is."""
        if self.mine:
            return 0
        return 1 if len(self.crowd) < self.values else 1 + min(self.crowd.values(), default=0)


class Spreading:
    """The fitting nodes of one kind of member, examined only as far as needed.

    Between two calls of `best`, nothing may change except what `placed` reports.
    """

    def __init__(self, candidates: Candidates, allowed: Allowed | None, count: Count, crowding: Crowding) -> None:
        self.candidates, self.allowed, self.count, self.crowding = candidates, allowed, count, crowding
        self._unexamined = candidates.in_order()
        self._next = next(self._unexamined, None)
        self._waiting: dict[Value, list[Waiting]] = {}
        """By value: a heap of the nodes examined."""
        self._first: list[tuple[int, int, FitKey, int, int]] = []
        """A heap of the best node of each value, with outdated entries: risk, crowd, fit, count, node."""
        self._least = crowding.least

    def best(self) -> int | None:
        """Return the best node; None if none fits."""
        fresh = False
        while True:
            top = self._top()
            if top is None and self._next is None:
                return None
            if top is not None and top[1] > self._least and not fresh:
                self._least, fresh = self.crowding.least, True
            if top is not None and self._comes_first(top):
                return top[4]
            self._examine_next()

    def placed(self, node: int) -> None:
        """Note that a replica was placed on `node`, the last best one."""
        value = self.crowding.value_of(node)
        heappop(self._waiting[value])
        fit = self.candidates.fits.on(node)
        if fit is not None:
            heappush(self._waiting[value], (fit, self.count(node), node))
        self._enter(value)

    def _comes_first(self, top: tuple[int, int, FitKey, int, int]) -> bool:
        """Return whether no unexamined node can be better."""
        if self._next is None:
            return True
        risk, crowd, fit, count, _ = top
        next_fit = self._next[0]
        return risk < next_fit[0] or (crowd <= self._least and (fit < next_fit or (fit == next_fit and not count)))

    def _examine_next(self) -> None:
        if self._next is None:
            return
        fit, node = self._next
        self._next = next(self._unexamined, None)
        if self.allowed is None or self.allowed(node):
            value = self.crowding.value_of(node)
            heap = self._waiting.setdefault(value, [])
            heappush(heap, (fit, self.count(node), node))
            if heap[0][2] == node:
                self._enter(value)

    def _enter(self, value: Value) -> None:
        heap = self._waiting[value]
        if heap:
            fit, count, node = heap[0]
            heappush(self._first, (fit[0], self.crowding.of(value), fit, count, node))

    def _top(self) -> tuple[int, int, FitKey, int, int] | None:
        """Return the best examined node, and drop entries that are outdated or no longer allowed."""
        while self._first:
            _, crowd, fit, count, node = top = self._first[0]
            value = self.crowding.value_of(node)
            heap = self._waiting[value]
            if not heap or heap[0] != (fit, count, node) or self.crowding.of(value) != crowd:
                heappop(self._first)
            elif self.allowed is not None and not self.allowed(node):
                heappop(self._first)
                heappop(heap)
                self._enter(value)
            else:
                return top
        return None
