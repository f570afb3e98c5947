"""The exact tier: is this packing the best there can be, and if not, which is?

The relaxation is climbed first over large pools, which is cheap and for whole cards of sizes 1, 2, 4, 8 the truth;
then, where it still says more than was reached and the fleet is small enough, over classes of nodes and single nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.planner.placement.climb import Levels, climb, most_replicas
from fleetctl.planner.placement.expansion import expand
from fleetctl.planner.placement.items import Grain
from fleetctl.planner.placement.layout import Layout
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.relaxation import Relaxation, relax
from fleetctl.planner.placement.tally import count_up


@dataclass(frozen=True, slots=True)
class Examined:
    """What the exact tier found out about a packing."""

    levels: Levels
    """No plan has higher ones, in the order of priorities."""
    attained: bool
    """The packing has exactly these levels: it is proven best."""
    layout: Layout | None
    """A layout with these levels or close to them, for the ledger to confirm; None when there is none, or no need."""
    relaxation: Relaxation
    """The finest one looked at."""


def examine(problem: Problem, reached: Levels) -> Examined:
    """Compare what a packing reached with what is possible; see `Examined`."""
    tally = count_up(problem)
    found: Examined | None = None
    for grain in (Grain.ALIKE, Grain.CLASSES, Grain.NODES):
        relaxation = relax(problem, tally, grain)
        if relaxation is None or (found is not None and len(relaxation.pools) == len(found.relaxation.pools)):
            continue
        top = climb(relaxation, reached, to_the_top=True)
        if top.attained or top.values is None:
            layout = found.layout if found and not top.attained else None
            found = Examined(top.levels, top.attained, layout, relaxation)
        else:
            layout, left_over = expand(relaxation, top.values)
            found = Examined(top.levels, attained=False, layout=layout, relaxation=relaxation)
        if top.attained or (top.values is not None and not left_over):
            break
    if found is None:
        raise AssertionError("a relaxation of the coarsest grain always exists")
    return found


def solve_exactly(problem: Problem) -> Layout | None:
    """Return a layout that reaches the bound; None where no such layout was found."""
    return examine(problem, ()).layout


def bound_replicas(examined: Examined, reached: Levels) -> int:
    """Bound the new replicas of any plan that keeps the order of priorities as far as `reached` is proven best."""
    proven = 0
    for have, most in zip(reached, examined.levels, strict=True):
        if have != most:
            break
        proven += 1
    return most_replicas(examined.relaxation, reached[:proven])
