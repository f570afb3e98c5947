"""Patterns: column generation where sizes are odd, cards are shared, or CPU and memory run out before the cards.

A pattern is what one node of a class may hold. A linear master over the patterns found so far gives prices, pricing
finds better patterns at these prices, and a dive makes whole nodes of the fractions (Gilmore & Gomory 1961; Vance et
al. 1994). Priorities are served one after another, each with what those above it have reached as a condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.layout import Layout
from fleetctl.planner.placement.objective import layout_levels
from fleetctl.planner.placement.patterns.covering import Covering, state_covering
from fleetctl.planner.placement.patterns.dive import Dive
from fleetctl.planner.placement.patterns.goals import stage_worth
from fleetctl.planner.placement.patterns.master import Master, Pattern, Worth
from fleetctl.planner.placement.patterns.pricing import Claims, Pricer, state_stall
from fleetctl.planner.placement.patterns.settle import settle
from fleetctl.planner.placement.problem import Problem


def pack_by_patterns(problem: Problem, *, steps: int, incumbent: Layout | None = None) -> Layout | None:
    """Return a layout near the best by the fleet's objective, or None when none better than `incumbent` was found.

    `steps` = pricings of one class of nodes, which is where the time goes.
    """
    covering = state_covering(problem)
    claims = Claims.of(problem, covering)
    pricers = [Pricer(state_stall(problem, covering, claims, node), claims) for node in problem.nodes]
    best, improved = incumbent, False
    for priority in problem.priorities:
        reached = [0] * len(problem.demands) if best is None else list(best.replicas)
        if best is not None and all(count >= demand.missing for demand, count in
                                    zip(problem.demands, reached, strict=True) if demand.priority >= priority):
            continue
        worth = stage_worth(problem, priority, reached)
        wanted = _wanted(covering, worth)
        master = Master(problem, covering, worth)
        dive = Dive(master, pricers, np.array([len(node.nodes) for node in problem.nodes], np.int64),
                    np.zeros(len(covering.items), np.int64), wanted, steps)
        for number, pattern in patterns_of(problem, covering, best):
            master.add(number, pattern)
        dive.run()
        steps = dive.steps
        found = settle(problem, covering, dive.settled)
        if best is None or layout_levels(problem, found.replicas) > layout_levels(problem, best.replicas):
            best, improved = found, True
        if steps <= 0:
            break
    return best if improved else None


def patterns_of(problem: Problem, covering: Covering, layout: Layout | None) -> Iterator[tuple[int, Pattern]]:
    """Yield the pattern of every node a layout uses, with the number of its class."""
    stands = layout.stands if layout else {}
    for number, node_class in enumerate(problem.nodes):
        for node in node_class.nodes:
            held = Counter(covering.item_at(piece, node_class) for piece in stands.get(node, ()))
            if held:
                yield number, tuple(sorted(held.items()))


def _wanted(covering: Covering, worth: Worth) -> Ints:
    wanted = np.zeros(len(covering.items), np.int64)
    most = worth.most_first + worth.most_further
    for number, needs in enumerate(covering.needs):
        for item, count in needs:
            wanted[item] += count * most[number]
    for bound in covering.bound_gangs:
        for item, count in bound.needs:
            wanted[item] += count * most[bound.demand]
    return wanted
