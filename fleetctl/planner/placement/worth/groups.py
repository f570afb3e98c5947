"""Nodes by what the expected members may do there: areas for the tables of worth, groups for the bid prices.

An area is a set of kinds whose selector and VRAM hold; a group is a part of an area with alike nodes: as many cards,
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
from fleetctl.planner.placement.ledger.buckets import nodes_by_selector
from fleetctl.planner.placement.ledger.cards import Offer, share_of
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.worth.bid_prices import Group

MOST_AREAS = 16
MOST_GROUPS = 32
"""With a group per area alone the trace default loses 0.32 points."""


@dataclass(frozen=True, slots=True)
class Areas:
    """`of_node`: number of the area of each node; `shares`: per area the GPU share of each kind, -1 = not there."""

    of_node: Ints
    shares: tuple[Ints, ...]


def find_areas(ledger: Ledger, kinds: Sequence[Kind]) -> Areas:
    """Return the areas of all nodes; beyond the most common ones a node goes to the area most like its own."""
    selectors = list(dict.fromkeys(selector for _, selector in kinds))
    allowed = nodes_by_selector(ledger, selectors)[:, [selectors.index(selector) for _, selector in kinds]]
    memory = _memory(ledger) if any(claim.vram for claim, _ in kinds) else [-1] * len(allowed)
    packed = np.packbits(allowed, axis=1)
    keys = [(size, packed[node].tobytes()) for node, size in enumerate(memory)]
    common = sorted(Counter(keys).items(), key=lambda item: (-item[1], item[0]))[:MOST_AREAS]
    number_of = {key: number for number, (key, _) in enumerate(common)}
    shown = [keys.index(key) for key, _ in common]
    shares = tuple(_shares(kinds, allowed[node], memory[node]) for node in shown)
    of_node = np.array([
        number_of[key] if key in number_of else int((allowed[shown] != allowed[node]).sum(axis=1).argmin())
        for node, key in enumerate(keys)
    ], np.int64)
    return Areas(of_node, shares or (np.full(len(kinds), -1, np.int64),))


def _memory(ledger: Ledger) -> list[int]:
    """Return the bytes of each node's largest card; -1 = unknown."""
    by_number = {number: max((card.memory or -1 for card in ledger.numbered(number).cards), default=-1)
                 for number in set(ledger.numbers)}
    return [by_number[number] for number in ledger.numbers]


def _shares(kinds: Sequence[Kind], allowed: Flags, memory: int) -> Ints:
    """Return what each kind takes of a card of `memory` bytes (-1 = unknown, and then no VRAM is promised)."""
    shares = np.full(len(kinds), -1, np.int64)
    for number in np.flatnonzero(allowed).tolist():
        claim = kinds[number][0]
        if claim.vram <= max(memory, 0):
            shares[number] = claim.gpus or (share_of(claim.vram, memory) if claim.vram else 0)
    return shares


@dataclass(frozen=True, slots=True)
class _Lots:
    """Open nodes with one offer in one area, one row each: `count` of them, the area, what one of them has free."""

    count: Ints
    area: Ints
    cards: Ints
    free: Ints
    """Share of clean cards, CPUs, memory, free clean cards, largest free share, most VRAM on a card."""


def find_groups(ledger: Ledger, kinds: Sequence[Kind], areas: Areas) -> list[Group]:
    """Return the groups of the open nodes, with what is free on them now."""
    lots = _lots(ledger, areas)
    hosts = np.array([_may_host(kind, lots.free) for kind in kinds]).reshape(len(kinds), len(lots.count))
    groups = []
    for rows in _grouped(lots):
        gpus, cpus, memory = (lots.free[rows, :3] * lots.count[rows, None]).sum(axis=0).tolist()
        here = areas.shares[int(lots.area[rows[0]])]
        groups.append(Group(gpus / SHARE, cpus / SHARE, float(memory), np.where(hosts[:, rows].any(axis=1), here, -1)))
    return groups


def _lots(ledger: Ledger, areas: Areas) -> _Lots:
    counts = Counter((ledger.numbers[place], area) for place, area in enumerate(areas.of_node.tolist())
                     if ledger.nodes[place].open)
    offers = [ledger.numbered(number) for number, _ in counts]
    free = np.array([_free(offer) for offer in offers], np.int64).reshape(len(offers), 6)
    return _Lots(np.array(list(counts.values()), np.int64), np.array([area for _, area in counts], np.int64),
                 np.array([len(offer.cards) for offer in offers], np.int64), np.maximum(free, 0))


def _free(offer: Offer) -> tuple[int, ...]:
    clean = [card.free_share for card in offer.cards if not card.dirty]
    vram = max((card.free_vram or 0 for card in offer.cards), default=0)
    return (sum(clean), offer.free_cpus, offer.free_memory, clean.count(SHARE),
            max((card.free_share for card in offer.cards), default=0), vram)


def _may_host(kind: Kind, free: Ints) -> Flags:
    (claim, _), (_, cpus, memory, cards, share, vram) = kind, free.T
    on_cards = cards >= claim.whole_cards if claim.whole_cards else share >= claim.gpus
    fits: Flags = (cpus >= claim.cpus) & (memory >= claim.memory) & (vram >= claim.vram) & on_cards
    return fits


def _grouped(lots: _Lots) -> list[Ints]:
    """Split rows into at most MOST_GROUPS groups (or one per area), as finely as that allows."""
    gpus, cpus, memory = lots.free[:, :3].T
    per_card = np.maximum(gpus, 1)
    exact = np.stack([
        lots.area, lots.cards, np.rint(2 * np.log2((cpus + 1) / per_card)).astype(np.int64),
        np.rint(np.log2((memory + 1) / per_card)).astype(np.int64),
    ], axis=1)
    for depth in (4, 3, 2, 1):
        _, group = np.unique(exact[:, :depth], axis=0, return_inverse=True)
        if not len(group) or group.max() < MOST_GROUPS:
            break
    return [np.flatnonzero(group.ravel() == number) for number in range(int(group.max(initial=-1)) + 1)]
