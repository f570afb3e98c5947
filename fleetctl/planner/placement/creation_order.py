"""In which order members must be created on one node so that Ray's own choice of cards takes them all.

Large ones first nearly always does. Where it does not, the orders are searched by the rule itself, depth first: any
packing of shares on cards can be reached by some order, but memory on cards can break that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, take

SEARCH_STEPS = 3000

Asked = tuple[int, Claim]
"""(item, claim of one member)."""


def creation_order(offer: Offer, pattern: Sequence[tuple[int, int]], claims: Mapping[int, Claim]) -> list[int]:
    """Return items in an order in which an offer takes them; what finds no card is left out.

    `pattern` = (item, how many); `claims` = by item.
    """
    asked = sorted(((item, claims[item]) for item, count in pattern for _ in range(count)), key=_large_first)
    issued = _issued(offer, asked)
    found = _Search(asked).order(offer) if len(issued) < len(asked) else None
    return issued if found is None else [item for item, _ in found]


def _large_first(asked: Asked) -> tuple[int, ...]:
    item, claim = asked
    return -claim.whole_cards, -claim.gpus, -claim.vram, -claim.cpus, item


def _issued(offer: Offer, order: Sequence[Asked]) -> list[int]:
    issued = []
    for item, claim in order:
        taken = take(offer, claim)
        if taken is not None:
            offer = taken.left
            issued.append(item)
    return issued


class _Search:
    """Searches an order by the rule itself, depth first; states that led nowhere are not tried again."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self.asked = sorted(set(asked), key=_large_first)
        self.counts = Counter(asked)
        self.steps = SEARCH_STEPS
        self.hopeless: set[tuple[Offer, tuple[int, ...]]] = set()

    def order(self, offer: Offer) -> list[Asked] | None:
        """Return an order in which all that is left can be issued on `offer`; None when none was found."""
        if not self.counts.total():
            return []
        state = offer, tuple(self.counts[one] for one in self.asked)
        self.steps -= 1
        if self.steps < 0 or state in self.hopeless or self._lacks_share(offer):
            return None
        for one in self.asked:
            taken = take(offer, one[1]) if self.counts[one] else None
            if taken is None:
                continue
            self.counts[one] -= 1
            rest = self.order(taken.left)
            self.counts[one] += 1
            if rest is not None:
                return [one, *rest]
        self.hopeless.add(state)
        return None

    def _lacks_share(self, offer: Offer) -> bool:
        """Return whether the cards on which any of what is left fits have less share than all of it takes."""
        shares = [(claim.gpus, count) for (_, claim), count in self.counts.items() if count]
        smallest = min(share for share, _ in shares)
        free = sum(card.free_share for card in offer.cards if card.free_share >= smallest)
        return free < sum(share * count for share, count in shares)
