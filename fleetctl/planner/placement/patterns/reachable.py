"""Everything one node can hold, by Ray's own rule: the patterns of a small problem, all of them.

Breadth first over what has been issued so far, since the order of issue decides on which card a share lands.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Card, Offer, take
from fleetctl.planner.placement.patterns.covering import Covering
from fleetctl.planner.placement.patterns.master import Pattern
from fleetctl.planner.placement.problem import NodeClass, Problem

STATES = 2_000
"""States of one node, and ALL_STATES of all classes together, that may be looked at."""
ALL_STATES = 24_000

MANY_ITEMS = 40
"""Beyond so many items on one class of nodes the patterns are never few."""

Counts = tuple[int, ...]
Key = tuple[tuple[Card, ...], int, int, int]


def all_patterns(problem: Problem, covering: Covering, wanted: Sequence[int]) -> list[tuple[int, Pattern]] | None:
    """Return every pattern of every class of nodes; None when they are too many."""
    left = ALL_STATES
    columns: list[tuple[int, Pattern]] = []
    for number, node in enumerate(problem.nodes):
        items = [item for item in covering.allowed(node) if wanted[item] > 0]
        if len(items) > MANY_ITEMS:
            return None
        claims = [problem.kinds[covering.items[item].kind][0] for item in items]
        reached = _reach(node.offer, claims, _Room(problem, covering, node, items, wanted), min(STATES, left))
        if reached is None:
            return None
        left -= len(reached)
        columns += [(number, tuple((item, count) for item, count in zip(items, counts, strict=True) if count))
                    for counts in sorted(reached) if any(counts)]
    return columns


class _Room:
    """How many members of each item, and of each rule, a node may hold."""

    def __init__(
        self, problem: Problem, covering: Covering, node: NodeClass, items: Sequence[int], wanted: Sequence[int]
    ) -> None:
        self.wanted = [int(wanted[item]) for item in items]
        rules = [covering.items[item].rule for item in items]
        self.groups = [([place for place, one in enumerate(rules) if one == rule], covering.limit(rule, problem, node))
                       for rule in sorted(set(rules)) if rule >= 0]

    def holds(self, counts: Counts, place: int) -> bool:
        """Tell whether `counts`, one more at `place`, are within the rules."""
        return counts[place] <= self.wanted[place] and all(
            sum(counts[other] for other in places) <= limit for places, limit in self.groups if place in places)


def _reach(offer: Offer, claims: Sequence[Claim], room: _Room, most: int) -> set[Counts] | None:
    start = tuple(0 for _ in claims)
    seen: set[tuple[Counts, Key]] = {(start, _key(offer))}
    front: list[tuple[Counts, Offer]] = [(start, offer)]
    while front:
        following: list[tuple[Counts, Offer]] = []
        for counts, at in front:
            for place, claim in enumerate(claims):
                more = (*counts[:place], counts[place] + 1, *counts[place + 1:])
                taken = take(at, claim) if room.holds(more, place) else None
                if taken is not None and (state := (more, _key(taken.left))) not in seen:
                    seen.add(state)
                    following.append((more, taken.left))
            if len(seen) > most:
                return None
        front = following
    return {counts for counts, _ in seen}


def _key(offer: Offer) -> Key:
    return offer.cards, offer.free_gpus, offer.free_cpus, offer.free_memory
