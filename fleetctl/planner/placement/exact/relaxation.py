"""Placement as a linear model in whole numbers: over pools of nodes a bound, node by node what fits and how.

Over pools, rows say how many members all nodes of a pool can hold, never below the truth. For whole cards whose sizes
divide one another the rows for groups of s cards are exact (Coffman, Garey and Johnson, "Bin packing with divisible
item sizes", 1987): an item of L cards takes L / s of the groups of s cards, wherever it is. For all other sizes
they are still valid, since floor(a / s) + floor(b / s) <= floor((a + b) / s).

Domains are distinguished while the model stays small; in a larger one a domain-bound gang may be split over them, which
only makes the bound weaker.
"""

from __future__ import annotations

from fleetctl.planner.placement.exact.columns import Grain, Pool, needs_replicas, pool_nodes
from fleetctl.planner.placement.exact.model_rows import Relaxation
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.tally import Tally

MAX_COLUMNS = 40_000
MAX_AT_ONCE, MAX_BY_NODE = 1_000, 3_000
"""Columns of members up to which every node is distinguished: at once, and where nothing else reaches the bound.

Measured on fleets short of CPU: 300 nodes and 6 kinds take 3 s of the processor, 600 nodes 8 to 24 s, where patterns
find the same plan in 2 s and only the proof is missing. 100 nodes filled to the last share (`planted`): the columns
take 1.2 s, and in three of the six fleets of eight that need more than one pass the other steps do without.
"""


def relax(problem: Problem) -> Relaxation:
    """State the relaxation of a problem over nodes that are alike. O(demand classes x node classes) work, in NumPy.

    Where telling domains apart would make it too large, it leaves them out.
    """
    tally = Tally(problem)
    pools, columns = _pools(tally, Grain.ALIKE)
    return Relaxation(tally, pools if columns <= MAX_COLUMNS else pool_nodes(tally, Grain.ANYWHERE))


def relax_by_node(coarse: Relaxation, limit: int = MAX_BY_NODE) -> Relaxation | None:
    """State the same problem node by node; None where it has more than `limit` columns of members.

    Where telling replicas apart would make it too large, that is left out.
    """
    if int(coarse.tally.nodes.sum()) > limit:
        return None
    for by_replica in (True, False):
        pools, columns = _pools(coarse.tally, Grain.NODES, by_replica=by_replica)
        if columns <= MAX_BY_NODE:
            return Relaxation(coarse.tally, pools, by_replica=by_replica) if columns <= limit else None
    return None


def _pools(tally: Tally, grain: Grain, *, by_replica: bool = False) -> tuple[tuple[Pool, ...], int]:
    """Return the pools of a grain, and the number of columns of members over them."""
    by_node, pools = grain == Grain.NODES, pool_nodes(tally, grain)
    columns = sum(len(pool.kinds) for pool in pools)
    for demand in tally.problem.demands:
        told_apart = demand.missing if by_replica and needs_replicas(demand, tally) else 1
        columns += told_apart * len(pools) * sum(
            len(gang.parts) for gang in demand.gangs
            if gang.domain_label or (gang.size > 1 and by_node) or demand.value_limit)
    return pools, columns
