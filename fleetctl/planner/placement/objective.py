"""The objective: what makes one packing better than another, most important first.

For each priority, high to low: models with at least one live or placed replica, together with replicas that a variant
has as its own minimum; GPU units placed; replicas placed. A replica of a model with variants counts the GPU units of
the first one. Then, over all priorities: the fewest real GPU units, the lowest price, and the preferred variants, if
any model has several; written spreads least crowded; fewest members on nodes that do not report all their cards; and
fewest empty nodes broken. Scores compare as tuples.

The real units of a replica are what its members claim of cards. Members that claim VRAM alone count as 0, as in the
levels: which share that is depends on the card. Prices are not known here yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.planner.placement.demand import Demand, Missing, Option, Placed, cheapest_first
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.problem import Problem


class Level(NamedTuple):
    """The values reached at one priority: models newly served, GPU units in 1/10000 of a card, replicas."""

    served: int
    units: int
    replicas: int


class Saved(NamedTuple):
    """What the choice of variants saves against the worst one for each replica: GPU units, price, places in the order
    of preference. Levels fix how many replicas there are, so the most saved is the least used."""

    units: int
    price: int
    preference: int


Levels = tuple[Level | Saved, ...]
"""One level per priority with missing replicas, high to low; then what is saved, if a model has several variants."""

Score = tuple[Levels, int, int, int]
"""The levels, then minus the crowding of written spreads, minus the members on cards of nodes that do not report all of
them, and minus the number of empty nodes broken."""


def count_options(placed: Iterable[Placed]) -> Counter[Option]:
    """Return how many replicas of each variant of each model were placed."""
    return Counter(replica.demand.option for replica in placed)


def levels_of(demands: Sequence[Demand], counts: Mapping[Option, int]) -> Levels:
    """Return the levels reached with `counts` new replicas of each variant of each model."""
    priorities = sorted({demand.priority for demand in demands if demand.missing > 0}, reverse=True)
    sums = {priority: [0, 0, 0] for priority in priorities}
    served = set[int]()
    for demand in demands:
        if count := counts.get(demand.option, 0):
            level = sums[demand.priority]
            if demand.live == 0 and demand.place not in served:
                served.add(demand.place)
                level[0] += 1
            level[0] += min(count, demand.least)
            level[1] += demand.units * count
            level[2] += count
    levels = tuple([Level(*level) for level in sums.values()])
    if not any(demand.variant for demand in demands):
        return levels
    saving = savings(demands)
    parts = [(saving[demand.option], counts.get(demand.option, 0)) for demand in demands]
    return *levels, Saved(*(sum(one[part] * count for one, count in parts) for part in range(3)))


def proper(levels: Levels) -> list[Level]:
    """Return the levels of priorities, without what is saved."""
    return [level for level in levels if isinstance(level, Level)]


def savings(demands: Iterable[Demand]) -> dict[Option, Saved]:
    """Return what one replica of each demand saves, never negative."""
    real = {demand.option: (demand.shape.gpu_units - demand.units, demand.variant) for demand in demands}
    units, last = (max(part) for part in zip(*real.values(), strict=True))
    return {option: Saved(units - more, 0, last - variant) for option, (more, variant) in real.items()}


def wanted_levels(demands: Sequence[Demand]) -> Levels:
    """Return the levels reached if everything is placed, each replica as the best variant.

    No packing has higher ones: if a variant's own minimum is not placed, an earlier value is lower.
    """
    missing, counts = Missing(demands), Counter[Option]()
    by_worth = sorted(demands, key=cheapest_first)
    for wanted in ([demand.least for demand in by_worth], [demand.missing for demand in by_worth]):
        for demand, most in zip(by_worth, wanted, strict=True):
            count = min(most, missing.of(demand))
            counts[demand.option] += count
            missing.take(demand, count)
    return levels_of(demands, counts)


def crowding(demands: Iterable[Demand], ledger: Ledger) -> int:
    """Return how crowded the values of all written spreads are; 0 without any."""
    spread = dict.fromkeys(demand.shape.key for demand in demands if demand.shape.spread is not None)
    return sum(count * count for key in spread for count in ledger.crowd(key).values())


def score(
    placed: Sequence[Placed], demands: Sequence[Demand], crowding: int, broken: int, ledger: Ledger | None = None
) -> Score:
    """Score a packing; `crowding` = of its written spreads, `broken` = formerly empty nodes that it uses.

    `ledger` = its nodes; None = each is known to report all its cards.
    """
    unsure = 0 if ledger is None else sum(
        bool(member.gpus and ledger.offer(member.node).unreported) for _, assigned in placed for member in assigned)
    return levels_of(demands, count_options(placed)), -crowding, -unsure, -broken


def layout_levels(problem: Problem, replicas: Sequence[int]) -> Levels:
    """Return the levels reached with `replicas` new replicas of each class of demand."""
    sums = {priority: [0, 0, 0] for priority in problem.priorities}
    for demand, count in zip(problem.demands, replicas, strict=True):
        level = sums[demand.priority]
        level[0] += min(count, demand.unserved)
        level[1] += count * demand.units
        level[2] += count
    return tuple(Level(*level) for level in sums.values())
