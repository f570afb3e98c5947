"""What the node classes of a problem hold, as arrays: one row per class, one entry per card of a class.

The bound and the relaxation ask the same few questions of thousands of node classes (how many of this claim at most,
how many whole cards with this much memory); here they are answered for all classes at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.policies import NO_CAP
from fleetctl.planner.placement.problem import DemandClass, Problem

Counts = NDArray[np.int32]

NO_LIMIT = 1 << 30
NO_MEMORY = -1


@dataclass(frozen=True)
class Cards:
    """All cards that a new member may use (clean, with something free), one entry per card of a node class."""

    node: Ints
    """Row of the node class."""
    share: Ints
    """Free share in 1/10000."""
    vram: Ints
    """Free bytes; -1 = unknown."""
    memory: Ints
    """Bytes of the card; -1 = unknown."""

    def shares_of(self, claim: Claim) -> Ints:
        """Return the share a claim below one card takes on each card; more than a card where it cannot be known."""
        if claim.gpus:
            return np.full(len(self.share), claim.gpus, dtype=np.int64)
        known = np.maximum(self.memory, 1)
        return np.where(self.memory > 0, -(-claim.vram * SHARE // known), SHARE + 1)

    def counts_of(self, claim: Claim) -> Ints:
        """Return how many equal claims below one card each card holds at most."""
        counts = self.share // self.shares_of(claim)
        return np.minimum(counts, np.maximum(self.vram, 0) // claim.vram) if claim.vram else counts


@dataclass(frozen=True)
class Tally:
    """The node classes of a problem; build it with `count_up`."""

    problem: Problem
    nodes: Ints
    """Number of nodes in each class."""
    cpus: Ints
    memory: Ints
    gpus: Ints
    """Free per node, as Ray sums it up: CPU and GPU in 1/10000, bytes."""
    cards: Cards
    _free_cards: dict[int, Ints] = field(default_factory=dict)
    _on_cards: dict[tuple[int, int], Ints] = field(default_factory=dict)
    _most: dict[int, Counts] = field(default_factory=dict)

    @cached_property
    def _allowed(self) -> Flags:
        """By kind and class: whether the selector allows a member there."""
        allowed = np.zeros((len(self.problem.kinds), len(self.nodes)), dtype=bool)
        for row, node in enumerate(self.problem.nodes):
            allowed[list(node.allowed), row] = True
        return allowed

    def usable(self, kind: int) -> Flags:
        """Return which classes allow a kind and have a card of the memory asked for, however much of it is free."""
        claim = self.problem.kinds[kind][0]
        usable: Flags = self._allowed[kind].copy()
        if claim.whole_cards:
            usable &= self.whole_cards(claim.vram) > 0
        elif claim.wants_card:
            fitting = self.cards.vram >= claim.vram if claim.vram else self.cards.share > 0
            usable &= np.bincount(self.cards.node[fitting], minlength=len(self.nodes)) > 0
        return usable

    def free_cards(self, vram: int) -> Ints:
        """Return the fully free cards with at least `vram` bytes on one node of each class."""
        if vram not in self._free_cards:
            fitting = (self.cards.share == SHARE) & (self.cards.vram >= vram if vram else True)
            self._free_cards[vram] = np.bincount(self.cards.node[fitting], minlength=len(self.nodes)).astype(np.int64)
        return self._free_cards[vram]

    def whole_cards(self, vram: int) -> Ints:
        """Return `free_cards` as far as Ray has whole cards to give."""
        whole: Ints = np.maximum(self.gpus, 0) // SHARE
        return np.minimum(self.free_cards(vram), whole)

    @cached_property
    def free_share(self) -> Ints:
        """The GPU share new members can have on one node of each class: that of its cards, as far as Ray has it."""
        shares = np.bincount(self.cards.node, weights=self.cards.share, minlength=len(self.nodes)).astype(np.int64)
        return np.minimum(shares, np.maximum(self.gpus, 0))

    @cached_property
    def _card_starts(self) -> Ints:
        return np.searchsorted(self.cards.node, np.arange(len(self.nodes) + 1))

    def cards_on(self, rows: Ints) -> Ints:
        """Return the entries in `cards` of some node classes."""
        starts = self._card_starts
        spans = [np.arange(starts[row], starts[row + 1]) for row in rows.tolist()]
        return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)

    def most(self, kind: int) -> Counts:
        """Return how many members of a kind (its number) one node of each class can never exceed; see `cards`."""
        if kind not in self._most:
            claim = self.problem.kinds[kind][0]
            limit = self._on_node_cards(claim)
            if claim.cpus:
                limit = np.minimum(limit, self.cpus // claim.cpus)
            if claim.memory:
                limit = np.minimum(limit, self.memory // claim.memory)
            self._most[kind] = np.where(self._allowed[kind], np.maximum(limit, 0), 0).astype(np.int32)
        return self._most[kind]

    def slots(self, demand: DemandClass) -> Ints | None:
        """Return how many more replicas of a class may touch each node; None when no node has a cap for it."""
        if not demand.capped:
            return None
        free = np.array([node.free_slots(demand) for node in self.problem.nodes], dtype=np.int64)
        return np.minimum(free, NO_CAP)

    def _on_node_cards(self, claim: Claim) -> Ints:
        """Count by cards alone; models share many of these answers, since few claims differ in GPU and VRAM."""
        key = (claim.gpus, claim.vram)
        if key not in self._on_cards:
            self._on_cards[key] = self._count_on_cards(claim)
        return self._on_cards[key]

    def _count_on_cards(self, claim: Claim) -> Ints:
        if not claim.wants_card:
            return np.full(len(self.nodes), NO_LIMIT, dtype=np.int64)
        if claim.whole_cards:
            return self.whole_cards(claim.vram) // claim.whole_cards
        per_card = np.bincount(self.cards.node, weights=self.cards.counts_of(claim), minlength=len(self.nodes))
        count = per_card.astype(np.int64)
        return np.minimum(count, np.maximum(self.gpus, 0) // claim.gpus) if claim.gpus else count


def count_up(problem: Problem) -> Tally:
    """Lay the node classes of a problem out as arrays."""
    offers = [one.offer for one in problem.nodes]
    cards = [(row, card.free_share, _known(card.free_vram), _known(card.memory))
             for row, offer in enumerate(offers) for card in offer.cards if card.free_share > 0 and not card.dirty]
    columns = np.array(cards, dtype=np.int64).reshape(-1, 4).T
    return Tally(
        problem, _column([len(one.nodes) for one in problem.nodes]), _column([offer.free_cpus for offer in offers]),
        _column([offer.free_memory for offer in offers]), _column([offer.free_gpus for offer in offers]),
        Cards(*columns),
    )


def _known(amount: int | None) -> int:
    return NO_MEMORY if amount is None else amount


def _column(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)
