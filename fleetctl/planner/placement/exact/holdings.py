"""Everything the cards of one node can hold, by Ray's own rule.

Where members ask for memory on a part of a card, or a card is in use by a stranger, Ray's blind choice decides what
fits, and with it the order of creation. So all orders are tried, breadth first over what has been created so far. Equal
nodes are asked once.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Card, Offer, take

STATES, ALL_STATES = 20_000, 100_000
"""States that may be looked at: of one node, and of all nodes together.

All of them take 3 s. With 2,000 and 24,000 two of 28 fleets of the family `blind` had no proof, and one of them 17
replicas at the lowest priority where 21 are possible.
"""

Counts = tuple[int, ...]
"""How many members of each claim are on a node."""


class Holdings:
    """What nodes can hold, for one model; what is known of an offer is kept."""

    def __init__(self) -> None:
        self._left = ALL_STATES
        self._known: dict[tuple[Offer, tuple[Claim, ...], Counts], list[Counts] | None] = {}

    def of(self, offer: Offer, claims: Sequence[Claim], most: Sequence[int]) -> list[Counts] | None:
        """Return the largest multisets of claims that some order of creation puts on an offer's cards.

        At most `most` of each claim. None where there are too many states to try.
        """
        key = offer, tuple(claims), tuple(most)
        if key not in self._known:
            found = _reach(offer, claims, most, min(STATES, self._left))
            self._left -= STATES if found is None else len(found)
            self._known[key] = None if found is None else _largest(found)
        return self._known[key]


def picks_blindly(offer: Offer, claims: Sequence[Claim]) -> bool:
    """Return whether Ray's choice of card may matter: parts of cards with memory, or beside a card in use."""
    parts = any(claim.wants_card and not claim.whole_cards for claim in claims)
    in_use = any(card.dirty and card.free_share for card in offer.cards)
    return parts and (in_use or any(claim.vram for claim in claims))


def _reach(offer: Offer, claims: Sequence[Claim], room: Sequence[int], most: int) -> set[Counts] | None:
    start = tuple(0 for _ in claims)
    seen: set[tuple[Counts, tuple[Card, ...]]] = {(start, offer.cards)}
    front: list[tuple[Counts, Offer]] = [(start, offer)]
    while front:
        following: list[tuple[Counts, Offer]] = []
        for counts, at in front:
            for place, claim in enumerate(claims):
                taken = take(at, claim) if counts[place] < room[place] else None
                if taken is None:
                    continue
                more = (*counts[:place], counts[place] + 1, *counts[place + 1:])
                if (more, taken.left.cards) not in seen:
                    seen.add((more, taken.left.cards))
                    following.append((more, taken.left))
            if len(seen) > most:
                return None
        front = following
    return {counts for counts, _ in seen}


def _largest(found: set[Counts]) -> list[Counts]:
    """Return those that no other one contains."""
    kept: list[Counts] = []
    for counts in sorted(found, key=lambda one: (-sum(one), one)):
        if not any(all(a <= b for a, b in zip(counts, other, strict=True)) for other in kept):
            kept.append(counts)
    return kept
