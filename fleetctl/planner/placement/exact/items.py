"""What the relaxation tells apart: items (kinds of member that are alike) on pools (nodes that are alike).

Kinds that differ only in CPU or memory are one item where CPU or memory can never be what is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.exact.tally import Counts, Tally

Domains = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, eq=False)
class Item:
    """Kinds of one claim (CPU and memory 0 where they cannot be short) on the same nodes. Arrays: by node class."""

    claim: Claim
    kinds: tuple[int, ...]
    most: Counts
    usable: Flags


class Grain(IntEnum):
    """How finely a model tells nodes apart: the finer, the nearer to the truth, and the larger."""

    NODES = 0
    """Every node by itself: what fits is then exactly what the rows allow."""
    ALIKE = 1
    """Nodes that allow the same items in the same domains."""
    ANYWHERE = 2
    """Nodes that allow the same items; a gang bound to a domain may be split over domains."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes that the relaxation does not tell apart, by node class (row of the tally)."""

    rows: Ints
    nodes: tuple[tuple[int, ...], ...]
    """Numbers of the nodes, by row."""
    counts: Ints
    """How many nodes, by row."""
    items: tuple[int, ...]
    domains: Domains

    @property
    def node(self) -> int | None:
        """The number of the node, where it is the only one."""
        return self.nodes[0][0] if len(self.nodes) == 1 and len(self.nodes[0]) == 1 else None

    def domain(self, label: str) -> str | None:
        """Return the value of a domain label on these nodes; None = in no domain."""
        return dict(self.domains).get(label)


@dataclass(frozen=True)
class Loose:
    """Which resources can never be short, whatever is placed."""

    cpus: bool
    memory: bool


def merge_kinds(tally: Tally) -> tuple[Item, ...]:
    """Merge the kinds of a problem into items."""
    loose = find_loose(tally)
    together: dict[tuple[Claim, bytes], list[int]] = {}
    for kind, (claim, selector) in enumerate(tally.problem.kinds):
        bare = claim._replace(cpus=0 if loose.cpus else claim.cpus, memory=0 if loose.memory else claim.memory)
        together.setdefault((bare, tally.allowed(selector).tobytes()), []).append(kind)
    items = []
    for (claim, _), kinds in together.items():
        most = np.maximum.reduce([tally.most(kind) for kind in kinds])
        items.append(Item(claim, tuple(kinds), most, _usable(claim, tally) & tally.allowed(_selector(kinds, tally))))
    return tuple(items)


def _selector(kinds: Sequence[int], tally: Tally) -> tuple[tuple[str, str], ...]:
    return tally.problem.kinds[kinds[0]][1]


def _usable(claim: Claim, tally: Tally) -> Flags:
    """Tell for each class whether any card has the memory asked for; how much of it is free does not matter here."""
    if not claim.wants_card:
        return np.ones(len(tally.nodes), dtype=bool)
    if claim.whole_cards:
        return tally.whole_cards(claim.vram) > 0
    fitting = tally.cards.vram >= claim.vram if claim.vram else tally.cards.share > 0
    return np.bincount(tally.cards.node[fitting], minlength=len(tally.nodes)) > 0


def find_loose(tally: Tally) -> Loose:
    """Tell which of CPU and memory every node has enough of for whatever its cards could hold.

    Members with cards: at most the dearest per GPU unit, for all free GPU share. Members without: all of them at once.
    """
    claims = [claim for claim, _ in tally.problem.kinds]
    return Loose(
        _is_loose([claim.cpus for claim in claims], tally.cpus, tally),
        _is_loose([claim.memory for claim in claims], tally.memory, tally),
    )


def _is_loose(amounts: Sequence[int], free: Ints, tally: Tally) -> bool:
    if not any(amounts):
        return True
    members = wanted_members(tally)
    bare, dearest = 0, 0.0
    largest = int(tally.cards.memory.max(initial=0))
    for kind, (claim, _) in enumerate(tally.problem.kinds):
        units = claim.gpus or (-(-claim.vram * SHARE // largest) if claim.vram and largest > 0 else 0)
        if units:
            dearest = max(dearest, amounts[kind] / units)
        else:
            bare += amounts[kind] * members[kind]
    need = np.ceil(np.maximum(tally.gpus, 0) * dearest * (1 + 1e-9)) + bare
    has_room = np.array([bool(one.allowed) for one in tally.problem.nodes], dtype=bool)
    return bool(np.all((need <= free) | ~has_room))


def wanted_members(tally: Tally) -> list[int]:
    """Return how many members of each kind could stand on one node, counting all replicas wanted and slot caps."""
    problem = tally.problem
    members = [0] * len(problem.kinds)
    for demand in problem.demands:
        slots = tally.slots(demand)
        replicas = demand.missing if slots is None else min(demand.missing, int(slots.max(initial=0)))
        for kind, count in demand.members().items():
            members[kind] += replicas * count
    return members


def pool_nodes(items: Sequence[Item], tally: Tally, grain: Grain) -> tuple[Pool, ...]:
    """Put nodes together that the relaxation shall not tell apart."""
    flags = np.array([item.usable for item in items], dtype=bool).reshape(len(items), -1)
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
    allowed = tuple(np.flatnonzero(flags[:, rows[0]]).tolist())
    return Pool(np.array(rows, dtype=np.int64), nodes, counts, allowed, domains)
