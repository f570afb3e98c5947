"""All offers of a ledger as arrays, one row per node, so that one kind of member can be tried on many nodes at once.

The same rule as in `cards.take`, in NumPy: a share goes to the card with the least remaining share that holds it. The
ledger stays the truth: a row only says which node to ask first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, share_of
from fleetctl.planner.placement.ledger.ledger import Ledger

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class CardField:
    """Offers of some nodes; a column per card in the order of the node, absent cards have a share of -1."""

    shares: Ints
    vram: Ints
    """Free bytes by card; -1 = unknown."""
    memory: Ints
    """Size in bytes by card; -1 = unknown."""
    dirty: Flags
    gpus: Ints
    cpus: Ints
    bytes: Ints

    @classmethod
    def of(cls, ledger: Ledger) -> CardField:
        """Return the offers of all nodes of a ledger, in ledger order."""
        offers = [ledger.offer(node) for node in range(len(ledger.nodes))]
        shape = len(offers), max((len(offer.cards) for offer in offers), default=0)
        made = cls(np.full(shape, -1, np.int64), np.full(shape, UNKNOWN, np.int64), np.full(shape, UNKNOWN, np.int64),
                   np.zeros(shape, np.bool_), *(np.zeros(shape[0], np.int64) for _ in range(3)))
        for node, offer in enumerate(offers):
            made.write(node, offer)
        return made

    def write(self, node: int, offer: Offer) -> None:
        """Bring one node up to date; a node never gains cards."""
        count = len(offer.cards)
        self.shares[node, :count] = [card.free_share for card in offer.cards]
        self.vram[node, :count] = [UNKNOWN if card.free_vram is None else card.free_vram for card in offer.cards]
        self.memory[node, :count] = [card.memory or UNKNOWN for card in offer.cards]
        self.dirty[node, :count] = [card.dirty for card in offer.cards]
        self.gpus[node], self.cpus[node], self.bytes[node] = offer.free_gpus, offer.free_cpus, offer.free_memory

    def rows(self, nodes: Ints) -> CardField:
        """Return the rows of some nodes, as a copy."""
        return CardField(self.shares[nodes], self.vram[nodes], self.memory[nodes], self.dirty[nodes], self.gpus[nodes],
                         self.cpus[nodes], self.bytes[nodes])

    def after(self, claim: Claim) -> tuple[CardField, Flags, Flags]:
        """Return every row after `claim`, whether it fits there, and whether Ray might take other cards than counted.

        A row where it does not fit is meaningless.
        """
        fits = (self.cpus >= claim.cpus) & (self.bytes >= claim.memory)
        risky = np.zeros(len(fits), np.bool_)
        taken = np.zeros_like(self.shares)
        if claim.whole_cards:
            free = self.shares == SHARE
            clean = free & ~self.dirty & self._holds_vram(claim)
            mine = clean & (clean.cumsum(axis=1) <= claim.whole_cards)
            fits &= (self.gpus >= claim.gpus) & (mine.sum(axis=1) == claim.whole_cards)
            risky = (mine != (free & (free.cumsum(axis=1) <= claim.whole_cards))).any(axis=1)
            taken[mine] = SHARE
        elif claim.wants_card:
            taken = self._share_taken(claim)
            fits &= taken.any(axis=1)
        shares = self.shares - taken
        rest = np.where(shares > 0, np.maximum(self.vram - claim.vram, 0), 0)  # a card given away whole has none left
        vram = np.where((taken > 0) & (self.vram >= 0), rest, self.vram)
        left = replace(self, shares=shares, vram=vram, gpus=self.gpus - taken.sum(axis=1),
                       cpus=self.cpus - claim.cpus, bytes=self.bytes - claim.memory)
        return left, fits, risky

    def usable(self, *, by_vram: bool) -> Ints:
        """Return the share of each card that the fleet could still use; of its memory too where that is claimed."""
        shares = np.where(self.dirty, 0, np.maximum(self.shares, 0))
        if by_vram:
            known = (self.memory > 0) & (self.vram >= 0)
            by_memory = np.where(known, self.vram // np.maximum(self.memory // SHARE, 1), SHARE)
            shares = np.where(shares == SHARE, shares, np.minimum(shares, by_memory))
        return shares

    def _share_taken(self, claim: Claim) -> Ints:
        """Return the share taken of each card; of the shares that VRAM alone may mean, the largest that works."""
        taken = np.zeros_like(self.shares)
        sizes = [int(size) for size in np.unique(self.memory) if size > 0]
        shares = {claim.gpus} if claim.gpus else {share_of(claim.vram, size) for size in sizes}
        nodes = np.arange(len(taken))
        for share in sorted((share for share in shares if share <= SHARE), reverse=True):
            holding = np.where(self.shares >= share, self.shares, SHARE + 1)
            if not holding.size:
                break
            pick = holding.argmin(axis=1)
            works = (holding[nodes, pick] <= SHARE) & (self.gpus >= share) & ~taken.any(axis=1)
            works &= ~self.dirty[nodes, pick] & self._holds_vram(claim)[nodes, pick]
            if not claim.gpus:
                meant = [size for size in sizes if share_of(claim.vram, size) == share]
                works &= np.isin(self.memory[nodes, pick], meant)
            taken[nodes[works], pick[works]] = share
        return taken

    def _holds_vram(self, claim: Claim) -> Flags:
        return self.vram >= claim.vram if claim.vram else np.ones_like(self.dirty)
