"""Everything that the cards of one node can hold, by Ray's rule.

If members claim memory on a part of a card, or something foreign uses a card, Ray's blind choice, and with it the order
of creation, decides what fits. So all orders are tried, breadth first. Equal nodes are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Card, Offer, take

STATES, ALL_STATES = 20_000, 100_000
"""The most states visited, for one node and for all nodes together.

All of them take 3 s. With 2,000 and 24,000 two of 28 fleets of the family `blind` had no proof, and one of them 17
replicas at the lowest priority instead of 21.
"""

Counts = tuple[int, ...]
"""The number of members on a node, by claim."""


class Holdings:
    """What nodes can hold, for one linear model; cached by offer."""

    def __init__(self) -> None:
        self._left = ALL_STATES
        self._known: dict[tuple[Offer, tuple[Claim, ...], Counts], list[Counts] | None] = {}

    def of(self, offer: Offer, claims: Sequence[Claim], most: Sequence[int]) -> list[Counts] | None:
        """Return the maximal multisets of claims, at most `most` of each, that some order of creation places.

        None if there are too many states to try.
        """
        key = offer, tuple(claims), tuple(most)
        if key not in self._known:
            found = _reachable(offer, claims, most, min(STATES, self._left))
            self._left -= STATES if found is None else len(found)
            self._known[key] = None if found is None else _maximal(found)
        return self._known[key]


def picks_blindly(offer: Offer, claims: Sequence[Claim]) -> bool:
    """Return whether Ray's choice of card may matter: shares with memory, or shares beside a dirty card."""
    shares = any(claim.wants_card and not claim.whole_cards for claim in claims)
    in_use = any(card.dirty and card.free_share for card in offer.cards)
    return shares and (in_use or any(claim.vram for claim in claims))


def _reachable(offer: Offer, claims: Sequence[Claim], most: Sequence[int], states: int) -> set[Counts] | None:
    """Return all counts that some order of creation reaches; None beyond this number of `states`."""
    start = tuple(0 for _ in claims)
    seen: set[tuple[Counts, tuple[Card, ...]]] = {(start, offer.cards)}
    front: list[tuple[Counts, Offer]] = [(start, offer)]
    while front:
        following: list[tuple[Counts, Offer]] = []
        for counts, left in front:
            for place, claim in enumerate(claims):
                taken = take(left, claim) if counts[place] < most[place] else None
                if taken is None:
                    continue
                more = (*counts[:place], counts[place] + 1, *counts[place + 1:])
                if (more, taken.left.cards) not in seen:
                    seen.add((more, taken.left.cards))
                    following.append((more, taken.left))
            if len(seen) > states:
                return None
        front = following
    return {counts for counts, _ in seen}


def _maximal(found: set[Counts]) -> list[Counts]:
    """Return the counts that no others contain."""
    kept: list[Counts] = []
    for counts in sorted(found, key=lambda one: (-sum(one), one)):
        if not any(all(a <= b for a, b in zip(counts, other, strict=True)) for other in kept):
            kept.append(counts)
    return kept
