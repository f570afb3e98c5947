"""Nodes by what the expected members may do there: grounds for the tables of worth, groups for the bid prices.

A ground is a set of kinds whose selector and VRAM hold; a group is a part of a ground with alike nodes: as many cards,
and about as much CPU and memory per card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.claims import Kind
from fleetctl.planner.placement.greedy.bid_prices import Group
from fleetctl.planner.placement.greedy.card_field import CardField
from fleetctl.planner.placement.ledger.cards import share_of
from fleetctl.planner.placement.ledger.ledger import Ledger

MOST_GROUNDS = 16
MOST_GROUPS = 32


@dataclass(frozen=True, slots=True)
class Grounds:
    """`of_node`: number of the ground of each node; `shares`: per ground the GPU share of each kind, -1 = not there."""

    of_node: Ints
    shares: tuple[Ints, ...]


def find_grounds(ledger: Ledger, kinds: Sequence[Kind], cards: CardField) -> Grounds:
    """Return the grounds of all nodes; beyond the most common ones a node goes to the ground most like its own."""
    allowed = np.zeros((len(ledger.nodes), len(kinds)), np.bool_)
    for number, (_, selector) in enumerate(kinds):
        allowed[list(ledger.selected(selector)), number] = True
    by_memory = any(claim.vram for claim, _ in kinds)
    memory = cards.memory.max(axis=1, initial=-1) if by_memory else np.full(len(allowed), -1)
    keys = [(size, row.tobytes()) for size, row in zip(memory.tolist(), np.packbits(allowed, axis=1), strict=True)]
    common = sorted(Counter(keys).items(), key=lambda item: (-item[1], item[0]))[:MOST_GROUNDS]
    number_of = {key: number for number, (key, _) in enumerate(common)}
    shown = [keys.index(key) for key, _ in common]
    shares = tuple(_shares(kinds, allowed[node], int(memory[node])) for node in shown)
    of_node = np.array([
        number_of[key] if key in number_of else int((allowed[shown] != allowed[node]).sum(axis=1).argmin())
        for node, key in enumerate(keys)
    ], np.int64)
    return Grounds(of_node, shares or (np.full(len(kinds), -1, np.int64),))


def _shares(kinds: Sequence[Kind], allowed: Flags, memory: int) -> Ints:
    """Return what each kind takes of a card of `memory` bytes (-1 = unknown, and then no VRAM is promised)."""
    shares = np.full(len(kinds), -1, np.int64)
    for number in np.flatnonzero(allowed).tolist():
        claim = kinds[number][0]
        if claim.vram <= max(memory, 0):
            shares[number] = claim.gpus or (share_of(claim.vram, memory) if claim.vram else 0)
    return shares


def find_groups(ledger: Ledger, kinds: Sequence[Kind], cards: CardField, grounds: Grounds) -> list[Group]:
    """Return the groups of the open nodes, with what is free on them now."""
    nodes = np.array([place for place, node in enumerate(ledger.nodes) if node.open], np.int64)
    free = cards.rows(nodes)
    shares = free.usable(by_vram=False).sum(axis=1)
    members = _grouped(grounds.of_node[nodes], free, shares)
    hosts = _hosts(ledger, kinds, cards, nodes)
    groups = []
    for rows in members:
        here = grounds.shares[int(grounds.of_node[nodes[rows[0]]])]
        groups.append(Group(
            float(shares[rows].sum()) / SHARE, float(free.cpus[rows].sum()) / SHARE, float(free.bytes[rows].sum()),
            np.where(hosts[:, rows].any(axis=1), here, -1),
        ))
    return groups


def _grouped(ground: Ints, free: CardField, shares: Ints) -> list[Ints]:
    """Split rows into at most MOST_GROUPS groups (or one per ground), as finely as that allows."""
    per_card = np.maximum(shares, 1)
    exact = np.stack([
        ground, (free.shares >= 0).sum(axis=1), np.rint(2 * np.log2((free.cpus + 1) / per_card)).astype(np.int64),
        np.rint(np.log2((free.bytes + 1) / per_card)).astype(np.int64),
    ], axis=1)
    for depth in (4, 3, 2, 1):
        _, group = np.unique(exact[:, :depth], axis=0, return_inverse=True)
        if not len(group) or group.max() < MOST_GROUPS:
            break
    return [np.flatnonzero(group.ravel() == number) for number in range(int(group.max(initial=-1)) + 1)]


def _hosts(ledger: Ledger, kinds: Sequence[Kind], cards: CardField, nodes: Ints) -> Flags:
    """Tell which kind fits on which node by its offer alone, shape (kinds, nodes); equal offers are asked once."""
    numbers = np.array([ledger.offer_number(int(node)) for node in nodes], np.int64)
    _, first, back = np.unique(numbers, return_index=True, return_inverse=True)
    shown = cards.rows(nodes[first])
    fits = np.zeros((len(kinds), len(first)), np.bool_)
    for number, (claim, _) in enumerate(kinds):
        fits[number] = shown.after(claim)[1]
    hosts: Flags = fits[:, back.ravel()]
    return hosts
