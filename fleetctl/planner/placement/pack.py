"""The packer: which replicas to place, where, and in which order to create them.

Tiers, from cheap to dear, all serving one objective (objective.py). The greedy portfolio comes first; when it places
everything, or reaches the bound, that is the answer. The order of the result is the order of creation.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.greedy import pack_greedily, top_up
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.replica import Placer


def pack(demands: Sequence[Demand], placer: Placer) -> list[Placed]:
    """Place as much as fits, on the placer's ledger; the result is in order of creation."""
    wanted = [demand for demand in demands if demand.missing > 0]
    if not wanted:
        return []
    problem = state_problem(wanted, placer.ledger)
    placed = pack_greedily(problem, placer)
    if len(placed) < sum(demand.missing for demand in wanted):
        by_rank = [demand for one in problem.demands for demand in one.demands]
        top_up(by_rank, placed, placer)
    return placed
