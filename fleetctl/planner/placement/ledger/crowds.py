"""Crowds: how many replicas of a model, running or new, touch each value of its spread label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.planner.placement.ledger.node import LedgerNode

Value = str | None
"""A value of a label; None = without the label."""
Crowd = dict[Value, int]
"""Replicas by value, without values that no replica touches."""
LiveNodes = Callable[[str], Iterable[Iterable[int]]]
"""Returns the nodes that each live replica of a model touches."""


@dataclass(slots=True)
class Crowds:
    """The crowds of the models with a spread; a model's live replicas are read on first use."""

    nodes: Sequence[LedgerNode]
    labels: Mapping[str, str] = field(default_factory=dict)
    """The spread label by model key; models without one are not counted."""
    live_nodes: LiveNodes = lambda _key: ()
    _known: dict[str, Crowd] = field(default_factory=dict)

    def of(self, key: str) -> Crowd:
        """Return the crowd of a model, which follows later changes; empty if it has no spread."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = {}
            for nodes in self.live_nodes(key) if key in self.labels else ():
                for value in self.values(key, nodes):
                    known[value] = known.get(value, 0) + 1
        return known

    def values(self, key: str, nodes: Iterable[int]) -> set[Value]:
        """Return the values that a replica on `nodes` touches."""
        label = self.labels[key]
        return {self.nodes[node].labels.get(label) for node in nodes}

    def put(self, key: str, value: Value, count: int) -> int:
        """Set the number of replicas that touch a value; returns the number before."""
        crowd = self.of(key)
        before = crowd.get(value, 0)
        if count:
            crowd[value] = count
        elif before:
            del crowd[value]
        return before

    def without(self, ended: Iterable[tuple[str, Iterable[int]]]) -> Crowds:
        """Return a copy without the `ended` replicas, each as (model, the nodes it touches)."""
        known = {key: dict(crowd) for key, crowd in self._known.items()}
        other = Crowds(self.nodes, self.labels, self.live_nodes, known)
        for key, nodes in ended:
            if key in other.labels:
                for value in other.values(key, nodes):
                    other.put(key, value, max(0, other.of(key).get(value, 0) - 1))
        return other
