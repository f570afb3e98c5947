"""The order in which to create members on one node so that Ray's own choice of cards takes them all.

Large ones first nearly always works. If it does not, orders are searched depth first with Ray's rule: any packing of
shares on cards is reached by some order, unless memory on cards interferes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, take

SEARCH_STEPS = 3000

Member = tuple[int, Claim]
"""(item, claim of one member)."""


def creation_order(offer: Offer, pattern: Sequence[tuple[int, int]], claims: Mapping[int, Claim]) -> list[int]:
    """Return items in an order in which an offer takes them; items that find no card are left out.

    `pattern` = (item, count) pairs; `claims` = by item.
    """
    members = sorted(((item, claims[item]) for item, count in pattern for _ in range(count)), key=_large_first)
    taken = _taken(offer, members)
    found = _Search(members).order(offer) if len(taken) < len(members) else None
    return taken if found is None else [item for item, _ in found]


def _large_first(member: Member) -> tuple[int, ...]:
    item, claim = member
    return -claim.whole_cards, -claim.gpus, -claim.vram, -claim.cpus, item


def _taken(offer: Offer, order: Sequence[Member]) -> list[int]:
    items = []
    for item, claim in order:
        taken = take(offer, claim)
        if taken is not None:
            offer = taken.left
            items.append(item)
    return items


class _Search:
    """A depth-first search for an order with Ray's rule; states without a solution are not tried again."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = sorted(set(members), key=_large_first)
        self.counts = Counter(members)
        self.steps = SEARCH_STEPS
        self.hopeless: set[tuple[Offer, tuple[int, ...]]] = set()

    def order(self, offer: Offer) -> list[Member] | None:
        """Return an order in which `offer` takes all members that are left; None if none was found."""
        if not self.counts.total():
            return []
        state = offer, tuple(self.counts[one] for one in self.members)
        self.steps -= 1
        if self.steps < 0 or state in self.hopeless or self._lacks_share(offer):
            return None
        for one in self.members:
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
        """Return whether the cards that hold at least one of the members have less share than all of them take."""
        shares = [(claim.gpus, count) for (_, claim), count in self.counts.items() if count]
        smallest = min(share for share, _ in shares)
        free = sum(card.free_share for card in offer.cards if card.free_share >= smallest)
        return free < sum(share * count for share, count in shares)
