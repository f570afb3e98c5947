"""Rows on a pool of nodes for amounts that simply add up: CPU, memory, and the GPU share Ray has free.

With floor(amount / t) for every demanded amount t as well as in full: 3 + 3 free CPUs do not hold a member of 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.exact.card_rows import Term
from fleetctl.planner.placement.exact.linear import LinearModel
from fleetctl.planner.placement.exact.pools import Pool
from fleetctl.planner.placement.exact.tally import Tally

MAX_STEPS = 12
FINEST = 1_000_000


def add_sum_rows(
    model: LinearModel, tally: Tally, pool: Pool, terms: Sequence[Term]
) -> None:
    """Bound the CPU and the memory that members can take on a pool."""
    amounts: list[tuple[Callable[[Claim], int], Ints]] = [
        (lambda claim: claim.cpus, tally.cpus), (lambda claim: claim.memory, tally.memory),
    ]
    for amount, free in amounts:
        asked = [(term.column, amount(term.claim)) for term in terms]
        add_floor_rows(model, [pair for pair in asked if pair[1]], free[pool.rows], pool.counts)


def add_floor_rows(
    model: LinearModel, asked: Sequence[tuple[int, int]], free: Ints, nodes: Ints
) -> None:
    """Add sum(floor(amount / t) * members) <= sum(floor(free / t)) over nodes, for a few t; (column, amount) pairs."""
    if not asked:
        return
    sizes = sorted({amount for _, amount in asked})
    for step in {_unit(sizes), *_few(sizes)}:
        terms = [(column, float(amount // step)) for column, amount in asked if amount >= step]
        model.at_most(terms, float(nodes @ (free.clip(min=0) // step)))


def _unit(sizes: Sequence[int]) -> int:
    """Return the largest unit in which all sizes are whole; a coarser one where numbers would grow too long."""
    return max(gcd(*sizes), sizes[-1] // FINEST)


def _few(sizes: Sequence[int]) -> list[int]:
    if len(sizes) <= MAX_STEPS:
        return list(sizes)
    return [sizes[index * (len(sizes) - 1) // (MAX_STEPS - 1)] for index in range(MAX_STEPS)]
