"""What is expected of a fleet: what it misses now, and more of what it is made of, as often as the free room takes it.

Nobody knows the next merge. What a fleet runs today is the best guess of what it asks for tomorrow, as the popular
shapes are in Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Kind, ReplicaShape

MOST_KINDS = 192
VRAM_ALONE = LEAST = SHARE // 4
"""The share of a card that a member counts for here which asks for memory of a card alone."""


class Expected(NamedTuple):
    """Replicas of one shape: how many are missing, and how many there are to be in all."""

    shape: ReplicaShape
    missing: int
    total: int


def expected_kinds(expected: Iterable[Expected], free_share: int) -> list[tuple[Kind, float]]:
    """Return the kinds of members that are expected and how many of each, in an order that no file can change.

    `free_share` = the free GPU share of all nodes in 1/10000. Of very many kinds the weightiest are returned.
    """
    missing, total = dict[Kind, float](), dict[Kind, float]()
    for shape, short, in_all in expected:
        for kind, count in shape.kinds.items():
            missing[kind] = missing.get(kind, 0.0) + short * count
            total[kind] = total.get(kind, 0.0) + in_all * count
    left = free_share - sum(_share(kind) * count for kind, count in missing.items())
    made_of = sum(_share(kind) * count for kind, count in total.items())
    more = max(0.0, left / made_of) if made_of else 0.0
    counts = {kind: missing[kind] + more * count for kind, count in total.items()}
    heaviest = sorted(counts, key=lambda kind: (-counts[kind] * max(_share(kind), LEAST), kind))[:MOST_KINDS]
    return [(kind, counts[kind]) for kind in sorted(heaviest) if counts[kind] > 0]


def _share(kind: Kind) -> int:
    claim, _ = kind
    return claim.gpus or (VRAM_ALONE if claim.vram else 0)
