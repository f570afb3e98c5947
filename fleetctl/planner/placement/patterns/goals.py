"""One stage of the lexicographic objective as one number: what a replica of each class of demand is worth.

Priorities are taken one after another. What the ones above have reached must be reached again, and is worth more than
anything a node could give instead: the next higher ones may reach it by other replicas, those further up by the same.
A first replica of the priority in question is worth a whole node on top of its GPU share; what stands below is worth
next to nothing, so that ties fall in its favour.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.patterns.master import Worth
from fleetctl.planner.placement.problem import Problem

REPLICA = 1e-2
"""What a replica is worth beside its GPU share, in cards.

Measured with `scale --kind vram --nodes 500 --replicas 2500`, where every GPU share finds a place: 2,410 replicas with
1e-4, all 2,500 with 1e-2. On the traces neither changes more than 0.003 points.
"""
BELOW = 1e-5
EXCHANGED = 2
"""So many priorities above the one in question may reach what they have by other replicas."""


def stage_worth(problem: Problem, priority: int, reached: Sequence[int]) -> Worth:
    """Return the worth of replicas while one priority is maximised; `reached` = replicas placed of those above it."""
    yard = float(max((node.offer.free_gpus for node in problem.nodes), default=0)) / SHARE + 1
    ranks = problem.priorities
    first, further, most_first, most_further = [], [], [], []
    scale = 0.0
    for demand, have in zip(problem.demands, reached, strict=True):
        size = sum(gang.size * gang.copies for gang in demand.gangs)
        own = demand.gpu_units / SHARE + REPLICA
        above = sum(priority < other <= demand.priority for other in ranks)
        top = demand.missing
        if above and (have == top or above > EXCHANGED or not demand.gpu_units):
            top = have
            values = (2 * yard) ** min(above, EXCHANGED) * size, (2 * yard) ** min(above, EXCHANGED) * size
        elif above:
            values = (2 * yard) ** above * (own + yard * size), (2 * yard) ** above * own
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
