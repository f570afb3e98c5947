"""The objective: what makes one packing better than another, most important first.

For each priority, high to low: models with at least one live or placed replica, GPU units placed, replicas placed.
Then, over all priorities: written spreads least crowded, fewest members on nodes that do not report all their cards,
and fewest empty nodes broken. Scores compare as tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.problem import Problem


class Level(NamedTuple):
    """The values reached at one priority: models newly served, GPU units in 1/10000 of a card, replicas."""

    served: int
    units: int
    replicas: int


Levels = tuple[Level, ...]
"""One level per priority with missing replicas, high to low."""

Score = tuple[Levels, int, int, int]
"""The levels, then minus the crowding of written spreads, minus the members on cards of nodes that do not report all of
them, and minus the number of empty nodes broken."""


def levels_of(demands: Sequence[Demand], counts: Mapping[int, int]) -> Levels:
    """Return the levels reached with `counts` new replicas of each model, by the model's place."""
    priorities = sorted({demand.priority for demand in demands if demand.missing > 0}, reverse=True)
    sums = {priority: [0, 0, 0] for priority in priorities}
    for demand in demands:
        if count := counts.get(demand.place, 0):
            level = sums[demand.priority]
            level[0] += demand.live == 0
            level[1] += demand.shape.gpu_units * count
            level[2] += count
    return tuple(Level(*level) for level in sums.values())


def wanted_levels(demands: Sequence[Demand]) -> Levels:
    """Return the levels reached if everything is placed."""
    return levels_of(demands, {demand.place: demand.missing for demand in demands})


def crowding(demands: Iterable[Demand], ledger: Ledger) -> int:
    """Return how crowded the values of all written spreads are; 0 without any."""
    return sum(count * count for demand in demands if demand.shape.spread is not None
               for count in ledger.crowd(demand.shape.key).values())


def score(
    placed: Sequence[Placed], demands: Sequence[Demand], crowding: int, broken: int, ledger: Ledger | None = None
) -> Score:
    """Score a packing; `crowding` = of its written spreads, `broken` = formerly empty nodes that it uses.

    `ledger` = its nodes; None = each is known to report all its cards.
    """
    unsure = 0 if ledger is None else sum(
        bool(member.gpus and ledger.offer(member.node).unreported) for _, assigned in placed for member in assigned)
    return levels_of(demands, Counter(replica.demand.place for replica in placed)), -crowding, -unsure, -broken


def layout_levels(problem: Problem, replicas: Sequence[int]) -> Levels:
    """Return the levels reached with `replicas` new replicas of each class of demand."""
    sums = {priority: [0, 0, 0] for priority in problem.priorities}
    for demand, count in zip(problem.demands, replicas, strict=True):
        level = sums[demand.priority]
        level[0] += min(count, demand.unserved)
        level[1] += count * demand.gpu_units
        level[2] += count
    return tuple(Level(*level) for level in sums.values())
