"""Buckets of equal nodes, kept up to date while a plan is made: equal offer, same matching selectors, same area.

10,000 nodes form a few hundred buckets, most of them full. Candidates are sought among buckets. A node that changes its
bucket costs one dictionary lookup.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetctl.planner.placement.arrays import Flags
from fleetctl.planner.placement.claims import Selector
from fleetctl.planner.placement.ledger.ledger import Ledger

NO_BUCKET = -1


def nodes_by_selector(ledger: Ledger, selectors: Sequence[Selector]) -> Flags:
    """Return which open nodes each selector allows; shape (nodes, selectors)."""
    matches = np.zeros((len(ledger.nodes), len(selectors)), dtype=bool)
    for column, selector in enumerate(selectors):
        matches[list(ledger.selected(selector)), column] = True
    return matches


@dataclass(slots=True)
class Buckets:
    """The open nodes of a ledger by bucket; `areas` = by node, another number that distinguishes nodes, or None."""

    ledger: Ledger
    areas: Sequence[int] | None = None
    filled: list[int] = field(default_factory=list)
    """Each bucket that got its first node, in order; readers keep a cursor into it."""
    non_empty: set[int] = field(default_factory=set)
    """The buckets with at least one node."""
    number: list[int] = field(default_factory=list)
    """By bucket: the number of its offer."""
    area: list[int] = field(default_factory=list)
    """By bucket: the area of its nodes."""
    age: int = 0
    """How many times all nodes were sorted into new buckets; readers start over when it changes."""
    _selectors: dict[Selector, frozenset[int]] = field(default_factory=dict)
    """By selector: the tags it allows. Nodes with one tag match the same selectors and are in one area."""
    _tag_of: list[int] = field(default_factory=list)
    _area_of_tag: list[int] = field(default_factory=list)
    _tags: list[int] = field(default_factory=list)
    """By bucket: the tag of its nodes."""
    _ids: dict[tuple[int, int], int] = field(default_factory=dict)
    _nodes: list[list[int]] = field(default_factory=list)
    """By bucket: its nodes, negated and ascending, possibly with nodes that have left."""
    _count: list[int] = field(default_factory=list)
    _bucket_of: list[int] = field(default_factory=list)
    _cursor: int = 0

    def expect(self, selectors: Sequence[Selector]) -> None:
        """Also distinguish nodes by these selectors."""
        new = set(selectors).difference(self._selectors)
        if new or not self._bucket_of:
            self._sort_nodes(sorted({*self._selectors, *new}))

    def follow(self) -> None:
        """Catch up with the ledger."""
        changes, numbers = self.ledger.changes, self.ledger.numbers
        if self._cursor == len(changes):
            return
        recent = changes[self._cursor:] if self._cursor + 1 == len(changes) else set(changes[self._cursor:])
        for node in recent:
            tag, before = self._tag_of[node], self._bucket_of[node]
            if tag == NO_BUCKET or self.number[before] == numbers[node]:
                continue
            self._count[before] -= 1
            if not self._count[before]:
                self.non_empty.discard(before)
            self._enter(node, tag, numbers[node])
        self._cursor = len(changes)

    def allows(self, selector: Selector, bucket: int) -> bool:
        """Return whether a selector allows the nodes of a bucket."""
        return self._tags[bucket] in self._selectors[selector]

    def count(self, bucket: int) -> int:
        """Return the present number of nodes in a bucket."""
        return self._count[bucket]

    def nodes(self, bucket: int) -> Iterator[int]:
        """Yield the nodes of a bucket in ledger order, and drop the entries of nodes that have left."""
        entries = self._nodes[bucket]
        place = len(entries) - 1
        while place >= 0:
            node = -entries[place]
            if self._bucket_of[node] == bucket:
                yield node
            else:
                del entries[place]
            place -= 1

    def _enter(self, node: int, tag: int, number: int) -> None:
        bucket = self._ids.get((tag, number), NO_BUCKET)
        if bucket == NO_BUCKET:
            bucket = self._new_bucket(tag, number)
        self._bucket_of[node] = bucket
        self._count[bucket] += 1
        if self._count[bucket] == 1:
            self.non_empty.add(bucket)
            self.filled.append(bucket)
        entries = self._nodes[bucket]
        at = bisect_left(entries, -node)
        if at == len(entries) or entries[at] != -node:
            entries.insert(at, -node)

    def _new_bucket(self, tag: int, number: int) -> int:
        bucket = self._ids[tag, number] = len(self._nodes)
        self._tags.append(tag)
        self._nodes.append([])
        self._count.append(0)
        self.number.append(number)
        self.area.append(self._area_of_tag[tag])
        return bucket

    def _sort_nodes(self, selectors: list[Selector]) -> None:
        """Tag each open node by its matching selectors and its area, and sort all nodes into new buckets."""
        nodes = self.ledger.nodes
        matches = nodes_by_selector(self.ledger, selectors)
        packed = np.packbits(matches, axis=1)
        tags: dict[tuple[bytes, int], int] = {}
        first: list[int] = []
        self._tag_of = [NO_BUCKET] * len(nodes)
        for place, node in enumerate(nodes):
            if node.open:
                traits = packed[place].tobytes(), self.areas[place] if self.areas is not None else 0
                if traits not in tags:
                    tags[traits] = len(tags)
                    first.append(place)
                self._tag_of[place] = tags[traits]
        self._area_of_tag = [area for _, area in tags]
        self._selectors = {selector: frozenset(np.flatnonzero(matches[first, column]).tolist())
                           for column, selector in enumerate(selectors)}
        self.age += 1
        self.filled, self.non_empty, self.number, self.area, self._tags = [], set(), [], [], []
        self._ids, self._nodes, self._count = {}, [], []
        self._bucket_of = [NO_BUCKET] * len(nodes)
        for place in reversed(range(len(nodes))):
            if self._tag_of[place] != NO_BUCKET:
                self._enter(place, self._tag_of[place], self.ledger.numbers[place])
        self._cursor = len(self.ledger.changes)
