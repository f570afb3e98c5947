"""Tries a remedy before it is suggested, on a small ledger with some offers changed or nodes added."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.ledger.ledger import NO_OFFERS, Ledger, LedgerNode, SpreadCounts
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.reasons.check import Code
from fleetctl.planner.placement.reasons.node_table import NodeTable

MAX_MEMBERS = 256
"""Larger replicas are not tried."""

Fresh = tuple[LedgerNode, Offer]
"""A node that does not exist yet, and its offer."""


def ledger_with(
    ledger: Ledger, places: Sequence[int], fresh: Sequence[Fresh], shapes: Iterable[ReplicaShape],
    offers: Mapping[int, Offer] = NO_OFFERS,
) -> Ledger:
    """Return a ledger for placing `shapes`: the nodes at `places`, some with other `offers`, and `fresh` nodes."""
    nodes = [*(ledger.nodes[place] for place in places), *(node for node, _ in fresh)]
    number_of = {place: number for number, place in enumerate(places)}
    spread = {shape.key: shape.spread.label for shape in shapes if shape.spread is not None}
    return Ledger.opened(
        nodes, [*(offers.get(place) or ledger.offer(place) for place in places), *(offer for _, offer in fresh)],
        lambda key: {number_of[place]: held for place, held in ledger.slots_of(key).items() if place in number_of},
        SpreadCounts(nodes, spread, _known={key: dict(ledger.crowd(key)) for key in spread}))


def count_placed(
    shape: ReplicaShape, table: NodeTable, places: Sequence[int], *, offers: Mapping[int, Offer] = NO_OFFERS,
    fresh: Sequence[Fresh] = (), replicas: int = 1,
) -> int:
    """Return how many of `replicas` fit on the nodes of `ledger_with`."""
    placer = Placer(ledger_with(table.ledger, places, fresh, [shape], offers))
    for placed in range(replicas):
        if placer.place(shape) is None:
            return placed
    return replicas


def fewest(
    most: Sequence[int], least: Sequence[int], enough: Callable[[Sequence[int]], bool], *, last_first: bool = False
) -> list[int]:
    """Return the fewest nodes of each kind that are `enough`, between `least` and `most`; `most` must be enough.

    Kinds are reduced one after another, the others staying at their present count.
    """
    counts = list(most)
    for at in reversed(range(len(counts))) if last_first else range(len(counts)):
        counts[at] = least[at] + bisect_left(range(least[at], counts[at]), True, key=lambda count: enough(
            [*counts[:at], count, *counts[at + 1:]]))
    return counts


def helpful_places(
    shape: ReplicaShape, table: NodeTable, beside: Sequence[int] = (), value: str | None = None
) -> list[int]:
    """Return `beside` and, for each kind of member, nodes that take one now; nodes of the domain `value` come first."""
    chosen = set(beside)
    inside = np.zeros(len(table), dtype=bool)
    if shape.same_label is not None and value is not None:
        inside = table.where(shape.same_label, lambda found: found == value)
    for group in shape.groups:
        for (claim, selector), count in group.classes().items():
            fitting = np.flatnonzero(table.checks(claim, selector, shape)["code"] == Code.FITS)
            first = fitting[np.argsort(~inside[fitting], kind="stable")]
            chosen.update(first[: max(64, 4 * count * group.copies)].tolist())
    return sorted(chosen)
