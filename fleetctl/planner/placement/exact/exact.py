"""The exact tier: is this packing the best there can be, and if not, which is?

The relaxation is climbed first over large pools, which is cheap and for whole cards of sizes 1, 2, 4, 8 the truth;
then, where it still says more than was reached and the fleet is small enough, over classes of nodes and single nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleetctl.planner.placement.arrays import Floats
from fleetctl.planner.placement.exact.climb import climb, most_replicas
from fleetctl.planner.placement.exact.expansion import expand
from fleetctl.planner.placement.exact.items import Grain
from fleetctl.planner.placement.exact.relaxation import Relaxation, relax, relax_finely
from fleetctl.planner.placement.layout import Layout
from fleetctl.planner.placement.objective import Levels
from fleetctl.planner.placement.problem import Problem


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
    point: Floats | None = None
    """A point of that relaxation with these levels, by column."""


def examine(problem: Problem, reached: Levels) -> Examined:
    """Compare what a packing reached with what is possible; see `Examined`."""
    relaxation = relax(problem)
    found, left_over = _look(relaxation, reached)
    for grain in (Grain.CLASSES, Grain.NODES):
        if found.attained or (found.layout is not None and not left_over):
            break
        finer = relax_finely(found.relaxation, grain)
        if finer is not None:
            before = found
            found, left_over = _look(finer, reached)
            if found.layout is None and not found.attained:
                found = replace(found, layout=before.layout)
    return found


def _look(relaxation: Relaxation, reached: Levels) -> tuple[Examined, int]:
    """Climb one relaxation; also returns how many members its layout leaves out."""
    top = climb(relaxation, reached, to_the_top=True)
    if top.attained or top.values is None:
        return Examined(top.levels, top.attained, None, relaxation), 0
    if relaxation.splits_domains:
        return Examined(top.levels, attained=False, layout=None, relaxation=relaxation), 0
    found = Examined(top.levels, attained=False, layout=None, relaxation=relaxation, point=top.values)
    if None in relaxation.packed:
        return found, 0
    layout, left_over = expand(relaxation, top.values)
    return replace(found, layout=layout), left_over


def bound_replicas(examined: Examined, reached: Levels) -> int:
    """Bound the new replicas of any plan that keeps the order of priorities as far as `reached` is proven best."""
    have = [value for level in reached for value in level]
    most = [value for level in examined.levels for value in level]
    proven = next((place for place, pair in enumerate(zip(have, most, strict=True)) if pair[0] != pair[1]), len(have))
    return most_replicas(examined.relaxation, have[:proven])
