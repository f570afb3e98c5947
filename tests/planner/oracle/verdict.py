"""How far a plan is from the optimum, and whether its claims are true.

Compared is the vector of design: for each priority from high to low (models with a live or placed replica, GPU share
placed, replicas placed). The ratio of a plan is taken at the first place where it differs from the optimum: what the
plan has there over what the optimum has, models that are live already included. All later places do not count, since
an earlier one outweighs them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.resolved import ResolvedFleet
from oracle.optimum import Level, Optimum
from oracle.question import Question

STAGES = ("models served", "GPU share", "replicas")


@dataclass(frozen=True)
class Verdict:
    """`ratio` at the first difference (1 = none, above 1 = better than the oracle's unproven best)."""

    ratio: float
    where: str
    whole: float
    """GPU share placed over all priorities, against the optimum's: how much of the fleet's capacity is lost."""


def levels_of(plan: Plan, fleet: ResolvedFleet, question: Question) -> dict[int, Level]:
    """Return what a plan places, by priority, for the models of `question`."""
    new = Counter(action.model for action in plan.actions)
    units = {key: ask.units for ask in question.asks for key in ask.keys}
    found = dict.fromkeys(question.priorities, Level(0, 0, 0))
    for model in fleet.models:
        if new[model.key]:
            before = found[model.priority]
            found[model.priority] = Level(before.served + (question.live[model.key] == 0),
                                          before.units + units[model.key] * new[model.key],
                                          before.replicas + new[model.key])
    return found


def compare(plan: Plan, fleet: ResolvedFleet, question: Question, best: Optimum) -> Verdict:
    """Compare a plan with the best found."""
    placed = levels_of(plan, fleet, question)
    whole = _over(sum(level.units for level in placed.values()), sum(level.units for level in best.levels.values()))
    for priority, level in best.levels.items():
        served = sum(question.live[model.key] > 0 for model in fleet.models if model.priority == priority)
        have = (placed[priority].served + served, *placed[priority][1:])
        want = (level.served + served, *level[1:])
        for stage, got, most in zip(STAGES, have, want, strict=True):
            if got != most:
                return Verdict(_over(got, most), f"{stage} at priority {priority}: {got} of {most}", whole)
    return Verdict(1.0, "", whole)


def _over(got: int, most: int) -> float:
    return got / most if most else 1.0 if got == 0 else float("inf")


def everything(question: Question) -> Optimum:
    """Return the optimum of a fleet that fits as a whole."""
    levels = {}
    for priority in question.priorities:
        level = [ask for ask in question.asks if ask.priority == priority]
        levels[priority] = Level(sum(ask.unserved for ask in level), sum(ask.units * ask.missing for ask in level),
                                 sum(ask.missing for ask in level))
    return Optimum(levels, proven=True)
