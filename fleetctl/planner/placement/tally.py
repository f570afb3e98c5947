"""What nodes hold, as arrays: one row per offer, one entry per card of an offer.

Whoever asks the same few questions of thousands of offers (how many of this claim at most, how many whole cards with
this much memory) has them answered for all of them at once: the bound and the relaxation of the classes of a problem,
the reasons of every node, bid prices of what is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.policies import NO_CAP
from fleetctl.planner.placement.problem import DemandClass, Problem

Counts = NDArray[np.int32]

NO_LIMIT = 1 << 30
NO_MEMORY = -1


@dataclass(frozen=True)
class Cards:
    """All cards that a new member may use (clean, with something free), one entry per card of an offer."""

    node: Ints
    """Row of the offer."""
    share: Ints
    """Free share in 1/10000."""
    vram: Ints
    """Free bytes; -1 = unknown."""
    memory: Ints
    """Bytes of the card; -1 = unknown."""

    def counts_of(self, claim: Claim) -> Ints:
        """Return how many equal claims below one card each card holds at most; none where that cannot be known."""
        by_vram = np.where(self.memory > 0, -(-claim.vram * SHARE // np.maximum(self.memory, 1)), SHARE + 1)
        counts = self.share // (claim.gpus or by_vram)
        return np.minimum(counts, np.maximum(self.vram, 0) // claim.vram) if claim.vram else counts


class OfferTable:
    """What some offers hold; free amounts as Ray sums them up, CPU and GPU in 1/10000, bytes."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        amounts = [(offer.free_cpus, offer.free_memory, offer.free_gpus) for offer in offers]
        self.cpus, self.memory, self.gpus = np.array(amounts, dtype=np.int64).reshape(-1, 3).T
        cards = [(row, card.free_share, NO_MEMORY if card.free_vram is None else card.free_vram,
                  NO_MEMORY if card.memory is None else card.memory)
                 for row, offer in enumerate(offers) for card in offer.cards if card.free_share > 0 and not card.dirty]
        self.cards = Cards(*np.array(cards, dtype=np.int64).reshape(-1, 4).T)
        self._free_cards: dict[int, Ints] = {}
        self._on_cards: dict[Claim, Ints] = {}

    def free_cards(self, vram: int) -> Ints:
        """Return the fully free cards with at least `vram` bytes, by row."""
        if vram not in self._free_cards:
            fitting = (self.cards.share == SHARE) & (self.cards.vram >= vram if vram else True)
            self._free_cards[vram] = self._by_row(fitting)
        return self._free_cards[vram]

    def whole_cards(self, vram: int) -> Ints:
        """Return `free_cards` as far as Ray has whole cards to give."""
        whole: Ints = np.maximum(self.gpus, 0) // SHARE
        return np.minimum(self.free_cards(vram), whole)

    @cached_property
    def free_share(self) -> Ints:
        """The GPU share new members can have, by row: that of the cards, as far as Ray has it."""
        free: Ints = np.minimum(self._by_row(self.cards.share), np.maximum(self.gpus, 0))
        return free

    def cards_on(self, rows: Ints) -> Ints:
        """Return the entries in `cards` of some rows."""
        spans = [np.arange(*np.searchsorted(self.cards.node, (row, row + 1))) for row in rows.tolist()]
        return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)

    def _by_row(self, of_card: Ints | Flags) -> Ints:
        """Sum something of each card up by row."""
        summed: Ints = np.bincount(self.cards.node, of_card, len(self.cpus)).astype(np.int64)
        return summed

    def most_of(self, claim: Claim) -> Ints:
        """Return how many members one row can never exceed, each resource by itself."""
        if claim.on_cards not in self._on_cards:  # few claims differ in GPU and VRAM
            self._on_cards[claim.on_cards] = self._most_on_cards(claim)
        limit = self._on_cards[claim.on_cards]
        if claim.cpus:
            limit = np.minimum(limit, self.cpus // claim.cpus)
        return np.minimum(limit, self.memory // claim.memory) if claim.memory else limit

    def _most_on_cards(self, claim: Claim) -> Ints:
        if not claim.wants_card:
            return np.full(len(self.cpus), NO_LIMIT, dtype=np.int64)
        if claim.whole_cards:
            return self.whole_cards(claim.vram) // claim.whole_cards
        count = self._by_row(self.cards.counts_of(claim))
        return np.minimum(count, np.maximum(self.gpus, 0) // claim.gpus) if claim.gpus else count


class Tally(OfferTable):
    """The node classes of a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__([one.offer for one in problem.nodes])
        self.problem = problem
        self.nodes: Ints = np.array([len(one.nodes) for one in problem.nodes], dtype=np.int64)
        """Number of nodes in each class."""
        self._most: dict[int, Counts] = {}

    @cached_property
    def allowed(self) -> Flags:
        """By kind and class: whether the selector allows a member there."""
        number: dict[frozenset[int], int] = {}
        rows = [number.setdefault(node.allowed, len(number)) for node in self.problem.nodes]
        allowed = np.zeros((len(self.problem.kinds), len(number)), dtype=bool)
        for kinds, column in number.items():
            allowed[list(kinds), column] = True
        return allowed[:, rows]

    def usable(self, kind: int) -> Flags:
        """Return which classes allow a kind and have a card of the memory asked for, however much of it is free."""
        claim = self.problem.kinds[kind][0]
        usable: Flags = self.allowed[kind].copy()
        if claim.whole_cards:
            usable &= self.whole_cards(claim.vram) > 0
        elif claim.wants_card:
            fitting = self.cards.vram >= claim.vram if claim.vram else self.cards.share > 0
            usable &= self._by_row(fitting) > 0
        return usable

    def most(self, kind: int) -> Counts:
        """Return how many members of a kind (its number) one node of each class can never exceed."""
        if kind not in self._most:
            most = self.most_of(self.problem.kinds[kind][0])
            self._most[kind] = np.where(self.allowed[kind], np.maximum(most, 0), 0).astype(np.int32)
        return self._most[kind]

    def total(self, free: Ints) -> int:
        """Return how much of something all nodes together have; `free` = by class, on one node."""
        return int(self.nodes @ free.clip(min=0))

    def slots(self, demand: DemandClass) -> Ints | None:
        """Return how many more replicas of a class may touch each node; None when no node has a cap for it."""
        if not demand.capped:
            return None
        free = np.array([node.free_slots(demand) for node in self.problem.nodes], dtype=np.int64)
        return np.minimum(free, NO_CAP)
