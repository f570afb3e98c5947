"""Tries a remedy before it is suggested: a small ledger of nodes that matter, some offers changed or nodes added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.ledger.crowds import Crowds
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.reasons.check import Code
from fleetctl.planner.placement.reasons.node_table import NodeTable

MAX_MEMBERS = 256
"""Replicas of more members are not tried."""

Fresh = tuple[LedgerNode, Offer]
"""A node that does not exist yet, and what it would offer."""


def count_placed(
    shape: ReplicaShape, table: NodeTable, places: Sequence[int], *, offers: Mapping[int, Offer] | None = None,
    fresh: Sequence[Fresh] = (), replicas: int = 1,
) -> int:
    """Return how many of `replicas` fit on the nodes at `places`, whose `offers` may differ, and on `fresh` ones."""
    ledger, offers = table.ledger, offers or {}
    nodes = [*(ledger.nodes[place] for place in places), *(node for node, _ in fresh)]
    trial = Ledger.opened(
        nodes, [*(offers.get(place) or ledger.offer(place) for place in places), *(offer for _, offer in fresh)],
        {(number, shape.key): ledger.slots(place, shape.key) for number, place in enumerate(places)},
        crowds=Crowds(nodes, {shape.key: shape.spread.label}, _known={shape.key: dict(ledger.crowd(shape.key))})
        if shape.spread is not None else None,
    )
    placer = Placer(trial)
    for placed in range(replicas):
        if placer.place(shape) is None:
            return placed
    return replicas


def helpful_places(
    shape: ReplicaShape, table: NodeTable, beside: Sequence[int] = (), value: str | None = None
) -> list[int]:
    """Return `beside` and, for each kind of member, nodes that take one now: those of the domain `value` first."""
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
