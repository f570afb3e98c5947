"""The exact tier: is this packing the best there can be, and if not, which is?

A bound over groups of nodes comes first: it is cheap, and for whole cards of sizes 1, 2, 4, 8 the truth. Where it says
more than was reached and the fleet is small enough, every node is distinguished, and a solver says what fits and how;
in a larger fleet only after the other steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.documents.quantity import count_of
from fleetctl.planner.placement.exact.bound import count_bound
from fleetctl.planner.placement.exact.climb import MAX_AT_LAST, MAX_BY_NODE, climb, most_replicas
from fleetctl.planner.placement.exact.model_rows import Relaxation
from fleetctl.planner.placement.exact.relaxation import MAX_AT_ONCE, relax, relax_by_node
from fleetctl.planner.placement.exact.solve import layout_at
from fleetctl.planner.placement.objective import Levels
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.realize import Layout


@dataclass(frozen=True, slots=True)
class Examined:
    """What the exact tier found out about a packing."""

    levels: Levels
    """No plan has higher ones, in the order of priorities."""
    layout: Layout | None
    """A layout with these levels or close to them, for the ledger to confirm; None when there is none, or no need."""
    replicas: tuple[int, ...] | None
    """How many of each class of demand such a packing may have; None where that is not known, or no need."""
    relaxation: Relaxation
    """The finest one looked at."""


def examine(problem: Problem, reached: Levels) -> Examined:
    """Compare what a packing reached with what is possible; see `Examined`."""
    coarse = relax(problem)
    top = climb(coarse, reached)
    if top.attained:
        return Examined(top.levels, None, None, coarse)
    by_node = relax_by_node(coarse, MAX_AT_ONCE)
    if by_node is None:
        top = climb(coarse, reached, to_the_top=True)
        return Examined(top.levels, None, top.replicas, coarse)
    return _examine_by_node(by_node, reached)


def examine_at_last(examined: Examined, reached: Levels, *, solve: bool) -> Examined:
    """Look at the model of every node where `examine` left that out; `solve` = even one that was too large for it."""
    known = examined.relaxation
    by_node = known if known.is_by_node else relax_by_node(known)
    if by_node is None:
        return examined
    at_last = solve and MAX_BY_NODE < len(by_node.model.highs) <= MAX_AT_LAST
    return examined if by_node is known and not at_last else _examine_by_node(by_node, reached, at_last=at_last)


def _examine_by_node(model: Relaxation, reached: Levels, *, at_last: bool = False) -> Examined:
    top = climb(model, reached, to_the_top=True, at_last=at_last)
    layout = None if top.attained or top.values is None else layout_at(model, top.values)
    return Examined(top.levels, layout, None if top.attained else top.replicas, model)


def bound_replicas(examined: Examined, reached: Levels) -> int:
    """Bound the new replicas of any plan that is as good as one that reached so much, in the order of priorities."""
    have = [value for level in reached for value in level]
    most = [value for level in examined.levels for value in level]
    proven = next((place for place, pair in enumerate(zip(have, most, strict=True)) if pair[0] != pair[1]), len(have))
    return most_replicas(examined.relaxation, have[:proven + 1])


def argument_for(most: int, examined: Examined) -> str:
    """Say by which argument no plan places more than `most`: a plain count where one will do."""
    counted = count_bound(examined.relaxation.tally)
    if counted.replicas <= most:
        return f"slot count: {counted.method}"
    groups = len(examined.relaxation.pools)
    return f"relaxation over {count_of(groups, 'group')} of nodes"
