"""The exact tier: proves a packing best, or finds a better one.

A bound over pools of nodes comes first; it is cheap, and exact for whole cards of sizes 1, 2, 4, 8. If it is higher
than the packing and the fleet is small enough, each node is distinguished and a solver finds the best packing; in a
larger fleet only after the other steps.

Over pools, rows bound how many members all nodes of a pool can hold, never below the truth. For whole cards whose sizes
divide one another the rows for groups of s cards are exact (Coffman, Garey and Johnson, "Bin packing with divisible
item sizes", 1987): an item of L cards takes L / s of the groups of s cards, wherever it is. For all other sizes
they are still valid, since floor(a / s) + floor(b / s) <= floor((a + b) / s).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from fleetctl.documents.quantity import count_of
from fleetctl.planner.placement.arrays import Floats
from fleetctl.planner.placement.creation_order import creation_order
from fleetctl.planner.placement.exact.bound import count_bound
from fleetctl.planner.placement.exact.climb import MAX_AT_LAST, MAX_BY_NODE, climb, most_replicas
from fleetctl.planner.placement.exact.columns import SHARED, Grain, Owner, Pool, needs_replicas, pool_nodes
from fleetctl.planner.placement.exact.model_rows import Relaxation
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.objective import Levels
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.realize import Layout, Piece
from fleetctl.planner.placement.tally import Tally

MAX_COLUMNS = 40_000
"""The most columns of members with which domains are distinguished."""
MAX_FIRST, MAX_LATER = 1_000, 3_000
"""The most columns of members with which each node is distinguished: at first, and after all other steps.

Measured on fleets short of CPU: 300 nodes and 6 kinds take 3 CPU seconds, 600 nodes 8 to 24, where patterns find the
same plan in 2 and only the proof is missing. 100 nodes filled to the last share (`planted`): the model takes 1.2 s, and
in three of the six fleets (of eight) that need more than one pass, the other steps do without.
"""
Spots = list[tuple[int, int]]
"""(node, number of members there) pairs."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of the exact tier for a packing."""

    levels: Levels
    """No plan has higher levels, in order of priority."""
    layout: Layout | None
    """A layout with these levels or nearly so, for the ledger to confirm; None if not found or not needed."""
    replicas: tuple[int, ...] | None
    """The replicas of each class of demand in such a packing; None if not known or not needed."""
    relaxation: Relaxation
    """The finest relaxation used."""


def examine(problem: Problem, reached: Levels) -> Examined:
    """Compare the levels that a packing reached with what is possible."""
    coarse = relax(problem)
    top = climb(coarse, reached)
    if top.attained:
        return Examined(top.levels, None, None, coarse)
    by_node = relax_by_node(coarse, MAX_FIRST)
    if by_node is None:
        top = climb(coarse, reached, to_the_top=True)
        return Examined(top.levels, None, top.replicas, coarse)
    return _examine_by_node(by_node, reached)


def examine_at_last(examined: Examined, reached: Levels, *, solve: bool) -> Examined:
    """Use the model of each node if `examine` did not solve it; `solve` = even if it was too large for that."""
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
    """Bound the new replicas of any plan that is at least as good as one with the levels `reached`."""
    have = [value for level in reached for value in level]
    most = [value for level in examined.levels for value in level]
    proven = next((place for place, pair in enumerate(zip(have, most, strict=True)) if pair[0] != pair[1]), len(have))
    return most_replicas(examined.relaxation, have[:proven + 1])


def argument_for(most: int, examined: Examined) -> str:
    """Return the argument why no plan places more than `most` replicas: a plain count if that is enough."""
    counted = count_bound(examined.relaxation.tally)
    if counted.replicas <= most:
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


def _pools(tally: Tally, grain: Grain, *, by_replica: bool = False) -> tuple[tuple[Pool, ...], int]:
    """Return the pools of a grain, and the number of columns of members over them."""
    by_node, pools = grain == Grain.NODES, pool_nodes(tally, grain)
    columns = sum(len(pool.kinds) for pool in pools)
    for demand in tally.problem.demands:
        replicas = demand.missing if by_replica and needs_replicas(demand, tally) else 1
        columns += replicas * len(pools) * sum(
            len(gang.parts) for gang in demand.gangs
            if gang.domain_label or (gang.size > 1 and by_node) or demand.value_limit)
    return pools, columns


def layout_at(model: Relaxation, values: Floats) -> Layout:
    """Return the layout of a point of a model by node (exact.py:relax_by_node)."""
    counts = np.rint(values).astype(np.int64).tolist()
    replicas = tuple(counts[column] for column in model.replicas)
    on_node: dict[int, Counter[Piece]] = defaultdict(Counter)
    for (owner, kind, _), spots in _spots(model, counts).items():
        pieces = (_shared_pieces(model, kind, replicas) if owner == SHARED
                  else repeat(Piece(owner.demand, owner.gang, kind, owner.replica)))
        for node, piece in zip(chain.from_iterable(repeat(*spot) for spot in spots), pieces, strict=False):
            on_node[node][piece] += 1
    offers = {pool.node: model.problem.nodes[int(pool.rows[0])].offer for pool in model.pools}
    return Layout(replicas, {node: _in_order(model.problem, offers[node], pieces)
                             for node, pieces in sorted(on_node.items())})


def _spots(model: Relaxation, counts: list[int]) -> dict[tuple[Owner, int, str | None], Spots]:
    """Return where members are, by their owner, kind, and the value of the label that binds their gang."""
    spots: dict[tuple[Owner, int, str | None], Spots] = defaultdict(list)
    for member, column in model.members.items():
        pool = model.pools[member.pool]
        if counts[column] and pool.node is not None:
            owner = member.owner
            label = "" if owner == SHARED else model.problem.demands[owner.demand].gangs[owner.gang].domain_label
            value = pool.domain(label) if label else None
            spots[owner, member.kind, value].append((pool.node, counts[column]))
    return spots


def _shared_pieces(model: Relaxation, kind: int, replicas: Iterable[int]) -> Iterator[Piece]:
    """Yield the members of a kind that share columns: those of gangs without columns of their own."""
    own = {(member.owner.demand, member.owner.gang) for member in model.members}
    for number, (demand, made) in enumerate(zip(model.problem.demands, replicas, strict=True)):
        for place, gang in enumerate(demand.gangs):
            if (number, place) not in own:
                yield from [Piece(number, place, kind)] * (dict(gang.parts).get(kind, 0) * gang.copies * made)


def _in_order(problem: Problem, offer: Offer, pieces: Counter[Piece]) -> tuple[Piece, ...]:
    """Return the members on one node in order of creation, followed by members for which no order was found."""
    numbered = sorted(pieces)
    claims = {number: problem.kinds[piece.kind][0] for number, piece in enumerate(numbered)}
    pattern = [(number, pieces[piece]) for number, piece in enumerate(numbered)]
    ordered = [numbered[number] for number in creation_order(offer, pattern, claims)]
    return (*ordered, *(pieces - Counter(ordered)).elements())
