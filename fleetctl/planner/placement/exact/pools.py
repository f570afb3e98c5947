"""Pools: the nodes that a placement model does not tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.exact.tally import Tally

Domains = tuple[tuple[str, str | None], ...]


class Grain(IntEnum):
    """How finely a model tells nodes apart: the finer, the nearer to the truth, and the larger."""

    NODES = 0
    """Every node by itself: what fits is then exactly what the rows allow."""
    ALIKE = 1
    """Nodes that allow the same kinds of member in the same domains."""
    ANYWHERE = 2
    """Nodes that allow the same kinds; a gang bound to a domain may be split over domains."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes that a model does not tell apart, by node class (row of the tally)."""

    rows: Ints
    nodes: tuple[tuple[int, ...], ...]
    """Numbers of the nodes, by row."""
    counts: Ints
    """How many nodes, by row."""
    kinds: frozenset[int]
    domains: Domains

    @property
    def node(self) -> int | None:
        """The number of the node, where it is the only one."""
        return self.nodes[0][0] if len(self.nodes) == 1 and len(self.nodes[0]) == 1 else None

    def domain(self, label: str) -> str | None:
        """Return the value of a domain label on these nodes; None = in no domain."""
        return dict(self.domains).get(label)


def pool_nodes(tally: Tally, grain: Grain) -> tuple[Pool, ...]:
    """Put the nodes together that a model of this grain does not tell apart."""
    flags = np.array([tally.usable(kind) for kind in range(len(tally.problem.kinds))], dtype=bool)
    flags = flags.reshape(len(tally.problem.kinds), len(tally.nodes))
    packed = np.packbits(flags, axis=0).T
    together: dict[tuple[object, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for row, node in enumerate(tally.problem.nodes):
        alike = packed[row].tobytes(), node.domains if grain < Grain.ANYWHERE else ()
        if grain == Grain.NODES:
            for place in node.nodes:
                together[place,] = [(row, (place,))]
        else:
            together.setdefault(alike, []).append((row, node.nodes))
    return tuple(_pool(parts, flags, tally, grain) for parts in together.values())


def _pool(parts: Sequence[tuple[int, tuple[int, ...]]], flags: Flags, tally: Tally, grain: Grain) -> Pool:
    rows, nodes = zip(*parts, strict=True)
    counts = np.array([len(some) for some in nodes], dtype=np.int64)
    domains = tally.problem.nodes[rows[0]].domains if grain < Grain.ANYWHERE else ()
    kinds = frozenset(np.flatnonzero(flags[:, rows[0]]).tolist())
    return Pool(np.array(rows, dtype=np.int64), nodes, counts, kinds, domains)
