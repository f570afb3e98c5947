"""The greedy portfolio (tier C): always there, often enough, and the incumbent the exact tiers have to beat.

Priorities from high to low; inside one, models without a live replica get their first before others get more. There
are several orders of the classes of demand: big members first as in first-fit decreasing (Johnson 1974; with sizes that
divide one another and equal nodes that is optimal, Coffman, Garey and Johnson 1987), scarce ones first, small ones
first. No order looks at where a model stands in a file, except between equals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.problem import DemandClass, Problem

Rank = Callable[[DemandClass], tuple[int, ...]]


def pack_greedily(problem: Problem, placer: Placer) -> list[Placed]:
    """Place as much as goes in one pass over the classes, scarce members first; the result stays taken."""
    first, rest = orders(problem, placer)[0]
    return fill(problem, first, rest, placer)


def fill(problem: Problem, first: Rank, rest: Rank, placer: Placer) -> list[Placed]:
    """Place as much as goes, priority by priority: first replicas in one order of the classes, the rest in another."""
    placer.expect([selector for _, selector in problem.kinds])
    result: list[Placed] = []
    for priority in problem.priorities:
        level = [demand for demand in problem.demands if demand.priority == priority]
        result += _fill(sorted(level, key=first), sorted(level, key=rest), placer)
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


def orders(problem: Problem, placer: Placer) -> list[tuple[Rank, Rank]]:
    """Return pairs of orders: for first replicas, and for the rest."""

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

    def largest_scarce(demand: DemandClass) -> tuple[int, ...]:
        size, *rest = largest(demand)
        return (size, scarce_first(demand)[0], *rest)

    return [(scarce_first, scarce_first), (largest_scarce, largest_scarce), (largest, largest), (big_first, big_first),
            (small_first, big_first), (small_first, small_first)]


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


