"""The expected demand of a fleet: what it misses now, and more of what it runs, as much as the free room takes.

Future changes are unknown. What a fleet runs today is the best guess of what it needs tomorrow, like the popular shapes
in Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Kind, ReplicaShape

MOST_KINDS = 192
VRAM_ALONE = LEAST = SHARE // 4
"""The share of a card assumed for a member that claims VRAM alone, and the least weight of any member."""


class Expected(NamedTuple):
    """Replicas of one shape: how many are missing, and the target in total."""

    shape: ReplicaShape
    missing: int
    total: int


def expected_kinds(expected: Iterable[Expected], free_share: int) -> list[tuple[Kind, float]]:
    """Return the expected kinds of members with their counts, in an order that does not depend on the file.

    `free_share` = the free GPU share of all nodes in 1/10000. At most MOST_KINDS are returned, the heaviest.
    """
    missing, total = dict[Kind, float](), dict[Kind, float]()
    for shape, short, target in expected:
        for kind, count in shape.kinds.items():
            missing[kind] = missing.get(kind, 0.0) + short * count
            total[kind] = total.get(kind, 0.0) + target * count
    left = free_share - sum(_share(kind) * count for kind, count in missing.items())
    all_share = sum(_share(kind) * count for kind, count in total.items())
    more = max(0.0, left / all_share) if all_share else 0.0
    counts = {kind: missing[kind] + more * count for kind, count in total.items()}
    heaviest = sorted(counts, key=lambda kind: (-counts[kind] * max(_share(kind), LEAST), kind))[:MOST_KINDS]
    return [(kind, counts[kind]) for kind in sorted(heaviest) if counts[kind] > 0]


def _share(kind: Kind) -> int:
    claim, _ = kind
    return claim.gpus or (VRAM_ALONE if claim.vram else 0)
