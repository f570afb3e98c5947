"""Maximizes a relaxation stage by stage, in order of priority; what an earlier stage reached stays fixed.

A stage is the models served, the GPU share or the replicas of one priority. No plan has higher values, in this order,
so a plan with exactly these values is proven best. If a search for whole numbers is needed, the stages of one priority
form one objective, each weighing more than all later ones: a second search among the best points rarely finds any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import gcd

import numpy as np

from fleetctl.planner.placement.arrays import Floats
from fleetctl.planner.placement.exact.linear import NODE_LIMIT, InfeasibleError, LinearModel
from fleetctl.planner.placement.exact.model_rows import Relaxation
from fleetctl.planner.placement.objective import Level, Levels

MAX_INTEGERS, MAX_BY_NODE = 2_500, 6_000
"""The most integers, over pools and node by node, for which a point is computed; beyond, only a bound.

Over pools a point only tightens the bound: on 500 nodes with seven sizes of card it costs 8 s and gains nothing.
"""
MAX_AT_LAST, NODES_AT_LAST = 25_000, 20
"""The same limit node by node if nothing else has reached the bound, and the branch-and-bound nodes per solve then.

100 nodes filled to the last share by 500 replicas of 60 models (`planted`): without this, one replica is missing in 3
of 40 fleets; with it none, for 2 to 4 more CPU seconds in these three.
"""
MAX_WEIGHED = 1e8
"""The largest value of an objective of several stages; up to here the solver's tolerance (1e-9 of it) is below one."""
WHOLE = 1e-6
"""The tolerance below a whole number."""


@dataclass(frozen=True, slots=True)
class Climb:
    """The highest values of the stages of a relaxation."""

    levels: Levels
    """No plan has higher levels. Stages that were not solved have what each class of demand could get alone."""
    attained: bool
    """The incumbent has exactly these levels."""
    values: Floats | None
    """An integer point of the relaxation with these levels, by column; None if none was needed or found."""
    replicas: tuple[int, ...] | None
    """The replicas of each class of demand at the last point found, integer or not, rounded down."""


def climb(
    relaxation: Relaxation, incumbent: Levels | None = None, *, to_the_top: bool = False, at_last: bool = False
) -> Climb:
    """Maximize stage after stage; stop at the first stage that exceeds the incumbent, unless `to_the_top`.

    `at_last` = nothing else has reached the bound, so a model of any size is solved, within NODES_AT_LAST.
    """
    known = [value for level in incumbent or () for value in level]
    stages, ascent = _stages(relaxation), _Ascent(relaxation, at_last=at_last)
    reached = [stage.most * stage.unit for stage in stages]
    place = 0
    with suppress(InfeasibleError):
        while place < len(stages):
            have, valid = known[place] if known and known[:place] == reached[:place] else None, ascent.tight
            level_ends = place + 3 - place % 3
            values = ascent.raise_to_top(stages[place:level_ends], None if have is None else have // stages[place].unit)
            for stage, value in zip(stages[place:], values, strict=False):
                if valid:
                    reached[place] = value * stage.unit
                place += 1
            if known and reached[:place] != known[:place] and not to_the_top:
                break
    levels = tuple(Level(*reached[place:place + 3]) for place in range(0, len(reached), 3))
    return Climb(levels, reached == known, ascent.values, ascent.replicas())


def most_replicas(relaxation: Relaxation, at_least: Sequence[int] = ()) -> int:
    """Bound the new replicas of any plan that reaches the values `at_least` at the first stages.

    Raises InfeasibleError if the limits of the relaxation's columns allow no plan at all.
    """
    ascent = _Ascent(relaxation)
    for stage, value in zip(_stages(relaxation), at_least, strict=False):
        ascent.keep(stage, value // stage.unit)
    everything = _stage(relaxation.model, dict.fromkeys(relaxation.replicas, 1))
    try:
        return ascent.raise_to_top([everything], None)[0]
    except InfeasibleError:
        if not at_least:
            raise
        return most_replicas(relaxation)


@dataclass(frozen=True, slots=True)
class _Stage:
    """An objective by column, in units of `unit`; `most` = its value if each column is at its limit."""

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
    """Solves stages on a copy of the model; each stage fixes the value it reached.

    `tight` = the stages so far reached their bounds; otherwise later stages bound nothing. `point` = the last point
    found, integer or not.
    """

    def __init__(self, relaxation: Relaxation, *, at_last: bool = False) -> None:
        self.relaxation, self.at_last, self.tight = relaxation, at_last, True
        self.model = relaxation.model.copy()
        self.values: Floats | None = None
        self.point: Floats | None = None

    def raise_to_top(self, stages: Sequence[_Stage], have: int | None) -> list[int]:
        """Return the bound of the first stage, and of the later ones that were solved together with it.

        `have` = the value of the incumbent, which is often the bound already; then no point is needed.
        """
        first = stages[0]
        at_top = all(self.model.lows[column] == self.model.highs[column] for column in first.objective)
        if at_top or have == first.most:
            self.keep(first, first.most)
            return [first.most]
        most, self.point = self.model.maximize(first.objective, relaxed=True)
        limit = MAX_BY_NODE if self.relaxation.is_by_node else MAX_INTEGERS
        if most == have or (len(self.model.highs) > limit and not self.at_last):
            self.keep(first, most)
            return [most]
        return self._solve(_together(stages), most)

    def keep(self, stage: _Stage, value: int) -> None:
        """Fix the value of a stage as a lower limit for later stages."""
        if value == stage.most:
            for column in stage.objective:
                self.model.lows[column] = self.model.highs[column]
        elif value:
            self.model.row([(column, float(factor)) for column, factor in stage.objective.items()], value, np.inf)

    def replicas(self) -> tuple[int, ...] | None:
        """Return the replicas of each class of demand at the last point."""
        return None if self.point is None else tuple(
            int(self.point[column] + WHOLE) for column in self.relaxation.replicas)

    def _solve(self, stages: Sequence[_Stage], most: int) -> list[int]:
        """Solve some stages at once; `most` = a bound on the first."""
        objective: Counter[int] = Counter()
        weight = 1
        for stage in reversed(stages):
            for column, factor in stage.objective.items():
                objective[column] += factor * weight
            weight *= stage.most + 1
        answer = self.model.maximize(objective, relaxed=False, nodes=NODES_AT_LAST if self.at_last else NODE_LIMIT)
        bounds = _parts(answer.bound, stages)
        if bounds[0] > most:
            bounds = [most, *(stage.most for stage in stages[1:])]
        reached = bounds
        if answer.values is not None:
            self.values = self.point = point = answer.values
            reached = [round(sum(factor * point[column] for column, factor in stage.objective.items()))
                       for stage in stages]
        for stage, value in zip(stages, reached, strict=True):
            self.keep(stage, value)
        self.tight = self.tight and reached == bounds
        return bounds


def _together(stages: Sequence[_Stage]) -> Sequence[_Stage]:
    """Return as many stages from the first as fit into one weighted objective."""
    count, whole = 1, stages[0].most + 1
    for stage in stages[1:]:
        whole *= stage.most + 1
        if whole > MAX_WEIGHED:
            break
        count += 1
    return stages[:count]


def _parts(value: int, stages: Sequence[_Stage]) -> list[int]:
    """Split the value of a weighted objective into the values of its stages."""
    parts = []
    for stage in reversed(stages[1:]):
        value, part = divmod(value, stage.most + 1)
        parts.append(part)
    return [value, *reversed(parts)]
