"""Patterns: column generation for odd sizes, shared cards, and nodes whose CPU or memory runs out before the cards.

A pattern is what one node of a class may hold. A linear master over the patterns found so far gives prices, pricing
finds better patterns at these prices, and a dive rounds the fractions to whole nodes (Gilmore & Gomory 1961; Vance et
al. 1994). Priorities are served one after another, each keeping what higher ones have reached.

Only for replicas of one member; gangs are placed before by other tiers. An item is a member of one class of demand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from fleetctl.planner.placement.creation_order import creation_order
from fleetctl.planner.placement.objective import layout_levels
from fleetctl.planner.placement.patterns.dive import Dive
from fleetctl.planner.placement.patterns.master import Master, Pattern, stage_worth
from fleetctl.planner.placement.patterns.pricing import Pricer
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.realize import Layout, Piece
from fleetctl.planner.placement.tally import Tally


def pack_by_patterns(problem: Problem, *, steps: int, incumbent: Layout | None = None) -> Layout:
    """Return a layout that is nearly best by the objective; the last one found if none is better than `incumbent`.

    All replicas have one member. `steps` = the most pricings of a class of nodes, which take most of the time. A layout
    lacks members that no order of creation takes; the worse layout may win once these are placed elsewhere.
    """
    tally = Tally(problem)
    pricers = [Pricer(tally, row) for row in range(len(problem.nodes))]
    best = found = incumbent or Layout((0,) * len(problem.demands), {})
    for priority in problem.priorities:
        if all(count >= demand.missing for demand, count in zip(problem.demands, best.replicas, strict=True)
               if demand.priority >= priority):
            continue
        worth = stage_worth(problem, priority, best.replicas)
        master = Master(worth)
        dive = Dive(master, pricers, np.array([len(node.nodes) for node in problem.nodes], np.int64),
                    np.zeros(len(problem.demands), np.int64), worth.most_first + worth.most_further, steps)
        for number, pattern in _patterns_of(problem, best):
            master.add(number, pattern)
        dive.run()
        steps = dive.steps
        found = _layout(problem, dive.used)
        if layout_levels(problem, found.replicas) > layout_levels(problem, best.replicas):
            best = found
        if steps <= 0:
            break
    return found if best is incumbent else best


def _patterns_of(problem: Problem, layout: Layout) -> Iterator[tuple[int, Pattern]]:
    """Yield the pattern of each node that a layout uses, with the number of its class."""
    for number, node_class in enumerate(problem.nodes):
        for node in node_class.nodes:
            held = Counter(piece.demand for piece in layout.assignments.get(node, ()))
            if held:
                yield number, tuple(sorted(held.items()))


def _layout(problem: Problem, used: Mapping[tuple[int, Pattern], int]) -> Layout:
    """Make a layout of patterns, `used` = how many times by (class, pattern), without members that no order takes."""
    claims = {number: problem.kinds[demand.gangs[0].parts[0][0]][0] for number, demand in enumerate(problem.demands)}
    by_class: dict[int, list[tuple[Pattern, int]]] = defaultdict(list)
    for (number, pattern), count in sorted(used.items()):
        by_class[number].append((pattern, count))
    replicas, assignments = [0] * len(problem.demands), dict[int, tuple[Piece, ...]]()
    for number, uses in by_class.items():
        nodes = iter(problem.nodes[number].nodes)
        for pattern, count in uses:
            order = creation_order(problem.nodes[number].offer, pattern, claims)
            pieces = tuple([Piece(item, 0, problem.demands[item].gangs[0].parts[0][0]) for item in order])
            for _ in range(count):
                assignments[next(nodes)] = pieces
            for item in order:
                replicas[item] += count
    return Layout(tuple(replicas), assignments)
