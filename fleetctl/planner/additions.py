"""How many nodes would help a blocked model: plans are made with nodes added, and the number told is what these need.

The reasons estimate a number for one model alone. A plan with the nodes also gives them to models that come first, and
places new replicas of lower priority elsewhere, so only a plan knows: with the number told it places the replica, with
one node less it does not. One trial answers for all models that would use the same nodes. Each is a plan, so their
number is bounded by the size of the fleet; what is not tried is marked as estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

from fleetctl.documents.inventory import Amounts, Gpu, Node, NodeResources
from fleetctl.documents.plan import Addition, Blocked
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.reasons.node_shapes import ANY_VALUE, empty

MOST_TRIALS, WORK = 20, 1_000
"""The most trials of one plan, and their work: each one's missing replicas, a quarter of its nodes, and the added ones.

That is 14 trials for ten nodes with 50 missing replicas, three for 1,000 nodes with a few, and none for 1,000 nodes
with a thousand, where each would take as long as the plan itself.
"""
DOUBLINGS = 4
"""How many times a number that is not enough is doubled."""
_Kind = tuple[str, str, tuple[tuple[str, str], ...], str]


@dataclass
class Additions:
    """The trials of one plan.

    `created` plans the fleet with more nodes and returns the new replicas by place of the model; `today` = those of
    the plan itself; `missing` = the replicas it lacks.
    """

    nodes: Sequence[Node]
    missing: int
    today: Counter[int]
    created: Callable[[Sequence[Node]], Counter[int]]
    _known: dict[tuple[tuple[_Kind, int], ...], Counter[int]] = field(default_factory=dict)
    _left: int = WORK

    def tried(self, blocked: Sequence[Blocked], models: Mapping[str, tuple[int, int]]) -> list[Blocked]:
        """Return the rows with the numbers that plans need; `models` = place and priority by key.

        Those for one replica are tried before those for all, higher priorities first.
        """
        rows = {row.model: row for row in blocked}
        told = [row.model for row in blocked if row.would_fit]
        told.sort(key=lambda key: (-models[key][1], models[key][0]))
        for step in (self._for_one, self._for_all):
            for key in told:
                rows[key] = step(rows[key], models[key][0])
        return list(rows.values())

    def _for_one(self, row: Blocked, place: int) -> Blocked:
        found = self._fewest(row.would_fit, [one.nodes for one in row.would_fit], place, 1)
        if found is None:
            return row.model_copy(update={"would_fit": []})
        counts, tried = found
        return row.model_copy(update={"would_fit": [
            one.model_copy(update={"nodes": nodes, "estimated": not tried, "nodes_for_all": max(
                nodes, one.nodes_for_all if row.replicas > 1 else 0)})
            for one, nodes in zip(row.would_fit, counts, strict=True)]})

    def _for_all(self, row: Blocked, place: int) -> Blocked:
        if row.replicas == 1 or not row.would_fit:
            return row
        start = [one.nodes_for_all for one in row.would_fit]
        found = self._fewest(row.would_fit, start, place, row.replicas)
        counts, tried = found if found is not None else ([0] * len(start), True)
        return row.model_copy(update={"would_fit": [
            one.model_copy(update={"nodes_for_all": nodes, "estimated_for_all": not tried})
            for one, nodes in zip(row.would_fit, counts, strict=True) if one.nodes or nodes]})

    def _fewest(
        self, parts: Sequence[Addition], start: Sequence[int], place: int, replicas: int
    ) -> tuple[list[int], bool] | None:
        """Return how many nodes of each part place `replicas` more, and whether that was tried; None if none is known.

        Tried = they do, and one node less does not.
        """
        counts, low = list(start), [0] * len(parts)
        for doubled in range(DOUBLINGS + 1):
            if (enough := self._enough(parts, counts, place, replicas)) is not False:
                break
            if doubled == DOUBLINGS:
                return None
            low = [counts[0] + 1] if len(parts) == 1 else low
            counts = [2 * one for one in counts]
        if enough is None:
            return counts, False
        for part in range(len(parts)):
            step = 1
            while counts[part] > low[part]:
                fewer = [*counts[:part], max(low[part], counts[part] - step), *counts[part + 1:]]
                if (enough := self._enough(parts, fewer, place, replicas)) is None:
                    return counts, False
                if enough:
                    counts, step = fewer, 2 * step
                else:
                    low[part] = fewer[part] + 1
                    step = max(1, (counts[part] - low[part] + 1) // 2)
        return counts, True

    def _enough(self, parts: Sequence[Addition], counts: Sequence[int], place: int, replicas: int) -> bool | None:
        """Return whether a plan with these nodes places `replicas` more; None if no more plans may be made."""
        if not any(counts):
            return False
        key = tuple((_kind(one), number) for one, number in zip(parts, counts, strict=True) if number)
        if key not in self._known:
            work = len(self.nodes) // 4 + self.missing + sum(counts)
            if work > self._left or len(self._known) == MOST_TRIALS:
                return None
            self._left -= work
            models = [_node(one, self.nodes) for one, number in zip(parts, counts, strict=True) for _ in range(number)]
            taken = {text for node in self.nodes for text in (node.id, node.name)}
            names = islice((name for number in count(1) if (name := f"new-{number}") not in taken), len(models))
            self._known[key] = self.created([empty(model, name) for model, name in zip(models, names, strict=True)])
        return self._known[key][place] - self.today[place] >= replicas


def _kind(one: Addition) -> _Kind:
    return one.like or "", one.shape, tuple(sorted(one.labels.items())), one.one_value_of or ""


def _node(one: Addition, nodes: Sequence[Node]) -> Node:
    """Return a node as the addition tells it: like an existing one, or with its amounts."""
    labels = {**one.labels, **({one.one_value_of: ANY_VALUE} if one.one_value_of else {})}
    like = next((node for node in nodes if node.name == one.like), None) if one.like else None
    if like is not None:
        return like.model_copy(update={"labels": {**like.labels, **labels}})
    cards = [Gpu(index=index, memory_total=one.vram) for index in range(one.gpus // SHARE)]
    total = Amounts(gpu=one.gpus / SHARE, cpu=one.cpus / SHARE, memory=one.memory)
    return Node(id="", name="", labels=labels, resources=NodeResources(total=total), gpus=cards)
