"""Offers as arrays: one row per offer, one entry per card of an offer.

The same few questions about thousands of offers (at most how many of this claim, how many whole cards with this much
memory) are answered for all offers at once. The bound, the relaxation, the reasons and the bid prices use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.policies import NO_CAP
from fleetctl.planner.placement.problem import DemandClass, Problem

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
"""Amounts and numbers are integers; only the values of a relaxation, and prices, are not."""
Counts = NDArray[np.int32]

NO_LIMIT = 1 << 30
NO_MEMORY = -1


@dataclass(frozen=True)
class Cards:
    """All cards that a new member may use, with some share free."""

    node: Ints
    """The row of the offer."""
    share: Ints
    """The free share in 1/10000."""
    vram: Ints
    """The free bytes; -1 = unknown."""
    memory: Ints
    """The size of the card in bytes; -1 = unknown."""
    clean: Flags
    """Nothing without a grant uses it. Of another card, claims on no memory never get all of the share."""

    @property
    def whole(self) -> Flags:
        """Whether a claim on whole cards may take it."""
        whole: Flags = self.clean & (self.share == SHARE)
        return whole

    def counts_of(self, claim: Claim) -> Ints:
        """Return by card how many claims like this one, below one card, it holds at most; 0 if that is not known."""
        by_vram = np.where(self.memory > 0, -(-claim.vram * SHARE // np.maximum(self.memory, 1)), SHARE + 1)
        share = self.share if claim.vram else np.minimum(self.share, SHARE - ~self.clean)
        counts = share // (claim.gpus or by_vram)
        return np.minimum(counts, np.maximum(self.vram, 0) // claim.vram) if claim.vram else counts


class OfferTable:
    """Some offers; free amounts as summed up by Ray, CPU and GPU in 1/10000, memory in bytes."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        amounts = [(offer.free_cpus, offer.free_memory, offer.free_gpus) for offer in offers]
        self.cpus, self.memory, self.gpus = np.array(amounts, dtype=np.int64).reshape(-1, 3).T
        cards = [(row, card.free_share, NO_MEMORY if card.free_vram is None else card.free_vram,
                  NO_MEMORY if card.memory is None else card.memory, not card.foreign)
                 for row, offer in enumerate(offers) for card in offer.cards
                 if card.free_share > 0 and card.tries != 0 and (card.memory or not card.foreign)]
        node, share, vram, memory, clean = np.array(cards, dtype=np.int64).reshape(-1, 5).T
        self.cards = Cards(node, share, vram, memory, clean.astype(bool))
        self._free_cards: dict[int, Ints] = {}
        self._on_cards: dict[Claim, Ints] = {}

    def free_cards(self, vram: int) -> Ints:
        """Return by row the number of fully free cards with at least `vram` bytes."""
        if vram not in self._free_cards:
            fitting = self.cards.whole & (self.cards.vram >= vram if vram else True)
            self._free_cards[vram] = self._by_row(fitting)
        return self._free_cards[vram]

    def whole_cards(self, vram: int) -> Ints:
        """Return `free_cards`, limited by the whole cards that Ray has free."""
        whole: Ints = np.maximum(self.gpus, 0) // SHARE
        return np.minimum(self.free_cards(vram), whole)

    @cached_property
    def free_share(self) -> Ints:
        """By row: the GPU share available to new members, that of the cards limited by what Ray has free."""
        free: Ints = np.minimum(self._by_row(self.cards.share), np.maximum(self.gpus, 0))
        return free

    def cards_on(self, rows: Ints) -> Ints:
        """Return the indices in `cards` of some rows."""
        spans = [np.arange(*np.searchsorted(self.cards.node, (row, row + 1))) for row in rows.tolist()]
        return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)

    def _by_row(self, of_card: Ints | Flags) -> Ints:
        """Sum up a value of each card by row."""
        summed: Ints = np.bincount(self.cards.node, of_card, len(self.cpus)).astype(np.int64)
        return summed

    def max_of(self, claim: Claim) -> Ints:
        """Return by row an upper bound on the members with this claim, each resource by itself."""
        limit = self._on_cards.get(claim.on_cards)
        if limit is None:  # few claims differ in GPU and VRAM
            if not claim.wants_card:
                limit = np.full(len(self.cpus), NO_LIMIT, dtype=np.int64)
            elif claim.whole_cards:
                limit = self.whole_cards(claim.vram) // claim.whole_cards
            else:
                limit = self._by_row(self.cards.counts_of(claim))
                limit = np.minimum(limit, np.maximum(self.gpus, 0) // claim.gpus) if claim.gpus else limit
            self._on_cards[claim.on_cards] = limit
        if claim.cpus:
            limit = np.minimum(limit, self.cpus // claim.cpus)
        return np.minimum(limit, self.memory // claim.memory) if claim.memory else limit


class Tally(OfferTable):
    """The node classes of a problem as a table of their offers."""

    def __init__(self, problem: Problem) -> None:
        super().__init__([node.offer for node in problem.nodes])
        self.problem = problem
        self.nodes: Ints = np.array([len(node.nodes) for node in problem.nodes], dtype=np.int64)
        """The number of nodes in each class."""
        self._max_members: dict[int, Counts] = {}

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
        """Return which classes allow a kind and have a card with the memory it claims, however much share is free."""
        claim = self.problem.kinds[kind][0]
        usable: Flags = self.allowed[kind].copy()
        if claim.whole_cards:
            usable &= self.whole_cards(claim.vram) > 0
        elif claim.wants_card:
            fitting = self.cards.vram >= claim.vram if claim.vram else self.cards.share > 0
            usable &= self._by_row(fitting) > 0
        return usable

    def max_members(self, kind: int) -> Counts:
        """Return by class an upper bound on the members of a kind (by number) on one node."""
        if kind not in self._max_members:
            maximum = self.max_of(self.problem.kinds[kind][0])
            self._max_members[kind] = np.where(self.allowed[kind], np.maximum(maximum, 0), 0).astype(np.int32)
        return self._max_members[kind]

    def total(self, free: Ints) -> int:
        """Return the total over all nodes; `free` = by class, on one node."""
        return int(self.nodes @ free.clip(min=0))

    def slots(self, demand: DemandClass) -> Ints | None:
        """Return by class how many more replicas of a demand may touch one node; None if no node has a cap for it."""
        if not demand.capped:
            return None
        free = np.array([node.free_slots(demand) for node in self.problem.nodes], dtype=np.int64)
        return np.minimum(free, NO_CAP)
