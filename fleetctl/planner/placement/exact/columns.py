"""What a placement model distinguishes: pools of nodes, and whose members a column counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.problem import DemandClass, Domains
from fleetctl.planner.placement.realize import ANY
from fleetctl.planner.placement.tally import Tally


class Grain(IntEnum):
    """How finely a model distinguishes nodes: the finer, the nearer to the truth, and the larger."""

    NODES = 0
    """Every node by itself: what fits is then exactly what the rows allow."""
    ALIKE = 1
    """Nodes that allow the same kinds of member in the same domains."""
    ANYWHERE = 2
    """Nodes that allow the same kinds; a gang bound to a domain may be split over domains."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes that a model does not distinguish, by node class (row of the tally)."""

    rows: Ints
    counts: Ints
    """How many nodes, by row."""
    node: int | None
    """The number of the node, where it is the only one."""
    kinds: frozenset[int]
    domains: Domains

    def domain(self, label: str) -> str | None:
        """Return the value of a domain label on these nodes; None = in no domain."""
        return dict(self.domains).get(label)


def pool_nodes(tally: Tally, grain: Grain) -> tuple[Pool, ...]:
    """Put the nodes together that a model of this grain does not distinguish."""
    flags = np.array([tally.usable(kind) for kind in range(len(tally.problem.kinds))], dtype=bool)
    flags = flags.reshape(len(tally.problem.kinds), len(tally.nodes))
    packed = np.packbits(flags, axis=0).T
    together: dict[object, list[tuple[int, tuple[int, ...]]]] = {}
    for row, node in enumerate(tally.problem.nodes):
        alike = packed[row].tobytes(), node.domains if grain < Grain.ANYWHERE else ()
        for places in [(place,) for place in node.nodes] if grain == Grain.NODES else [node.nodes]:
            together.setdefault(places if grain == Grain.NODES else alike, []).append((row, places))
    return tuple(_pool(parts, flags, tally, grain) for parts in together.values())


def _pool(parts: Sequence[tuple[int, tuple[int, ...]]], flags: Flags, tally: Tally, grain: Grain) -> Pool:
    first, places = parts[0]
    domains = tally.problem.nodes[first].domains if grain < Grain.ANYWHERE else ()
    counts = np.array([len(some) for _, some in parts], dtype=np.int64)
    return Pool(np.array([row for row, _ in parts], dtype=np.int64), counts, places[0] if counts.sum() == 1 else None,
                frozenset(np.flatnonzero(flags[:, first]).tolist()), domains)


class Owner(NamedTuple):
    """Whose members a column counts: one gang of one class of demand (numbers), or -1, -1 for all classes together."""

    demand: int
    gang: int
    replica: int = ANY
    """Which replica, where they are distinguished."""


SHARED = Owner(-1, -1)


class Made(NamedTuple):
    """How many gangs there are: `gangs` for each unit of a column, `most` in all."""

    column: int
    gangs: int
    most: int


class Member(NamedTuple):
    """What a column of members counts: whose, of which kind, on which pool (numbers)."""

    owner: Owner
    kind: int
    pool: int


def needs_replicas(demand: DemandClass, tally: Tally) -> bool:
    """Return whether slots or a spread's limit may bind for replicas with several members on a node or a value.

    A gang whose ranks are on different nodes takes as many slots of a node as members.
    """
    slots = tally.slots(demand)
    if demand.shape.size == 1 or slots is None or int(slots.min(initial=demand.missing)) >= demand.missing:
        return False
    first = demand.gangs[0]
    return demand.value_limit is not None or len(demand.gangs) > 1 or (first.copies, first.per_node) != (1, 1)
