"""Placement as a linear model in whole numbers: over pools of nodes a bound, node by node what fits and how.

Over pools, rows say how many members all nodes of a pool can hold, never below the truth. For whole cards whose sizes
divide one another the rows for groups of s cards are exact (Coffman, Garey and Johnson, "Bin packing with divisible
item sizes", 1987): an item of L cards takes L / s of the groups of s cards, wherever it is. For all other sizes
they are still valid, since floor(a / s) + floor(b / s) <= floor((a + b) / s).

Domains are distinguished while the model stays small; in a larger one a domain-bound gang may be split over them, which
only makes the bound weaker.
"""

from __future__ import annotations

from fleetctl.planner.placement.exact.columns import Grain, Pool, limits_values, needs_replicas, pool_nodes
from fleetctl.planner.placement.exact.model_rows import Relaxation
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.tally import Tally

MAX_COLUMNS = 40_000
MAX_BY_NODE = 3_000
"""Columns of members up to which every node is distinguished.

Measured on fleets short of CPU: 300 nodes and 6 kinds take 3 s of the processor, 600 nodes 8 to 24 s, where patterns
find the same plan in 2 s and only the proof is missing.
"""


def relax(problem: Problem) -> Relaxation:
    """State the relaxation of a problem over nodes that are alike. O(demand classes x node classes) work, in NumPy.

    Where telling domains apart would make it too large, it leaves them out.
    """
    tally = Tally(problem)
    pools = _pools(tally, Grain.ALIKE) or pool_nodes(tally, Grain.ANYWHERE)
    return Relaxation(tally, pools)


def relax_by_node(coarse: Relaxation) -> Relaxation | None:
    """State the same problem node by node; None where it would be too large.

    Where telling replicas apart would make it so, that is left out.
    """
    for by_replica in (True, False):
        pools = _pools(coarse.tally, Grain.NODES, by_replica=by_replica)
        if pools is not None:
            return Relaxation(coarse.tally, pools, by_replica=by_replica)
    return None


def _pools(tally: Tally, grain: Grain, *, by_replica: bool = False) -> tuple[Pool, ...] | None:
    """Return the pools of a grain; None where the columns of members would be too many."""
    by_node = grain == Grain.NODES
    limit = MAX_BY_NODE if by_node else MAX_COLUMNS
    if by_node and int(tally.nodes.sum()) > limit:
        return None
    pools = pool_nodes(tally, grain)
    columns = sum(len(pool.kinds) for pool in pools)
    for demand in tally.problem.demands:
        told_apart = demand.missing if by_replica and needs_replicas(demand, tally) else 1
        columns += told_apart * len(pools) * sum(
            len(gang.parts) for gang in demand.gangs
            if gang.domain_label or (gang.size > 1 and by_node) or limits_values(demand))
    return pools if columns <= limit else None
