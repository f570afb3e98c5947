"""Sets of node classes that are alike for the expected members: areas for the worth tables, groups for the bid prices.

The nodes of an area allow the same kinds, by selector and VRAM. A group is the part of an area with as many cards and
about as much CPU and memory per card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Floats, Ints
from fleetctl.planner.placement.claims import Kind
from fleetctl.planner.placement.ledger.cards import share_of
from fleetctl.planner.placement.tally import Tally

MOST_AREAS = 16
MOST_GROUPS = 32
"""With a group per area alone the trace default loses 0.32 points."""


@dataclass(frozen=True, slots=True)
class Areas:
    """`of_class` = the area of each class of nodes; `shares` = by area the GPU share of each kind, -1 = not allowed."""

    of_class: Ints
    shares: tuple[Ints, ...]


def find_areas(tally: Tally) -> Areas:
    """Return the areas of all classes: the most common ones; other classes join the most similar area."""
    kinds, allowed = tally.problem.kinds, tally.allowed.T
    # bytes of the largest card of each class; -1 = unknown, or not asked for
    by_vram = any(claim.vram for claim, _ in kinds)
    memory = [max((card.memory or -1 for card in node.offer.cards), default=-1) if by_vram else -1
              for node in tally.problem.nodes]
    packed = np.packbits(allowed, axis=1)
    keys = [(size, packed[row].tobytes()) for row, size in enumerate(memory)]
    nodes = Counter[tuple[int, bytes]]()
    for key, count in zip(keys, tally.nodes.tolist(), strict=True):
        nodes[key] += count
    common = sorted(nodes, key=lambda key: (-nodes[key], key))[:MOST_AREAS]
    shown = [keys.index(key) for key in common]
    shares = tuple(_shares(kinds, allowed[row], memory[row]) for row in shown)
    of_class = [common.index(key) if key in common else int((allowed[shown] != allowed[row]).sum(axis=1).argmin())
                for row, key in enumerate(keys)]
    return Areas(np.array(of_class, np.int64), shares or (np.full(len(kinds), -1, np.int64),))


def _shares(kinds: Sequence[Kind], allowed: Flags, memory: int) -> Ints:
    """Return the share of each kind on a card of `memory` bytes; -1 = unknown, which holds no VRAM."""
    shares = np.full(len(kinds), -1, np.int64)
    for number in np.flatnonzero(allowed).tolist():
        claim = kinds[number][0]
        if claim.vram <= max(memory, 0):
            shares[number] = claim.gpus or (share_of(claim.vram, memory) if claim.vram else 0)
    return shares


def find_groups(tally: Tally, areas: Areas) -> tuple[Floats, Ints]:
    """Return what is free in each group, and the share that each kind takes there.

    CPUs, bytes and cards, shape (groups, 3); GPU share in 1/10000, -1 = not allowed, shape (groups, kinds).
    """
    kinds = len(tally.problem.kinds)
    hosted = np.array([tally.most(kind) > 0 for kind in range(kinds)], dtype=bool).reshape(kinds, len(tally.nodes))
    free = np.stack([tally.cpus, tally.memory, tally.free_share], axis=1).clip(min=0)
    grouped = _grouped(tally, areas, free)
    room = np.array([tally.nodes[rows] @ free[rows] for rows in grouped]).reshape(-1, 3) / (SHARE, 1, SHARE)
    shares = [np.where(hosted[:, rows].any(axis=1), areas.shares[int(areas.of_class[rows[0]])], -1) for rows in grouped]
    return room, np.array(shares, np.int64).reshape(len(grouped), kinds)


def _grouped(tally: Tally, areas: Areas, free: Ints) -> list[Ints]:
    """Split classes into at most MOST_GROUPS groups (or one per area), as fine as possible."""
    cpus, memory, gpus = free.T
    per_card = np.maximum(gpus, 1)
    cards = np.array([len(node.offer.cards) for node in tally.problem.nodes], np.int64)
    exact = np.stack([
        areas.of_class, cards, np.rint(2 * np.log2((cpus + 1) / per_card)).astype(np.int64),
        np.rint(np.log2((memory + 1) / per_card)).astype(np.int64),
    ], axis=1)
    for depth in (4, 3, 2, 1):
        _, group = np.unique(exact[:, :depth], axis=0, return_inverse=True)
        if not len(group) or group.max() < MOST_GROUPS:
            break
    return [np.flatnonzero(group.ravel() == number) for number in range(int(group.max(initial=-1)) + 1)]
