"""Offers of many nodes as arrays, so that one claim is judged against all of them at once.

Each different offer is one row; cards are columns in order of index, as wide as the node with the most cards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.ledger.cards import Offer

NO_CARD = -1
"""Free share of a column without a card."""

UNKNOWN = -1
"""Free VRAM of a card whose memory is not known."""


@dataclass(frozen=True)
class OfferTable:
    """`share` in 1/10000, `vram` and `memory` in bytes, `dirty`, `index`: rows x cards. The rest: one value per row."""

    share: Ints
    vram: Ints
    memory: Ints
    """Total memory of the card; 0 = not known."""
    dirty: Flags
    index: Ints
    free_gpus: Ints
    free_cpus: Ints
    free_memory: Ints

    @classmethod
    def of(cls, offers: Sequence[Offer]) -> OfferTable:
        """Return the table with one row per offer, in the order given."""
        wide = max((len(offer.cards) for offer in offers), default=0) or 1
        ints = np.zeros((4, len(offers), wide), dtype=np.int64)
        ints[:2] = NO_CARD
        dirty = np.zeros((len(offers), wide), dtype=bool)
        for row, offer in enumerate(offers):
            for column, card in enumerate(sorted(offer.cards, key=lambda card: card.index)):
                free = UNKNOWN if card.free_vram is None else card.free_vram
                ints[:, row, column] = card.free_share, free, card.memory or 0, card.index
                dirty[row, column] = card.dirty
        sums = np.array([(offer.free_gpus, offer.free_cpus, offer.free_memory) for offer in offers], dtype=np.int64)
        gpus, cpus, memory = sums.reshape(-1, 3).T
        return cls(ints[0], ints[1], ints[2], dirty, ints[3], np.maximum(gpus, 0), cpus, memory)

    def __len__(self) -> int:
        return len(self.free_gpus)

    @cached_property
    def real(self) -> Flags:
        """Where there is a card."""
        real: Flags = self.share > NO_CARD
        return real

    @cached_property
    def whole(self) -> Flags:
        """Where Ray has granted nothing of a card."""
        whole: Flags = self.share == SHARE
        return whole

    @cached_property
    def clean(self) -> Flags:
        """Where a card is fully free and nobody else uses it."""
        clean: Flags = self.whole & ~self.dirty
        return clean

    @cached_property
    def free_cards(self) -> Ints:
        """Whole cards on offer, per row: fully free, clean, and free for Ray."""
        cards: Ints = np.minimum(self.clean.sum(axis=1), self.free_gpus // SHARE)
        return cards

    @cached_property
    def free_share(self) -> Ints:
        """Share on offer in 1/10000, over all clean cards of a row; what lies on different cards does not add up."""
        share: Ints = np.minimum(np.where(self.real & ~self.dirty, self.share, 0).sum(axis=1), self.free_gpus)
        return share

    @cached_property
    def most_share(self) -> Ints:
        """The most share left on any one card, per row."""
        most: Ints = np.minimum(np.maximum(self.share.max(axis=1), 0), self.free_gpus)
        return most
