"""The objective: what makes one packing better than another, most important first.

For each priority, high to low: models with at least one live or placed replica, together with replicas that a variant
has as its own minimum; GPU units placed; replicas placed. A replica of a model with variants counts the GPU units of
the first one. What minimums ask for beyond the target of a model is a rule, not a value: no variant gets it for another
one (`Demand.target`). Then, over all priorities: the fewest real GPU units, the lowest price, and the preferred
variants, if any model has several; written spreads least crowded; fewest members on nodes that do not report all their
cards; and fewest empty nodes broken. Scores compare as tuples.

The real units of a replica are what its members claim of cards. Members that claim VRAM alone count as 0, as in the
levels: which share that is depends on the card. The price is that of replicas of models with a choice of variants, if
the nodes that could hold them have prices (prices.py); it depends on the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.planner.placement.demand import Demand, Missing, Option, Placed, cheapest_first
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.problem import Problem

if TYPE_CHECKING:
    from fleetctl.planner.placement.ledger.price_table import PriceTable


class Level(NamedTuple):
    """The values reached at one priority: models newly served, GPU units in 1/10000 of a card, replicas."""

    served: int
    units: int
    replicas: int


class Saved(NamedTuple):
    """What the choice of variants saves against the worst one for each replica: GPU units, places in the order of
    preference. Levels fix how many replicas there are, so the most saved is the least used. And minus the price."""

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


def levels_of(demands: Sequence[Demand], counts: Mapping[Option, int], price: int = 0) -> Levels:
    """Return the levels reached with `counts` new replicas of each variant of each model, which cost `price`."""
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
    return *levels, Saved(sum(one.units * count for one, count in parts), -price,
                          sum(one.preference * count for one, count in parts))


def proper(levels: Levels) -> list[Level]:
    """Return the levels of priorities, without what is saved."""
    return [level for level in levels if isinstance(level, Level)]


def savings(demands: Iterable[Demand]) -> dict[Option, Saved]:
    """Return what one replica of each demand saves, never negative, without its price, which depends on its nodes."""
    real = {demand.option: (demand.shape.gpu_units - demand.units, demand.variant) for demand in demands}
    units, last = (max(part) for part in zip(*real.values(), strict=True))
    return {option: Saved(units - more, 0, last - variant) for option, (more, variant) in real.items()}


def wanted_levels(demands: Sequence[Demand], ledger: Ledger | None = None) -> Levels:
    """Return the levels reached if everything is placed, each replica as the best variant on its cheapest nodes.

    No packing has higher ones: if a variant's own minimum is not placed, an earlier value is lower. `ledger` = its
    nodes; None = prices do not count.
    """
    missing, counts, price = Missing(demands), Counter[Option](), dict[Option, int]()
    by_worth = sorted(demands, key=cheapest_first)
    if ledger is not None and (prices := ledger.prices) is not None:
        price = {demand.option: sum(count * prices.least_at(kind, ledger.selected(kind[1]))
                                    for kind, count in demand.shape.kinds.items())
                 if demand.shape.key in prices.models else 0 for demand in demands}
        by_worth.sort(key=lambda demand: (demand.shape.gpu_units, price[demand.option], demand.variant))
    for wanted in ([demand.least for demand in by_worth], [demand.missing for demand in by_worth]):
        for demand, most in zip(by_worth, wanted, strict=True):
            count = min(most, missing.of(demand))
            counts[demand.option] += count
            missing.take(demand, count)
    return levels_of(demands, counts, sum(each * counts[option] for option, each in price.items()))


def total_price(placed: Iterable[Placed], prices: PriceTable) -> int:
    """Return what replicas cost together; those of models whose prices do not count cost nothing."""
    return sum([prices.at(assigned.seat.claim, prices.of_node[assigned.node]) for demand, assignments in placed
                if demand.shape.key in prices.models for assigned in assignments])


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
    price = 0 if ledger is None or ledger.prices is None else total_price(placed, ledger.prices)
    return levels_of(demands, count_options(placed), price), -crowding, -unsure, -broken


def layout_levels(problem: Problem, replicas: Sequence[int]) -> Levels:
    """Return the levels reached with `replicas` new replicas of each class of demand."""
    sums = {priority: [0, 0, 0] for priority in problem.priorities}
    for demand, count in zip(problem.demands, replicas, strict=True):
        level = sums[demand.priority]
        level[0] += min(count, demand.unserved)
        level[1] += count * demand.units
        level[2] += count
    return tuple(Level(*level) for level in sums.values())
