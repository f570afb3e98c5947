"""What a placement model distinguishes: pools of nodes, and the owners of the members that a column counts.

Also everything that the cards of one node can hold, by Ray's rule. If members claim memory on a part of a card, or
something foreign uses a card, Ray's blind choice, and with it the order of creation, decides what fits. So all orders
are tried, breadth first. Equal nodes are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fleetctl.documents.quantity import grouped
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard, take
from fleetctl.planner.placement.problem import DemandClass, Domains
from fleetctl.planner.placement.realize import ANY
from fleetctl.planner.placement.tally import Flags, Ints, Tally

STATES, ALL_STATES = 20_000, 100_000
"""The most states visited, for one node and for all nodes together.

All of them take 3 s. With 2,000 and 24,000 two of 28 fleets of the family `blind` had no proof, and one of them 17
replicas at the lowest priority instead of 21.
"""
Counts = tuple[int, ...]
"""The number of members on a node, by claim."""


class Grain(IntEnum):
    """How finely a model distinguishes nodes: a finer model is tighter and larger."""

    NODES = 0
    """Each node by itself: exactly what fits satisfies the rows."""
    ALIKE = 1
    """Nodes that allow the same kinds of member in the same domains."""
    ANYWHERE = 2
    """Nodes that allow the same kinds; a gang bound to a domain may be split over domains."""


@dataclass(frozen=True, eq=False)
class NodePool:
    """Nodes that a model does not distinguish, by node class (`rows` of the tally)."""

    rows: Ints
    counts: Ints
    """The number of nodes by row."""
    node: int | None
    """The number of the node if it is the only one."""
    kinds: frozenset[int]
    domains: Domains
    first: int
    """One of its nodes. Where prices decide between variants, all have the same."""

    def domain(self, label: str) -> str | None:
        """Return the value of a domain label on these nodes; None = in no domain."""
        return dict(self.domains).get(label)


def pool_nodes(tally: Tally, grain: Grain) -> tuple[NodePool, ...]:
    """Return the pools of nodes that a model of this grain does not distinguish."""
    flags = np.array([tally.usable(kind) for kind in range(len(tally.problem.kinds))], dtype=bool)
    flags = flags.reshape(len(tally.problem.kinds), len(tally.nodes))
    packed = np.packbits(flags, axis=0).T
    together: dict[object, list[tuple[int, tuple[int, ...]]]] = {}
    prices = tally.problem.ledger.prices
    for row, node in enumerate(tally.problem.nodes):
        alike = packed[row].tobytes(), node.domains if grain < Grain.ANYWHERE else ()
        if grain == Grain.NODES:
            together.update({index: [(row, (index,))] for index in node.nodes})
        elif prices is None:
            together.setdefault(alike, []).append((row, node.nodes))
        else:
            for tariff, indices in grouped((prices.of_node[index], index) for index in node.nodes).items():
                together.setdefault((alike, tariff), []).append((row, tuple(indices)))
    return tuple(_pool(parts, flags, tally, grain) for parts in together.values())


def _pool(parts: Sequence[tuple[int, tuple[int, ...]]], flags: Flags, tally: Tally, grain: Grain) -> NodePool:
    first, indices = parts[0]
    domains = tally.problem.nodes[first].domains if grain < Grain.ANYWHERE else ()
    counts = np.array([len(some) for _, some in parts], dtype=np.int64)
    rows = np.array([row for row, _ in parts], dtype=np.int64)
    return NodePool(rows, counts, indices[0] if counts.sum() == 1 else None,
                    frozenset(np.flatnonzero(flags[:, first]).tolist()), domains, indices[0])


class Owner(NamedTuple):
    """The owner of a column's members: one gang of one class of demand, by number, or SHARED or PRICED."""

    demand: int
    gang: int
    replica: int = ANY
    """The replica, if replicas are distinguished."""


SHARED, PRICED = Owner(-1, -1), Owner(-2, -1)
"""All classes together without columns of their own: those whose prices do not count, and those whose prices do."""


class Made(NamedTuple):
    """The number of gangs: `gangs` for each unit of a column, at most `maximum` in total."""

    column: int
    gangs: int
    maximum: int


class MemberColumn(NamedTuple):
    """What a column of members counts: their owner, and the numbers of their kind and pool."""

    owner: Owner
    kind: int
    pool: int


def needs_replicas(demand: DemandClass, tally: Tally) -> bool:
    """Return whether the model must distinguish replicas, as slots or a spread's limit count replicas, not members.

    For a single gang whose ranks are on different nodes, both counts are equal.
    """
    slots = tally.slots(demand)
    if demand.shape.size == 1 or slots is None or int(slots.min(initial=demand.model_missing)) >= demand.model_missing:
        return False
    first = demand.gangs[0]
    return demand.value_limit is not None or len(demand.gangs) > 1 or (first.copies, first.per_node) != (1, 1)


def shares_slots(demand: DemandClass, tally: Tally) -> bool:
    """Return whether a variant may lack slots that other variants of its model hold."""
    slots = tally.slots(demand) if demand.is_variant else None
    return slots is not None and int(slots.min(initial=demand.model_missing)) < demand.model_missing


class Holdings:
    """What nodes can hold, for one linear model; cached by offer."""

    def __init__(self) -> None:
        self._left = ALL_STATES
        self._known: dict[tuple[Offer, tuple[Claim, ...], Counts], list[Counts] | None] = {}

    def of(self, offer: Offer, claims: Sequence[Claim], limits: Sequence[int]) -> list[Counts] | None:
        """Return the maximal multisets of claims, at most `limits` of each, that some order of creation places.

        None if there are too many states to try.
        """
        key = offer, tuple(claims), tuple(limits)
        if key not in self._known:
            reached = _reachable(offer, claims, limits, min(STATES, self._left))
            self._left -= STATES if reached is None else len(reached)
            self._known[key] = None if reached is None else _maximal(reached)
        return self._known[key]


def picks_blindly(offer: Offer, claims: Sequence[Claim]) -> bool:
    """Return whether Ray's choice of card may matter: shares with memory, or shares beside a dirty card."""
    shares = any(claim.wants_card and not claim.whole_cards for claim in claims)
    in_use = any(card.dirty and card.free_share for card in offer.cards)
    return shares and (in_use or any(claim.vram for claim in claims))


def _reachable(offer: Offer, claims: Sequence[Claim], limits: Sequence[int], states: int) -> set[Counts] | None:
    """Return all counts that some order of creation reaches; None beyond this number of `states`."""
    start = tuple(0 for _ in claims)
    seen: set[tuple[Counts, tuple[OfferedCard, ...]]] = {(start, offer.cards)}
    front: list[tuple[Counts, Offer]] = [(start, offer)]
    while front:
        following: list[tuple[Counts, Offer]] = []
        for counts, left in front:
            for index, claim in enumerate(claims):
                taken = take(left, claim) if counts[index] < limits[index] else None
                if taken is None:
                    continue
                more = (*counts[:index], counts[index] + 1, *counts[index + 1:])
                if (more, taken.left.cards) not in seen:
                    seen.add((more, taken.left.cards))
                    following.append((more, taken.left))
            if len(seen) > states:
                return None
        front = following
    return {counts for counts, _ in seen}


def _maximal(reached: set[Counts]) -> list[Counts]:
    """Return the counts that no others contain."""
    kept: list[Counts] = []
    for counts in sorted(reached, key=lambda counts: (-sum(counts), counts)):
        if not any(all(a <= b for a, b in zip(counts, other, strict=True)) for other in kept):
            kept.append(counts)
    return kept
