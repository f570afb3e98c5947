"""One node and one claim, judged card by card in plain Python: the slow twin of the arrays in placement/reasons."""

from __future__ import annotations

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Card, Offer, blind_pick, possible_shares, take

Judged = tuple[str, int, int, int]
"""Code, need, have, and the card Ray would hand out (-1 = none to blame)."""


def judge_slowly(offer: Offer, claim: Claim) -> Judged | None:
    if take(offer, claim) is not None:
        return None
    cards = Claim(gpus=claim.gpus, vram=claim.vram)
    if take(offer, cards) is None:
        sizes = sorted((card.memory or 0 for card in offer.cards), reverse=True)
        wanted = max(1, claim.whole_cards)
        if claim.gpus and claim.vram and len(sizes) >= wanted and 0 not in sizes and sizes[wanted - 1] < claim.vram:
            return "INSUFFICIENT_VRAM", claim.vram, sizes[wanted - 1], -1
        return _whole(offer, claim) if claim.whole_cards else _share(offer, claim)
    if offer.free_cpus < claim.cpus:
        return "INSUFFICIENT_CPU", claim.cpus, offer.free_cpus, -1
    return "INSUFFICIENT_MEMORY", claim.memory, offer.free_memory, -1


def _whole(offer: Offer, claim: Claim) -> Judged:
    wanted = claim.whole_cards
    free = [card for card in offer.cards if card.fully_free]
    count = min(len(free), offer.free_gpus // SHARE)
    if count < wanted:
        return "INSUFFICIENT_GPU", wanted, count, -1
    clean = [card for card in free if not card.dirty]
    if len(clean) < wanted:
        return "CARD_IN_USE", wanted, len(clean), -1
    known = sorted((card.free_vram for card in clean if card.free_vram is not None), reverse=True)
    if len(known) < wanted:
        return "CARD_MEMORY_UNKNOWN", claim.vram, 0, -1
    return "INSUFFICIENT_VRAM", claim.vram, known[wanted - 1], -1


def _share(offer: Offer, claim: Claim) -> Judged:
    if not offer.cards:
        return "INSUFFICIENT_GPU", claim.gpus or SHARE, 0, -1
    if not claim.gpus:
        known = [card for card in offer.cards if card.free_vram is not None]
        clean = [card.free_vram for card in known if not card.dirty]
        if not known:
            return "CARD_MEMORY_UNKNOWN", claim.vram, 0, -1
        if not clean:
            return "CARD_IN_USE", 1, 0, -1
        if max(clean) < claim.vram:
            return "INSUFFICIENT_VRAM", claim.vram, max(clean), -1
    shares = possible_shares(offer, claim)
    picks = [card for share in shares if (card := blind_pick(offer, share))]
    if not picks:
        most = min(max(card.free_share for card in offer.cards), offer.free_gpus)
        return "INSUFFICIENT_GPU", min(shares), most, -1
    return _picked(offer, claim, picks[0])


def _picked(offer: Offer, claim: Claim, pick: Card) -> Judged:
    if pick.dirty:
        return "CARD_IN_USE", 1, 0, pick.index
    if pick.free_vram is None:
        return "CARD_MEMORY_UNKNOWN", claim.vram, 0, -1
    best = max(card.free_vram or 0 for card in offer.cards)
    if best < claim.vram:
        return "INSUFFICIENT_VRAM", claim.vram, best, -1
    # enough memory on the card Ray picks, yet the share stands for another size of card: nothing of use is there
    return "INSUFFICIENT_VRAM", claim.vram, pick.free_vram if pick.free_vram < claim.vram else 0, pick.index
