"""The greedy portfolio (tier C): always there, often enough, and the incumbent the exact tiers have to beat.

Priorities from high to low; inside one, models without a live replica get their first before others get more. Several
orders of the classes of demand are tried on the ledger and the best is kept: big members first as in first-fit
decreasing (Johnson 1974; with sizes that divide one another and equal nodes that is optimal, Coffman, Garey and Johnson
1987), scarce ones first, small ones first. No order looks at where a model stands in a file, except between equals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.objective import Level, score
from fleetctl.planner.placement.problem import DemandClass, Problem
from fleetctl.planner.placement.replica import Placer

Rank = Callable[[DemandClass], tuple[int, ...]]


def pack_greedily(problem: Problem, placers: Sequence[Placer]) -> list[Placed]:
    """Place as much as the best order manages at each priority; the result, in order of creation, stays taken.

    `placers` choose nodes in different ways, on the same ledger.
    """
    for placer in placers:
        placer.expect([selector for _, selector in problem.kinds])
    result: list[Placed] = []
    for priority in sorted({demand.priority for demand in problem.demands}, reverse=True):
        result += _pack_level([demand for demand in problem.demands if demand.priority == priority], problem, placers)
    return result


def take_again(placed: Sequence[Placed], placer: Placer) -> None:
    """Take a packing again after an undo to the state it was made in."""
    for one in placed:
        placer.retake(one.demand.shape, one.stands)


def top_up(demands: Sequence[Demand], placed: list[Placed], placer: Placer) -> None:
    """Ask every model with something missing once more, until nothing changes; what is found is appended.

    A later placement can make room: it may move Ray's next choice to a card with more memory. Without this, the plan
    after an apply could find something more to do.
    """
    left = {demand.place: demand.missing for demand in demands}
    for one in placed:
        left[one.demand.place] -= 1
    found = True
    while found:
        found = False
        for demand in demands:
            if left[demand.place] > 0:
                more = list(place_some(demand, left[demand.place], placer))
                placed += more
                left[demand.place] -= len(more)
                found = found or bool(more)


def place_some(demand: Demand, count: int, placer: Placer) -> Iterator[Placed]:
    """Place up to `count` replicas of one model, one after the other."""
    if demand.shape.size == 1:
        for stands in placer.place_singles(demand.shape, count):
            yield Placed(demand, stands)
        return
    for _ in range(count):
        found = placer.place(demand.shape)
        if found is None:
            return
        yield Placed(demand, found)


def _orders(problem: Problem, placer: Placer) -> list[tuple[Rank, Rank]]:
    """Pairs of orders: for first replicas, and for the rest."""

    def largest(demand: DemandClass) -> tuple[int, ...]:
        claims = [problem.kinds[kind][0] for kind in demand.members()]
        return (-max(claim.gpus for claim in claims), -max(claim.vram for claim in claims),
                -max(claim.cpus for claim in claims), -demand.shape.size)

    def big_first(demand: DemandClass) -> tuple[int, ...]:
        return (-demand.gpu_units, *largest(demand))

    def small_first(demand: DemandClass) -> tuple[int, ...]:
        return (demand.gpu_units, demand.shape.size)

    def scarce_first(demand: DemandClass) -> tuple[int, ...]:
        return (min(len(placer.candidates(problem.kinds[kind])) for kind in demand.members()), *largest(demand))

    return [(largest, largest), (big_first, big_first), (scarce_first, scarce_first), (small_first, big_first),
            (small_first, small_first)]


def _pack_level(level: list[DemandClass], problem: Problem, placers: Sequence[Placer]) -> list[Placed]:
    ledger = problem.ledger
    everything = sum(demand.missing for demand in level)
    levels = [level[0].priority]
    best: list[Placed] = []
    best_score: tuple[tuple[Level, ...], int] | None = None
    mark = ledger.mark()
    for placer in placers:
        for first, rest in _orders(problem, placer):
            placed = _fill(sorted(level, key=first), sorted(level, key=rest), placer)
            if best_score is None and len(placed) == everything:
                return placed
            ledger.undo(mark)
            reached = score(placed, levels, ledger)
            if best_score is None or reached > best_score:
                best, best_score = placed, reached
            if len(best) == everything:
                break
    take_again(best, placers[0])
    return best


def _fill(first: list[DemandClass], rest: list[DemandClass], placer: Placer) -> list[Placed]:
    result: list[Placed] = []
    left = {demand.place: demand.missing for one in rest for demand in one.demands}
    for one in first:
        for demand in one.demands:
            if demand.live == 0 and (found := list(place_some(demand, 1, placer))):
                result += found
                left[demand.place] -= 1
    for one in rest:
        for demand in one.demands:
            result += place_some(demand, left[demand.place], placer)
    return result


