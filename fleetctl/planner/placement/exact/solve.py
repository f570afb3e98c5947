"""Turns a point of the model of each node into a layout: the node of each member, in an order that Ray follows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

import numpy as np

from fleetctl.planner.placement.arrays import Floats
from fleetctl.planner.placement.creation_order import creation_order
from fleetctl.planner.placement.exact.columns import SHARED, Owner
from fleetctl.planner.placement.exact.model_rows import Relaxation
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.realize import Layout, Piece

Spots = list[tuple[int, int]]
"""(node, number of members there) pairs."""


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
