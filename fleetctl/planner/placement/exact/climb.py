"""The order of priorities over a relaxation: one stage after another, what an earlier one reached staying fixed.

A stage is the models served, the GPU share or the replicas of one priority. The values reached are together never
below, in that order, what any plan can have; a plan that has exactly these is proven best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from fleetctl.planner.placement.arrays import Floats
from fleetctl.planner.placement.exact.linear import NODE_LIMIT, InfeasibleError, LinearModel
from fleetctl.planner.placement.exact.model_rows import Relaxation
from fleetctl.planner.placement.objective import Level, Levels

MAX_INTEGERS, MAX_BY_NODE = 2_500, 6_000
"""Beyond so many integers, over pools and node by node, there is a bound and no point.

Over pools a point only tightens the bound: on 500 nodes of seven sizes of card it costs 8 s and gives nothing.
"""
MAX_AT_LAST, NODES_AT_LAST = 25_000, 20
"""The same node by node where nothing else has reached the bound, and the branch-and-bound nodes of each solve then.

100 nodes, 500 replicas of 60 models that fill them to the last share (`planted`): without it one or two are missing in
three of eight fleets; with it none, for 1 to 3 s more of the processor in these three.
"""


@dataclass(frozen=True, slots=True)
class Climb:
    """How high the stages of a relaxation go."""

    levels: Levels
    """No plan has higher ones. Stages not looked at have what each class of demand could get alone."""
    attained: bool
    """The incumbent has exactly these levels."""
    values: Floats | None
    """A point of the relaxation with these levels, by column; None when none was needed or found."""


def climb(
    relaxation: Relaxation, incumbent: Levels | None = None, *, to_the_top: bool = False, at_last: bool = False
) -> Climb:
    """Maximise stage after stage; stop where the incumbent falls short, unless a point at the top is wanted.

    `at_last` = nothing else has reached the bound: a model is solved whatever its size, in NODES_AT_LAST.
    """
    known = [value for level in incumbent or () for value in level]
    stages, ascent = _stages(relaxation), _Ascent(relaxation, at_last=at_last)
    reached = [stage.most * stage.unit for stage in stages]
    try:
        for place, stage in enumerate(stages):
            have, valid = (known[place] if known[:place] == reached[:place] else None) if known else None, ascent.tight
            value = ascent.raise_to_top(stage, None if have is None else have // stage.unit) * stage.unit
            if valid:
                reached[place] = value
            if known and reached[place] != have and not to_the_top:
                break
    except InfeasibleError:
        ascent.values = None
    levels = tuple(Level(*reached[place:place + 3]) for place in range(0, len(reached), 3))
    return Climb(levels, reached == known, ascent.values)


def most_replicas(relaxation: Relaxation, at_least: Sequence[int] = ()) -> int:
    """Bound the new replicas of any plan; `at_least` = of any plan that reaches these values at the first stages.

    Raises InfeasibleError when the limits of the relaxation's columns leave no plan at all.
    """
    ascent = _Ascent(relaxation)
    for stage, value in zip(_stages(relaxation), at_least, strict=False):
        ascent.keep(stage, value // stage.unit)
    everything = _stage(relaxation.model, dict.fromkeys(relaxation.replicas, 1))
    try:
        return ascent.raise_to_top(everything, None)
    except InfeasibleError:
        if not at_least:
            raise
        return most_replicas(relaxation)


@dataclass(frozen=True, slots=True)
class _Stage:
    """An objective by column, in units of `unit`; `most` = its value when every column is at its limit."""

    objective: Mapping[int, int]
    unit: int
    most: int


def _stage(model: LinearModel, objective: Mapping[int, int]) -> _Stage:
    unit = gcd(*objective.values()) or 1
    small = {column: value // unit for column, value in objective.items() if value}
    return _Stage(small, unit, int(sum(value * model.highs[column] for column, value in small.items())))


def _stages(relaxation: Relaxation) -> list[_Stage]:
    demands = relaxation.problem.demands
    stages = []
    for priority in relaxation.problem.priorities:
        level = [number for number, demand in enumerate(demands) if demand.priority == priority]
        unserved = [number for number in level if demands[number].unserved]
        stages += [
            _stage(relaxation.model, {relaxation.served[number]: 1 for number in unserved}),
            _stage(relaxation.model, {relaxation.replicas[number]: demands[number].gpu_units for number in level}),
            _stage(relaxation.model, {relaxation.replicas[number]: 1 for number in level}),
        ]
    return stages


class _Ascent:
    """Solves stages on a copy of the model's rows, each fixing what it reached.

    `tight` = that is what the stages before were bounded by; if not, later stages bound nothing.
    """

    def __init__(self, relaxation: Relaxation, *, at_last: bool = False) -> None:
        self.relaxation, self.at_last, self.tight = relaxation, at_last, True
        self.model = relaxation.model.copy()
        self.values: Floats | None = None

    def raise_to_top(self, stage: _Stage, have: int | None) -> int:
        """Return the bound of a stage, and let later ones keep what it reached.

        `have` = what an incumbent has: often that is the bound already, and no point is needed.
        """
        at_top = all(self.model.lows[column] == self.model.highs[column] for column in stage.objective)
        if at_top or have == stage.most:
            self.keep(stage, stage.most)
            return stage.most
        most = self.model.maximise(stage.objective, relaxed=True).bound
        limit = MAX_BY_NODE if self.relaxation.is_by_node else MAX_INTEGERS
        if most == have or (len(self.model.highs) > limit and not self.at_last):
            self.values = None
            self.keep(stage, most)
            return most
        return self._solve(stage, most)

    def keep(self, stage: _Stage, value: int) -> None:
        """Let nothing later fall below what a stage reached."""
        if value == stage.most:
            for column in stage.objective:
                self.model.lows[column] = self.model.highs[column]
        elif value:
            self.model.row([(column, float(factor)) for column, factor in stage.objective.items()], value, np.inf)

    def _solve(self, stage: _Stage, most: int) -> int:
        answer = self.model.maximise(stage.objective, relaxed=False,
                                     nodes=NODES_AT_LAST if self.at_last else NODE_LIMIT)
        bound, reached = min(answer.bound, most), answer.bound
        self.values = answer.values
        if answer.values is not None:
            reached = round(sum(factor * answer.values[column] for column, factor in stage.objective.items()))
        self.keep(stage, reached)
        if reached < bound:
            self.tight = False
        return bound
