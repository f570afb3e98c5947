"""The packer: which replicas to place, where, and in which order to create them.

Tiers, from cheap to dear, all serving one objective (objective.py). The greedy portfolio comes first; when it places
everything, or reaches the bound, that is the answer. The order of the result is the order of creation.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.greedy import pack_greedily, take_again, top_up
from fleetctl.planner.placement.objective import Score, priorities, score, wanted_levels
from fleetctl.planner.placement.pressure import node_prices
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.rearrange import rearrange
from fleetctl.planner.placement.replica import Placer

STEPS = 3000


def pack(demands: Sequence[Demand], placer: Placer) -> list[Placed]:
    """Place as much as fits, on the placer's ledger; the result is in order of creation."""
    wanted = [demand for demand in demands if demand.missing > 0]
    if not wanted:
        return []
    problem = state_problem(wanted, placer.ledger)
    by_rank = [demand for one in problem.demands for demand in one.demands]
    levels = priorities(wanted)
    mark = placer.ledger.mark()
    best: list[Placed] = []
    best_score: Score | None = None
    ways: list[list[Placer]] = [[placer], [Placer(placer.ledger, node_prices(problem))]]
    for placers in ways:
        placed = pack_greedily(problem, placers)
        top_up(by_rank, placed, placer)
        if best_score is None and len(placed) == sum(demand.missing for demand in wanted):
            return placed
        placer.ledger.undo(mark)
        reached = score(placed, levels, placer.ledger)
        if best_score is None or reached > best_score:
            best, best_score = placed, reached
    opening = list(placer.ledger.numbers)
    take_again(best, placer)
    return rearrange(by_rank, best, ways[1][0], opening=opening, steps=STEPS, enough=wanted_levels(wanted))
