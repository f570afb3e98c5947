"""The exact tier: proves a packing best, or finds a better one.

A bound over pools of nodes comes first; it is cheap, and exact for whole cards of sizes 1, 2, 4, 8. If it is higher
than the packing and the fleet is small enough, each node is distinguished and a solver finds the best packing; in a
larger fleet only after the other steps.

Over pools, rows bound how many members all nodes of a pool can hold, never below the truth. For whole cards whose sizes
divide one another the rows for groups of s cards are exact (Coffman, Garey and Johnson, "Bin packing with divisible
item sizes", 1987): an item of L cards takes L / s of the groups of s cards, wherever it is. For all other sizes
they are still valid, since floor(a / s) + floor(b / s) <= floor((a + b) / s).

A relaxation is maximized stage by stage, in order of priority; what an earlier stage reached stays fixed. A stage is
the models served, the GPU share or the replicas of one priority; the last three are what the choice of variants saves.
No plan has higher values, in this order, so a plan with exactly these values is proven best. If a search for whole
numbers is needed, the stages of one priority form one objective, each weighing more than all later ones: a second
search among the best points rarely finds any.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, repeat
from math import gcd

import numpy as np

from fleetctl.documents.inventory import card_indices
from fleetctl.documents.quantity import SHARE, count_of
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand, Option, Placed
from fleetctl.planner.placement.exact.bound import count_bound
from fleetctl.planner.placement.exact.columns import (
    PRICED,
    SHARED,
    Grain,
    NodePool,
    Owner,
    needs_replicas,
    pool_nodes,
    shares_slots,
)
from fleetctl.planner.placement.exact.linear import NODE_LIMIT, InfeasibleError, LinearModel
from fleetctl.planner.placement.exact.model_rows import Relaxation
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.objective import Level, Levels, Saved, count_options, proper, savings
from fleetctl.planner.placement.occupants import Occupant, Occupants
from fleetctl.planner.placement.problem import Problem, state_problem
from fleetctl.planner.placement.realize import PackingLayout, PlacedMember, creation_order
from fleetctl.planner.placement.reduce import reduce_problem
from fleetctl.planner.placement.tally import Floats, Tally

MAX_COLUMNS = 40_000
"""The most columns of members with which domains are distinguished."""
MAX_FIRST, MAX_LATER = 1_000, 3_000
"""The most columns of members with which each node is distinguished: at first, and after all other steps.

Measured on fleets short of CPU: 300 nodes and 6 kinds take 3 CPU seconds, 600 nodes 8 to 24, where patterns find the
same plan in 2 and only the proof is missing. 100 nodes filled to the last share (`planted`): the model takes 1.2 s, and
in three of the six fleets (of eight) that need more than one pass, the other steps do without.
"""
MAX_FOR_VARIANTS = 400
"""The same at first, if a packing lacks nothing but better variants: over pools, the bound nearly always tells which.

1,000 nodes with 200 models of three variants: 0.7 instead of 1.3 CPU seconds for the same plan.
"""
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
Spots = list[tuple[int, int]]
"""(node, number of members there) pairs."""


@dataclass(frozen=True, slots=True)
class Proven:
    """The result of the exact tier for a packing."""

    levels: Levels
    """No plan has higher levels, in order of priority."""
    layout: PackingLayout | None
    """A layout with these levels or nearly so, for the ledger to confirm; None if not found or not needed."""
    replicas: tuple[int, ...] | None
    """The replicas of each class of demand in such a packing; None if not known or not needed."""
    relaxation: Relaxation
    """The finest relaxation used."""


def examine(problem: Problem, reached: Levels) -> Proven:
    """Compare the levels that a packing reached with what is possible."""
    coarse = relax(problem)
    by_node: Relaxation | None = None
    asked = False

    def is_too_large(only_saved: bool) -> bool:
        nonlocal by_node, asked
        asked, by_node = True, relax_by_node(coarse, MAX_FOR_VARIANTS if only_saved else MAX_FIRST)
        return by_node is None

    top = climb(coarse, reached, goes_on=is_too_large)
    if not (top.attained or asked):
        is_too_large(proper(top.levels) == proper(reached))
    if by_node is not None:
        return _examine_by_node(by_node, reached)
    return Proven(top.levels, None, None if top.attained else top.replicas, coarse)


def examine_at_last(examined: Proven, reached: Levels, *, solve: bool) -> Proven:
    """Use the model of each node if `examine` did not solve it; `solve` = even if it was too large for that.

    Not if a packing lacks nothing but better variants.
    """
    finest = examined.relaxation
    if proper(examined.levels) == proper(reached):
        return examined
    by_node = finest if finest.is_by_node else relax_by_node(finest)
    if by_node is None:
        return examined
    at_last = solve and MAX_BY_NODE < len(by_node.model.highs) <= MAX_AT_LAST
    return examined if by_node is finest and not at_last else _examine_by_node(by_node, reached, at_last=at_last)


def _examine_by_node(model: Relaxation, reached: Levels, *, at_last: bool = False) -> Proven:
    top = climb(model, reached, to_the_top=True, at_last=at_last)
    layout = None if top.attained or top.values is None else layout_at(model, top.values)
    return Proven(top.levels, layout, None if top.attained else top.replicas, model)


def bound_replicas(examined: Proven, reached: Levels) -> int:
    """Bound the new replicas of any plan that is at least as good as one with the levels `reached`."""
    have = [value for level in reached for value in level]
    top = [value for level in examined.levels for value in level]
    proven = next((index for index, pair in enumerate(zip(have, top, strict=True)) if pair[0] != pair[1]), len(have))
    return max_replicas(examined.relaxation, have[:proven + 1])


def argument_for(bound: int, examined: Proven) -> str:
    """Return the argument why no plan places more than `bound` replicas: a plain count if that is enough."""
    counted = count_bound(examined.relaxation.tally)
    if counted.replicas <= bound:
        return f"slot count: {counted.method}"
    groups = len(examined.relaxation.pools)
    return f"relaxation over {count_of(groups, 'group')} of nodes"


def relax(problem: Problem) -> Relaxation:
    """State the problem as a linear model over pools of alike nodes. O(demand classes x node classes) work, in NumPy.

    If distinguishing domains would make it too large, a gang bound to one may be split over several; the bound is then
    weaker but valid.
    """
    tally = Tally(problem)
    pools, columns = _pools(tally, Grain.ALIKE)
    return Relaxation(tally, pools if columns <= MAX_COLUMNS else pool_nodes(tally, Grain.ANYWHERE))


def relax_by_node(coarse: Relaxation, limit: int = MAX_LATER) -> Relaxation | None:
    """State the same problem node by node; None if it has more than `limit` columns of members.

    Replicas are not distinguished if that would make it too large.
    """
    if int(coarse.tally.nodes.sum()) > limit:
        return None
    by_replica = True
    pools, columns = _pools(coarse.tally, Grain.NODES, by_replica=True)
    if columns > MAX_LATER:
        by_replica = False
        pools, columns = _pools(coarse.tally, Grain.NODES)
    return Relaxation(coarse.tally, pools, by_replica=by_replica) if columns <= min(limit, MAX_LATER) else None


def _pools(tally: Tally, grain: Grain, *, by_replica: bool = False) -> tuple[tuple[NodePool, ...], int]:
    """Return the pools of a grain, and the number of columns of members over them."""
    by_node, pools = grain == Grain.NODES, pool_nodes(tally, grain)
    columns = sum(len(pool.kinds) for pool in pools)
    for demand in tally.problem.demands:
        replicas = demand.missing if by_replica and needs_replicas(demand, tally) else 1
        columns += replicas * len(pools) * sum(
            len(gang.parts) for gang in demand.gangs
            if gang.domain_label or (gang.size > 1 and by_node) or demand.value_limit or shares_slots(demand, tally))
    return pools, columns


def layout_at(model: Relaxation, values: Floats) -> PackingLayout:
    """Return the layout of a point of a model by node (exact.py:relax_by_node)."""
    counts = np.rint(values).astype(np.int64).tolist()
    replicas = tuple(counts[column] for column in model.replicas)
    on_node: dict[int, Counter[PlacedMember]] = defaultdict(Counter)
    for (owner, kind, _), spots in _spots(model, counts).items():
        pieces = (_shared_pieces(model, owner, kind, replicas) if owner in (SHARED, PRICED)
                  else repeat(PlacedMember(owner.demand, owner.gang, kind, owner.replica)))
        for node, piece in zip(chain.from_iterable(repeat(*spot) for spot in spots), pieces, strict=False):
            on_node[node][piece] += 1
    offers = {pool.node: model.problem.nodes[int(pool.rows[0])].offer for pool in model.pools}
    return PackingLayout(replicas, {node: _in_order(model.problem, offers[node], pieces)
                             for node, pieces in sorted(on_node.items())})


def _spots(model: Relaxation, counts: list[int]) -> dict[tuple[Owner, int, str | None], Spots]:
    """Return where members are, by their owner, kind, and the value of the label that binds their gang."""
    spots: dict[tuple[Owner, int, str | None], Spots] = defaultdict(list)
    for member, column in model.members.items():
        pool = model.pools[member.pool]
        if counts[column] and pool.node is not None:
            owner = member.owner
            is_own = owner not in (SHARED, PRICED)
            label = model.problem.demands[owner.demand].gangs[owner.gang].domain_label if is_own else ""
            value = pool.domain(label) if label else None
            spots[owner, member.kind, value].append((pool.node, counts[column]))
    return spots


def _shared_pieces(model: Relaxation, owner: Owner, kind: int, replicas: Iterable[int]) -> Iterator[PlacedMember]:
    """Yield the members of a kind that share columns: those of gangs without columns of their own."""
    own = {(member.owner.demand, member.owner.gang) for member in model.members}
    for number, (demand, made) in enumerate(zip(model.problem.demands, replicas, strict=True)):
        if owner != (PRICED if demand.shape.key in model.priced else SHARED):
            continue
        for index, gang in enumerate(demand.gangs):
            if (number, index) not in own:
                yield from [PlacedMember(number, index, kind)] * (dict(gang.parts).get(kind, 0) * gang.copies * made)


def _in_order(problem: Problem, offer: Offer, pieces: Counter[PlacedMember]) -> tuple[PlacedMember, ...]:
    """Return the members on one node in order of creation, followed by members for which no order was found."""
    numbered = sorted(pieces)
    claims = {number: problem.kinds[piece.kind][0] for number, piece in enumerate(numbered)}
    pattern = [(number, pieces[piece]) for number, piece in enumerate(numbered)]
    ordered = [numbered[number] for number in creation_order(offer, pattern, claims)]
    return (*ordered, *(pieces - Counter(ordered)).elements())


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
    relaxation: Relaxation, incumbent: Levels | None = None, *, to_the_top: bool = False,
    goes_on: Callable[[bool], bool] = lambda _: False, at_last: bool = False,
) -> Climb:
    """Maximize stage after stage; stop at the first stage that exceeds the incumbent, unless `to_the_top`.

    There `goes_on` is asked, too, with whether the incumbent lacks nothing but better variants. `at_last` = nothing
    else has reached the bound, so a model of any size is solved, within NODES_AT_LAST.
    """
    given = [value for level in incumbent or () for value in level]
    stages, ascent = _stages(relaxation), _Ascent(relaxation, at_last=at_last)
    reached = [stage.maximum * stage.unit for stage in stages]
    index, count = 0, len(relaxation.problem.priorities)
    with suppress(InfeasibleError):
        while index < len(stages):
            equal_so_far = bool(given) and given[:index] == reached[:index]
            have, valid = given[index] if equal_so_far else None, ascent.tight
            level_ends = index + 3 - index % 3
            values = ascent.raise_to_top(stages[index:level_ends], None if have is None else have // stages[index].unit)
            for stage, value in zip(stages[index:], values, strict=False):
                if valid:
                    reached[index] = value * stage.unit
                index += 1
            if given and reached[:index] != given[:index] and not to_the_top:
                to_the_top = goes_on(given[:3 * count] == reached[:3 * count])
                if not to_the_top:
                    break
    parts = [tuple(reached[index:index + 3]) for index in range(0, len(reached), 3)]
    levels: Levels = (*(Level(*part) for part in parts[:count]), *(Saved(*part) for part in parts[count:]))
    return Climb(levels, reached == given, ascent.values, ascent.replicas())


def max_replicas(relaxation: Relaxation, at_least: Sequence[int] = ()) -> int:
    """Bound the new replicas of any plan that reaches the values `at_least` at the first stages.

    Raises InfeasibleError if the limits of the relaxation's columns allow no plan at all.
    """
    ascent = _Ascent(relaxation)
    for stage, value in zip(_stages(relaxation), at_least, strict=False):
        ascent.keep(stage, value // stage.unit)
    everything = _stage(relaxation.model, dict.fromkeys(relaxation.totals, 1))
    try:
        return ascent.raise_to_top([everything], None)[0]
    except InfeasibleError:
        if not at_least:
            raise
        return max_replicas(relaxation)


@dataclass(frozen=True, slots=True)
class _Stage:
    """An objective by column, in units of `unit`; `minimum`, `maximum` = its limits, by those of each column."""

    objective: Mapping[int, int]
    unit: int
    minimum: int
    maximum: int
    size: int
    """The number of values between the limits."""


def _stage(model: LinearModel, objective: Mapping[int, int]) -> _Stage:
    unit = gcd(*objective.values()) or 1
    small = {column: value // unit for column, value in objective.items() if value}
    ends = [int(value * model.highs[column]) for column, value in small.items()]
    minimum, maximum = sum(end for end in ends if end < 0), sum(end for end in ends if end > 0)
    return _Stage(small, unit, minimum, maximum, maximum - minimum + 1)


def _stages(relaxation: Relaxation) -> list[_Stage]:
    demands = relaxation.problem.demands
    stages = []
    for priority in relaxation.problem.priorities:
        level = [number for number, demand in enumerate(demands) if demand.priority == priority]
        unserved = [number for number in level if demands[number].unserved]
        served = Counter({relaxation.served[number]: 1 for number in unserved})
        served.update(relaxation.least[number] for number in level if number in relaxation.least)
        stages += [
            _stage(relaxation.model, served),
            _stage(relaxation.model, {relaxation.totals[number]: demands[number].units for number in level}),
            _stage(relaxation.model, {relaxation.totals[number]: 1 for number in level}),
        ]
    if relaxation.problem.has_variants:
        saving = savings(one for demand in demands for one in demand.demands)
        saved = {column: saving[demand.demands[0].option]
                 for column, demand in zip(relaxation.replicas, demands, strict=True)}
        stages += [_stage(relaxation.model, {column: one.units for column, one in saved.items()}),
                   _stage(relaxation.model, {column: -price for column, price in relaxation.prices().items()}),
                   _stage(relaxation.model, {column: one.preference for column, one in saved.items()})]
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
        if at_top or have == first.maximum:
            fixed = int(sum(factor * self.model.lows[column] for column, factor in first.objective.items()))
            self.keep(first, maximum := fixed if at_top else first.maximum)
            return [maximum]
        maximum, self.point = self.model.maximize(first.objective, relaxed=True)
        limit = MAX_BY_NODE if self.relaxation.is_by_node else MAX_INTEGERS
        if maximum == have or (len(self.model.highs) > limit and not self.at_last):
            self.keep(first, maximum)
            return [maximum]
        return self._solve(_together(stages), maximum)

    def keep(self, stage: _Stage, value: int) -> None:
        """Fix the value of a stage as a lower limit for later stages."""
        if value == stage.maximum:
            for column, factor in stage.objective.items():
                if factor > 0:
                    self.model.lows[column] = self.model.highs[column]
                else:
                    self.model.highs[column] = self.model.lows[column]
        elif value > stage.minimum:
            self.model.row([(column, float(factor)) for column, factor in stage.objective.items()], value, np.inf)

    def replicas(self) -> tuple[int, ...] | None:
        """Return the replicas of each class of demand at the last point."""
        return None if self.point is None else tuple(
            int(self.point[column] + WHOLE) for column in self.relaxation.replicas)

    def _solve(self, stages: Sequence[_Stage], maximum: int) -> list[int]:
        """Solve some stages at once; `maximum` = a bound on the first."""
        objective: Counter[int] = Counter()
        weight = 1
        for stage in reversed(stages):
            for column, factor in stage.objective.items():
                objective[column] += factor * weight
            weight *= stage.size
        answer = self.model.maximize(objective, relaxed=False, nodes=NODES_AT_LAST if self.at_last else NODE_LIMIT)
        bounds = _parts(answer.bound, stages)
        if bounds[0] > maximum:
            bounds = [maximum, *(stage.maximum for stage in stages[1:])]
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
    count, whole = 1, stages[0].size
    for stage in stages[1:]:
        whole *= stage.size
        if whole > MAX_WEIGHED:
            break
        count += 1
    return stages[:count]


def _parts(value: int, stages: Sequence[_Stage]) -> list[int]:
    """Split the value of a weighted objective into the values of its stages."""
    parts = []
    for stage in reversed(stages[1:]):
        value, above = divmod(value - stage.minimum, stage.size)
        parts.append(stage.minimum + above)
    return [value, *reversed(parts)]


def repacked_bound(
    demands: Sequence[Demand], placed: Sequence[Placed], bound: int, occupants: Occupants, before: Ledger
) -> int | None:
    """Bound the new replicas of any plan that keeps all of `placed`, if live ones of the same models could be moved.

    This is the cost of today's fragmentation; nothing is ever moved. It is computed on a copy of the ledger without
    those replicas, which are then placed again before any new ones.

    `bound` = the bound without moves; `before` = the ledger before anything was placed. None if moves gain nothing, or
    if the gain is unknown. A live replica is not movable if it does not have its model's current shape, if its cards
    are unknown, or if one of its nodes takes no new replicas.
    """
    running = replace(occupants, replicas=[occupant for occupant in occupants.replicas if not occupant.planned])
    movable = dict(_movable(demands, running, before))
    lifted = Counter(demand.option for demand in movable.values())
    if not lifted:
        return None
    kept = count_options(placed)
    indices = {index for number in movable for index in running.replicas[number].places}
    emptied = before.copied(
        offers={index: running.offer_without(index, movable, sure=False)[0] for index in indices},
        ended=[(running.replicas[number].model, running.replicas[number].places) for number in movable])
    try:
        moved = _maximum_with_moves(demands, lifted, kept, emptied)
        if moved <= bound:
            return None
        return moved if moved > _maximum_with_moves(demands, Counter(), kept, before) else None
    except InfeasibleError:  # a replica runs where the file no longer allows it
        return None


def _maximum_with_moves(
    demands: Sequence[Demand], lifted: Counter[Option], kept: Counter[Option], ledger: Ledger
) -> int:
    """Bound the new replicas, if all `lifted` ones and the `kept` ones of the plan must be placed, by variant."""
    of_model = Counter[int]()
    for (place, _), count in lifted.items():
        of_model[place] += count
    raised = [replace(demand, missing=demand.missing + of_model[demand.place], live=1, least=0, target=None,
                      most=None if demand.most is None else max(0, demand.most) + lifted[demand.option])
              for demand in demands]
    raised = [demand for demand in raised if demand.at_most]
    reduced = reduce_problem(state_problem(raised, ledger), raised)
    relaxation = relax(state_problem(reduced.demands, reduced.ledger))
    for column, demand_class in zip(relaxation.replicas, relaxation.problem.demands, strict=True):
        required = sum(lifted[demand.option] + kept[demand.option] for demand in demand_class.demands)
        relaxation.model.lows[column] = min(required, relaxation.model.highs[column])
    return max_replicas(relaxation) - lifted.total()


def _movable(demands: Sequence[Demand], running: Occupants, ledger: Ledger) -> Iterator[tuple[int, Demand]]:
    """Yield the number of each movable live replica, with the demand of its model, or of the variant that it runs."""
    demands_of: dict[str, list[Demand]] = {}
    for demand in demands:
        demands_of.setdefault(demand.shape.key, []).append(demand)
    for number, occupant in enumerate(running.replicas):
        ways = demands_of.get(occupant.model, ()) if occupant.counted else ()
        alike = next((demand for demand in ways if _can_move(occupant, demand.shape, running, ledger)), None)
        if alike is not None:
            yield number, alike


def _can_move(occupant: Occupant, shape: ReplicaShape, running: Occupants, ledger: Ledger) -> bool:
    members = [(index, member) for index, there in occupant.live.items() for member in there]
    if sorted((member.gpus, member.cpus, member.memory) for _, member in members) != sorted(
            (seat.claim.gpus, seat.claim.cpus, seat.claim.memory) for seat in shape.seats):
        return False
    return all(ledger.nodes[index].open and (
        not member.gpus or len(card_indices(member, running.nodes[index].gpus)) == -(-member.gpus // SHARE))
        for index, member in members)
