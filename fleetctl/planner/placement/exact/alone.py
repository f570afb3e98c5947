"""How many replicas each class of demand could get at most if all that is free were its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.exact.tally import Tally
from fleetctl.planner.placement.problem import DemandClass, Gang, SpreadLimit


def replicas_alone(tally: Tally) -> tuple[int, ...]:
    """Bound the new replicas of each class of demand, all else left out: members per node, distinct nodes, slots."""
    return tuple(_replicas(demand, tally) for demand in tally.problem.demands)


def _replicas(demand: DemandClass, tally: Tally) -> int:
    most = demand.missing if demand.limit is None else min(demand.missing, _by_limit(demand.limit, demand.gangs))
    for gang in demand.gangs:
        if most:
            most = min(most, int(sum(gangs_by_domain(demand, gang, most * gang.copies, tally).values())) // gang.copies)
    return most


def _by_limit(limit: SpreadLimit, gangs: Sequence[Gang]) -> int:
    """Bound the replicas by the limit of their spread; where nodes share no value, a gang touches several."""
    apart = max(-(-gang.size // gang.per_node) for gang in gangs) if limit.per_node else 1
    return sum(limit.room.values()) // apart


def gangs_by_domain(demand: DemandClass, gang: Gang, wanted: int, tally: Tally) -> dict[str | None, int]:
    """Bound the gangs that fit into each domain by itself, at most `wanted`; under None where any node will do."""
    names, domain = _domains(gang, tally)
    most = np.full(len(names), wanted, dtype=np.int64)
    slots = tally.slots(demand)
    for kind, count in gang.parts:
        room = tally.most(kind).astype(np.int64)
        if slots is not None:
            room = np.minimum(room, slots * count * gang.copies)
        most = np.minimum(most, _most_gangs(room, count, gang, most, domain, tally))
    return dict(zip(names, most.tolist(), strict=True))


def _domains(gang: Gang, tally: Tally) -> tuple[list[str | None], Ints]:
    """Return the domains and the number of the domain each node class is in; -1 = in none."""
    label = gang.domain_label
    if label is None:
        return [None], np.zeros(len(tally.nodes), dtype=np.int64)
    values = [node.domain(label) for node in tally.problem.nodes]
    names: list[str | None] = [*sorted({value for value in values if value is not None})]
    number = {name: index for index, name in enumerate(names)}
    return names, np.array([-1 if value is None else number[value] for value in values], dtype=np.int64)


def _most_gangs(room: Ints, count: int, gang: Gang, wanted: Ints, domain: Ints, tally: Tally) -> Ints:
    """Return per domain the most gangs g <= wanted with sum(min(room, per_node * g)) >= count * g.

    The range of such g has no gaps, so it can be halved.
    """
    inside = np.flatnonzero(domain >= 0)
    of, nodes, free = domain[inside], tally.nodes[inside], room[inside]
    low, high = np.zeros_like(wanted), wanted.copy()
    middle = high
    while True:
        stand = nodes * np.minimum(free, gang.per_node * middle[of])
        enough = np.bincount(of, weights=stand, minlength=len(wanted)) >= count * middle
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
        if np.all(low >= high):
            return low
        middle = (low + high + 1) // 2
