"""What the nodes of a ledger offer, each kind of cards once: on 10,000 nodes a claim is judged a few hundred times.

Everything is as the ledger stood when it was made. CPUs and memory, which differ from node to node, are compared apart.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Card, Offer, count_fits
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.reasons.codes import CPU, FITS, MEMORY
from fleetctl.planner.placement.reasons.verdict import VERDICT, Verdicts, judge_cards


@dataclass
class OfferKinds:
    """The offers of all nodes, in ledger order."""

    ledger: Ledger
    _judged: dict[Claim, Verdicts] = field(default_factory=dict)
    _free_cards: dict[int, Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        offers = [self.ledger.offer(place) for place in range(len(self.ledger.nodes))]
        self.free_cpus: Ints = np.array([offer.free_cpus for offer in offers], dtype=np.int64)
        self.free_memory: Ints = np.array([offer.free_memory for offer in offers], dtype=np.int64)
        self._by_share = _told_apart(offers, lambda offer: (offer.cards, offer.free_gpus))
        kinds, first = _told_apart(self._by_share[1], _whole_cards)
        self._by_whole = kinds[self._by_share[0]], first

    def judge(self, claim: Claim, places: Ints) -> Verdicts:
        """Return what the offers of some nodes say to a claim."""
        cards = claim._replace(cpus=0, memory=0)
        kinds, offers = self._by_whole if claim.whole_cards else self._by_share
        if cards not in self._judged:
            self._judged[cards] = np.array([judge_cards(offer, cards) for offer in offers], dtype=VERDICT)
        found = self._judged[cards][kinds[places]]
        for code, need, free in ((CPU, claim.cpus, self.free_cpus[places]),
                                 (MEMORY, claim.memory, self.free_memory[places])):
            short = (found["code"] == FITS) & (free < need)
            found["code"][short], found["need"][short], found["have"][short] = code, need, free[short]
        return found

    def free_cards(self, places: Ints, vram: int = 0) -> Ints:
        """Return for some nodes how many whole cards with so much free memory are on offer."""
        kinds, offers = self._by_whole
        if vram not in self._free_cards:
            fits = [count_fits(offer, Claim(SHARE, vram)) for offer in offers]
            self._free_cards[vram] = np.array(fits, dtype=np.int64)
        return self._free_cards[vram][kinds[places]]

    def free_share(self, places: Ints) -> Ints:
        """Return for some nodes the share on offer on all clean cards; what lies on different ones does not add up."""
        return self._free_share[self._by_share[0][places]]

    @cached_property
    def _free_share(self) -> Ints:
        return np.array([min(sum(card.free_share for card in offer.cards if not card.dirty), max(0, offer.free_gpus))
                         for offer in self._by_share[1]], dtype=np.int64)


def _told_apart(offers: list[Offer], key: Callable[[Offer], Hashable]) -> tuple[Ints, list[Offer]]:
    """Return the kind of each offer, as a number, and one offer of each kind."""
    kinds: dict[Hashable, int] = {}
    found: list[Offer] = []
    numbers = [kinds.setdefault(key(offer), len(kinds)) for offer in offers]
    for offer, number in zip(offers, numbers, strict=True):
        if number == len(found):
            found.append(offer)
    return np.array(numbers, dtype=np.int64), found


def _whole_cards(offer: Offer) -> Hashable:
    """Return what matters of an offer to claims of whole cards: of a card that is in part taken its size alone."""
    return offer.free_gpus // SHARE, tuple(sorted(map(_whole_card, offer.cards)))


def _whole_card(card: Card) -> tuple[int, int, bool]:
    free = 0 if not card.fully_free else 1 if card.free_vram is None else card.free_vram + 2
    return card.memory or 0, free, card.dirty and card.fully_free
