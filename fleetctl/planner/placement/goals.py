"""One stage of the lexicographic objective as one number: what a replica of each class of demand is worth.

Priorities are taken one after another. What the ones above have reached must be reached again, and is worth more than
anything a node could give instead; a first replica of the priority in question is worth as much again on top of its
GPU share; what stands below is worth a thousandth, so that ties fall in its favour.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.master import Worth
from fleetctl.planner.placement.problem import DemandClass, Problem

Level = tuple[int, int, int]
"""Models newly served, GPU units placed, replicas placed."""

REPLICA = 1e-4
"""What a replica is worth beside its GPU share, in cards."""
BELOW = 1e-3


def priorities(problem: Problem) -> list[int]:
    """Return the priorities of a problem, high to low."""
    return sorted({demand.priority for demand in problem.demands}, reverse=True)


def levels(problem: Problem, replicas: Sequence[int]) -> list[Level]:
    """Return what so many replicas of each class of demand reach, priorities high to low."""
    reached = {priority: [0, 0, 0] for priority in priorities(problem)}
    for demand, count in zip(problem.demands, replicas, strict=True):
        level = reached[demand.priority]
        level[0] += min(count, demand.unserved)
        level[1] += count * demand.gpu_units
        level[2] += count
    return [(level[0], level[1], level[2]) for level in reached.values()]


def stage_worth(problem: Problem, priority: int, reached: Sequence[int]) -> Worth:
    """Return the worth of replicas while one priority is maximised; `reached` = replicas placed of those above it."""
    yard = float(max((node.offer.free_gpus for node in problem.nodes), default=0)) / SHARE + 1
    first, further, most_first, most_further = [], [], [], []
    scale = 0.0
    for demand, have in zip(problem.demands, reached, strict=True):
        size = sum(gang.size * gang.copies for gang in demand.gangs)
        own = demand.gpu_units / SHARE + REPLICA
        must = 2 * yard * size
        top = have if demand.priority > priority else demand.missing
        if demand.priority > priority:
            values = must, must
        elif demand.priority == priority:
            values = own + yard * size, own
            scale += own * demand.missing
        else:
            values = BELOW * (own + yard * size), BELOW * own
        served = min(top, demand.unserved)
        first.append(values[0])
        further.append(values[1])
        most_first.append(served)
        most_further.append(top - served)
    return Worth(np.array(first), np.array(further), np.array(most_first, np.int64), np.array(most_further, np.int64),
                 scale)


def all_placed(demand: DemandClass, count: int) -> bool:
    """Tell whether a class of demand has all it asks for."""
    return count >= demand.missing
