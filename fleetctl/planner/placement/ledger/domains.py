"""The domains of one label: the nodes with each value and their free GPUs, kept up to date with the ledger."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.planner.placement.ledger.ledger import Ledger


@dataclass(frozen=True, eq=False, slots=True)
class Domain:
    """The nodes that share one value of a label."""

    value: str
    nodes: frozenset[int]


class Domains:
    """All domains of one label by value, with the free share of each. A node without the label is in no domain."""

    def __init__(self, ledger: Ledger, label: str) -> None:
        self.ledger = ledger
        values: dict[str, set[int]] = {}
        for place, node in enumerate(ledger.nodes):
            if label in node.labels:
                values.setdefault(node.labels[label], set()).add(place)
        self.by_value = {value: Domain(value, frozenset(nodes)) for value, nodes in sorted(values.items())}
        self._of = {place: domain for domain in self.by_value.values() for place in domain.nodes}
        self.values = len(self.by_value) + (len(self._of) < len(ledger.nodes))
        """The number of values; nodes without the label count as one more."""
        self._known = {place: ledger.offer(place).free_gpus for place in self._of}
        """By node: its free GPU share when it was last read."""
        self._free = {value: sum(self._known[place] for place in domain.nodes)
                      for value, domain in self.by_value.items()}
        self._order = sorted((free, value) for value, free in self._free.items())
        self._cursor = len(ledger.changes)

    def with_room(self, gpus: int, nodes: int) -> Iterator[Domain]:
        """Yield the domains with at least this many nodes and this free GPU share in total, least free share first."""
        self._follow()
        for _, value in self._order[bisect_left(self._order, (gpus, "")):]:
            if len(self.by_value[value].nodes) >= nodes:
                yield self.by_value[value]

    def _follow(self) -> None:
        for node in set(self.ledger.changes[self._cursor:]):
            free = self.ledger.offer(node).free_gpus
            if node in self._of and free != self._known[node]:
                value = self._of[node].value
                del self._order[bisect_left(self._order, (self._free[value], value))]
                self._free[value] += free - self._known[node]
                insort(self._order, (self._free[value], value))
                self._known[node] = free
        self._cursor = len(self.ledger.changes)
