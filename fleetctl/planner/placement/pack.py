"""The packer: which replicas to place, where, and in which order to create them.

Tiers, from cheap to dear, all serving one objective (objective.py). The greedy portfolio comes first; when it places
everything, or reaches the bound, that is the answer. The order of the result is the order of creation.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.greedy import pack_greedily, take_again, top_up
from fleetctl.planner.placement.ledger import Ledger
from fleetctl.planner.placement.objective import Score, priorities, score, wanted_levels
from fleetctl.planner.placement.pressure import node_prices
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.rearrange import rearrange
from fleetctl.planner.placement.replica import Placer
from fleetctl.planner.placement.slim import slim_down

STEPS = 3000


def pack(demands: Sequence[Demand], placer: Placer) -> list[Placed]:
    """Place as much as fits, on the placer's ledger; the result is in order of creation."""
    wanted = [demand for demand in demands if demand.missing > 0]
    if not wanted:
        return []
    ledger = placer.ledger
    slim = slim_down(state_problem(wanted, ledger), wanted)
    placed = slim.restored(_pack(slim.demands, slim.ledger))
    if ledger.take_all((stand.node, stand.seat.claim) for one in placed for stand in one.stands):
        for one in placed:
            for node in dict.fromkeys(stand.node for stand in one.stands):
                ledger.take_slot(node, one.demand.shape.key)
        return placed
    return _pack(wanted, ledger)


def _pack(wanted: Sequence[Demand], ledger: Ledger) -> list[Placed]:
    problem = state_problem(wanted, ledger)
    by_rank = [demand for one in problem.demands for demand in one.demands]
    levels = priorities(wanted)
    mark = ledger.mark()
    best: list[Placed] = []
    best_score: Score | None = None
    ways: list[Placer] = [Placer(ledger), Placer(ledger, node_prices(problem))]
    for way in ways:
        placed = pack_greedily(problem, [way])
        top_up(by_rank, placed, ways[0])
        if best_score is None and len(placed) == sum(demand.missing for demand in wanted):
            return placed
        ledger.undo(mark)
        reached = score(placed, levels, ledger)
        if best_score is None or reached > best_score:
            best, best_score = placed, reached
    opening = list(ledger.numbers)
    take_again(best, ways[0])
    return rearrange(by_rank, best, ways[0], opening=opening, steps=STEPS, enough=wanted_levels(wanted))
