"""The cards of one node, and which of them Ray will hand out.

Ray, not the plan, picks cards, so this follows Ray's rule: a share goes to the card with the least remaining share that
still holds it (ties: lowest index), regardless of memory; the memory must therefore be free on exactly that card. Of
whole cards only the number is promised: at most what Ray has free, and at most the fully free, clean cards with enough
memory, lowest index first. Source: Ray's per-instance allocation (`NodeInstanceSet`), checked against Ray 2.60.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim


class OfferedCard(NamedTuple):
    """One card: `free_share` in 1/10000; memory in bytes, None = unknown; `foreign` = use beyond what is granted on it.

    `tries` = how many more replicas it takes, 0 while it cools; None = any number.
    """

    index: int  # type: ignore[assignment]  # in place of the method of tuples
    free_share: int = SHARE
    free_vram: int | None = None
    memory: int | None = None
    foreign: int = 0
    tries: int | None = None

    @property
    def cooling(self) -> bool:
        """Whether the breaker keeps new replicas away from it."""
        return self.tries == 0

    @property
    def dirty(self) -> bool:
        """Whether it is not offered whole: it is cooling, or something without a grant uses it."""
        return self.foreign > 0 or self.cooling

    @property
    def closed(self) -> bool:
        """Whether nothing of it is offered: it is cooling, or of unknown memory and in foreign use."""
        return self.cooling or (self.foreign > 0 and not self.memory)

    @property
    def fully_free(self) -> bool:
        """Whether Ray has granted nothing of it."""
        return self.free_share == SHARE

    def has_vram(self, vram: int) -> bool:
        """Return whether `vram` bytes are known to be free."""
        return not vram or (self.free_vram is not None and self.free_vram >= vram)

    def takes_share(self, share: int, vram: int) -> bool:
        """Return whether a claim below one card may take a share of it that Ray has free.

        Foreign use is subtracted: from the memory that is free, or without a claim on memory from the share.
        """
        if not self.foreign or vram:
            return not self.cooling and self.has_vram(vram)
        return not self.closed and self.foreign * SHARE <= (self.free_share - share) * (self.memory or 0)

    def less(self, share: int, vram: int) -> OfferedCard:
        """Return this card after taking a share and some memory."""
        left = self.free_share - share
        free = None if self.free_vram is None else max(0, self.free_vram - vram) if left else 0
        return OfferedCard(self.index, left, free, self.memory, self.foreign, self.tries and self.tries - 1)


class Offer(NamedTuple):
    """What a node has free. `free_gpus` is Ray's own sum in 1/10000; `empty` = nothing is on the node yet.

    `unreported` = how many of its cards the cluster's driver does not report: one of them may be lost.
    """

    cards: tuple[OfferedCard, ...] = ()
    free_gpus: int = 0
    free_cpus: int = 0
    free_memory: int = 0
    empty: bool = True
    unreported: int = 0


class Taken(NamedTuple):
    """An offer after a claim: what is left, the GPU share really taken, and on which cards."""

    left: Offer
    gpus: int
    indices: tuple[int, ...]
    risky: bool = False
    """Ray, which ignores memory and foreign use, might hand out another card than the expected one."""


def share_of(vram: int, memory: int | None) -> int:
    """Return which share of a card of `memory` bytes `vram` bytes are, rounded up; SHARE + 1 if `memory` is unknown."""
    return -(-vram * SHARE // memory) if memory is not None and memory > 0 else SHARE + 1


def take(offer: Offer, claim: Claim) -> Taken | None:
    """Take `claim` from `offer`; None if it does not fit."""
    if offer.free_cpus < claim.cpus or offer.free_memory < claim.memory:
        return None
    chosen = choose(offer, claim) if claim.wants_card else (0, (), False)
    if chosen is None:
        return None
    gpus, cards, risky = chosen
    changed = {card.index: card.less(min(SHARE, gpus), claim.vram) for card in cards}
    left = Offer(
        tuple(changed.get(card.index, card) for card in offer.cards) if changed else offer.cards,
        offer.free_gpus - gpus, offer.free_cpus - claim.cpus, offer.free_memory - claim.memory, False,
        offer.unreported)
    return Taken(left, gpus, tuple(changed), risky)


def choose(offer: Offer, claim: Claim) -> tuple[int, Sequence[OfferedCard], bool] | None:
    """Return the GPU share that a claim on cards takes here, its cards, and whether Ray might hand out others."""
    return _choose_whole(offer, claim) if claim.whole_cards else _choose_share(offer, claim)


def _choose_whole(offer: Offer, claim: Claim) -> tuple[int, Sequence[OfferedCard], bool] | None:
    wanted = claim.whole_cards
    free = [card for card in offer.cards if card.fully_free]
    fitting = [card for card in free if not card.dirty and card.has_vram(claim.vram)][:wanted]
    if offer.free_gpus < claim.gpus or len(fitting) < wanted:
        return None
    return claim.gpus, fitting, fitting != free[:wanted]


def _choose_share(offer: Offer, claim: Claim) -> tuple[int, Sequence[OfferedCard], bool] | None:
    for share in possible_shares(offer, claim):
        card = blind_pick(offer, share)
        if card is None or not card.takes_share(share, claim.vram):
            continue
        if claim.gpus or share == share_of(claim.vram, card.memory):
            return share, (card,), False
    return None


def possible_shares(offer: Offer, claim: Claim) -> list[int]:
    """Return the shares that a claim below one card may take: its own, or for VRAM alone one per size of card."""
    if claim.gpus:
        return [claim.gpus]
    sizes = {card.memory for card in offer.cards if card.memory and card.memory >= claim.vram}
    return sorted({share_of(claim.vram, size) for size in sizes}, reverse=True)


def blind_pick(offer: Offer, share: int) -> OfferedCard | None:
    """Return the card Ray gives to a share: the least remaining share that holds it, lowest index first."""
    if offer.free_gpus < share:
        return None
    best = None
    for card in offer.cards:  # a loop for speed: called for every kind of offer and claim
        if card.free_share >= share and (best is None or (card.free_share, card.index) < (best.free_share, best.index)):
            best = card
    return best
