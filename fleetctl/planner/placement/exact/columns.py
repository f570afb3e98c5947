"""What a placement model distinguishes: pools of nodes, and the owners of the members that a column counts."""

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
    """How finely a model distinguishes nodes: a finer model is tighter and larger."""

    NODES = 0
    """Each node by itself: exactly what fits satisfies the rows."""
    ALIKE = 1
    """Nodes that allow the same kinds of member in the same domains."""
    ANYWHERE = 2
    """Nodes that allow the same kinds; a gang bound to a domain may be split over domains."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes that a model does not distinguish, by node class (`rows` of the tally)."""

    rows: Ints
    counts: Ints
    """The number of nodes by row."""
    node: int | None
    """The number of the node if it is the only one."""
    kinds: frozenset[int]
    domains: Domains

    def domain(self, label: str) -> str | None:
        """Return the value of a domain label on these nodes; None = in no domain."""
        return dict(self.domains).get(label)


def pool_nodes(tally: Tally, grain: Grain) -> tuple[Pool, ...]:
    """Return the pools of nodes that a model of this grain does not distinguish."""
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
    """The owner of a column's members: one gang of one class of demand, by number; -1, -1 = all classes together."""

    demand: int
    gang: int
    replica: int = ANY
    """The replica, if replicas are distinguished."""


SHARED = Owner(-1, -1)


class Made(NamedTuple):
    """The number of gangs: `gangs` for each unit of a column, at most `most` in total."""

    column: int
    gangs: int
    most: int


class Member(NamedTuple):
    """What a column of members counts: their owner, and the numbers of their kind and pool."""

    owner: Owner
    kind: int
    pool: int


def needs_replicas(demand: DemandClass, tally: Tally) -> bool:
    """Return whether the model must distinguish replicas, as slots or a spread's limit count replicas, not members.

    For a single gang whose ranks are on different nodes, both counts are equal.
    """
    slots = tally.slots(demand)
    if demand.shape.size == 1 or slots is None or int(slots.min(initial=demand.missing)) >= demand.missing:
        return False
    first = demand.gangs[0]
    return demand.value_limit is not None or len(demand.gangs) > 1 or (first.copies, first.per_node) != (1, 1)
