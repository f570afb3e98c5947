"""Why one offer cannot take a claim: the first rule that stops it, with what was needed and what was there.

`cards.choose`, which `take` uses too, decides whether the claim fits. This module only explains a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetctl.documents.quantity import SHARE, format_bytes, format_share, plural
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard, blind_pick, choose, possible_shares


class Code(IntEnum):
    """What stops a node, nearest to success first: the codes of a plan. FITS = nothing does.

    From SLOTS_FULL on, what the node has free does not matter: it may not be used, or not for this claim.
    """

    words: str
    """Describes the nodes of the code in a sentence."""
    says_more: bool
    """Of a gang no member of which fits anywhere, it says more than a count of nodes."""

    def __new__(cls, number: int, words: str, says_more: bool = False) -> Code:
        """Make a member."""
        code = int.__new__(cls, number)
        code._value_, code.words, code.says_more = number, words, says_more
        return code

    FITS = -1, "with room"
    INSUFFICIENT_MEMORY = 0, "short of memory"
    INSUFFICIENT_CPU = 1, "short of CPUs"
    INSUFFICIENT_VRAM = 2, "short of VRAM"
    CARD_MEMORY_UNKNOWN = 3, "with cards of unknown memory", True
    CARD_IN_USE = 4, "with cards in use"
    CARD_COOLING = 5, "with cooling cards"
    INSUFFICIENT_GPU = 6, "short of GPUs"
    SLOTS_FULL = 7, "without a free slot"
    SPREAD_FULL = 8, "beyond the limit of the spread"
    NODE_COOLING = 9, "cooling", True
    CORDONED = 10, "cordoned", True
    NODE_DRAINING = 11, "draining", True
    MODEL_TOO_LARGE = 12, "with cards that are too small for the model", True
    NODE_SELECTOR_MISMATCH = 13, "without the labels", True
    NO_NODES = 14, "dead"


class Check(NamedTuple):
    """The code that stops an offer, the amounts, and the index of the card Ray would hand out; -1 = no single card."""

    code: int
    need: int = 0
    have: int = 0
    card: int = -1


FITTING = Check(Code.FITS)
Checks = NDArray[Any]
"""Many checks as one structured array; `found["code"]` is the code of each."""
CHECK = np.dtype([(name, np.int64) for name in Check._fields])


def check_offer(offer: Offer, claim: Claim) -> Check:
    """Return what stops an offer from taking `claim`: cards first, then CPUs, then memory."""
    found = check_cards(offer, claim)
    if found.code != Code.FITS:
        return found
    if offer.free_cpus < claim.cpus:
        return Check(Code.INSUFFICIENT_CPU, claim.cpus, offer.free_cpus)
    if offer.free_memory < claim.memory:
        return Check(Code.INSUFFICIENT_MEMORY, claim.memory, offer.free_memory)
    return found


def check_cards(offer: Offer, claim: Claim) -> Check:
    """Return what stops the cards of an offer from taking `claim`."""
    if not claim.wants_card or choose(offer, claim) is not None:
        return FITTING
    wanted = max(1, claim.whole_cards)
    if claim.gpus and claim.vram and len(offer.cards) >= wanted:
        # cards that are too small even when unused come before what is free on them
        sizes = sorted((card.memory or 0 for card in offer.cards), reverse=True)
        if sizes[-1] > 0 and sizes[wanted - 1] < claim.vram:
            return Check(Code.INSUFFICIENT_VRAM, claim.vram, sizes[wanted - 1])
    if claim.whole_cards:
        return _whole(offer, claim)
    return _vram_alone(offer, claim) or _share(offer, claim)


def _whole(offer: Offer, claim: Claim) -> Check:
    wanted = claim.whole_cards
    free = [card for card in offer.cards if card.fully_free]
    count = min(len(free), max(0, offer.free_gpus) // SHARE)
    if count < wanted:
        return Check(Code.INSUFFICIENT_GPU, wanted, count)
    clean = [card for card in free if not card.dirty]
    if len(clean) < wanted:
        return Check(_why_dirty(free), wanted, len(clean))
    known = sorted((card.free_vram for card in clean if card.free_vram is not None), reverse=True)
    if len(known) < wanted:
        return Check(Code.CARD_MEMORY_UNKNOWN, claim.vram)
    return Check(Code.INSUFFICIENT_VRAM, claim.vram, known[wanted - 1])


def _why_dirty(cards: Sequence[OfferedCard]) -> Code:
    """CARD_COOLING if all dirty cards cool, CARD_IN_USE if at least one is in use."""
    return Code.CARD_COOLING if all(card.cooling for card in cards if card.dirty) else Code.CARD_IN_USE


def _vram_alone(offer: Offer, claim: Claim) -> Check | None:
    """Blame memory rather than the share, which depends on the card, if no card has the memory."""
    if claim.gpus or not offer.cards:
        return None
    known = [card for card in offer.cards if card.free_vram is not None]
    if not known:
        return Check(Code.CARD_MEMORY_UNKNOWN, claim.vram)
    offered = [card.free_vram or 0 for card in known if not card.closed]
    if not offered:
        return Check(Code.CARD_COOLING, 1)
    return Check(Code.INSUFFICIENT_VRAM, claim.vram, max(offered)) if max(offered) < claim.vram else None


def _share(offer: Offer, claim: Claim) -> Check:
    shares = possible_shares(offer, claim)
    for share in shares:
        if (card := blind_pick(offer, share)) is not None:
            return _picked(offer, claim, card)
    most = max((card.free_share for card in offer.cards), default=0)
    return Check(Code.INSUFFICIENT_GPU, min(shares, default=SHARE), min(most, max(0, offer.free_gpus)))


def _picked(offer: Offer, claim: Claim, card: OfferedCard) -> Check:
    """Blame the card that Ray would hand out: it is in use, or its memory is too small."""
    if card.closed or (card.foreign and not claim.vram):
        return Check(_why_dirty([card]), 1, 0, card.index)
    if card.free_vram is None:
        return Check(Code.CARD_MEMORY_UNKNOWN, claim.vram)
    best = max(other.free_vram or 0 for other in offer.cards)
    if best < claim.vram:
        return Check(Code.INSUFFICIENT_VRAM, claim.vram, best)
    # a card with enough memory is of another size, so the claim would be another share of it than Ray was asked for
    return Check(Code.INSUFFICIENT_VRAM, claim.vram, card.free_vram if card.free_vram < claim.vram else 0, card.index)


def refusal(offer: Offer, claim: Claim) -> tuple[str, str] | None:
    """Return in words what `claim` needs of an offer and what the offer has; None if the claim fits."""
    found = check_offer(offer, claim)
    if found.code == Code.FITS:
        return None
    code = next(code.name for code in Code if code == found.code)
    return need_text(code, found.need, claim, found.card), amount(code, found.have, claim)


def need_text(code: str, need: int, claim: Claim, card: int) -> str:
    """Return the need behind a code, with its unit; `card` = the card Ray would hand out, -1 = no single card."""
    picked = f" (Ray would hand out card {card})" if card >= 0 else ""
    cards = f" {plural(need, 'GPU')}" if claim.whole_cards else " card"
    about = {
        "INSUFFICIENT_CPU": " free CPUs",
        "INSUFFICIENT_MEMORY": " free memory",
        "INSUFFICIENT_VRAM": f" free VRAM on a card{picked}",
        "CARD_MEMORY_UNKNOWN": " VRAM on a card whose memory is known",
        "INSUFFICIENT_GPU": f" {plural(need, 'free GPU')}" if claim.whole_cards
                            else f" of {'one' if claim.gpus else 'a'} card",
        "CARD_IN_USE": f"{cards} that nothing else uses{picked}",
        "CARD_COOLING": f"{cards} not cooling{picked}",
    }[code]
    return f"{amount(code, need, claim)}{about}"


def amount(code: str, value: int, claim: Claim) -> str:
    """Format an amount in the unit of a code."""
    if code in {"INSUFFICIENT_VRAM", "CARD_MEMORY_UNKNOWN", "INSUFFICIENT_MEMORY"}:
        return format_bytes(value)
    shares = code == "INSUFFICIENT_CPU" or (code == "INSUFFICIENT_GPU" and not claim.whole_cards)
    return format_share(value) if shares else str(value)
