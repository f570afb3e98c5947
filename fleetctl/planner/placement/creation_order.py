"""In which order members must be created on one node so that Ray's own choice of cards takes them all.

Any packing of shares on cards can be reached: whole cards first, then card by card, cards with the least free share
first; a share meant for card k lands on k or on an earlier card, since later ones are as they were and have as much
free. Memory on cards can break that, so every order is tried out by the rule itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, take

SEARCH_STEPS = 3000

Asked = tuple[int, Claim]
"""(item, claim of one member)."""


def creation_order(
    offer: Offer, pattern: Sequence[tuple[int, int]], claims: Mapping[int, Claim]
) -> tuple[list[int], Offer]:
    """Return items in an order that fits, and what is left of an offer; what finds no card is left out.

    `pattern` = (item, how many); `claims` = by item.
    """
    asked = sorted(((item, claims[item]) for item, count in pattern for _ in range(count)), key=_large_first)
    best: tuple[list[int], Offer] = ([], offer)
    for order in _orders(offer, asked):
        issued, left = _issued(offer, order)
        if len(issued) == len(asked):
            return issued, left
        if len(issued) > len(best[0]):
            best = issued, left
    return best


def _large_first(asked: Asked) -> tuple[int, ...]:
    item, claim = asked
    return -claim.whole_cards, -claim.gpus, -claim.vram, -claim.cpus, item


def _orders(offer: Offer, asked: list[Asked]) -> Iterator[list[Asked]]:
    yield asked
    card_by_card = _card_by_card(offer, asked)
    if card_by_card is not None:
        yield card_by_card
    yield sorted(asked, key=lambda one: (-one[1].whole_cards, -one[1].vram, -one[1].gpus, one[0]))
    found = _Issue(asked).order(offer) if any(claim.vram for _, claim in asked) else None
    if found is not None:
        yield found


def _issued(offer: Offer, order: Sequence[Asked]) -> tuple[list[int], Offer]:
    issued = []
    for item, claim in order:
        taken = take(offer, claim)
        if taken is not None:
            offer = taken.left
            issued.append(item)
    return issued, offer


def _card_by_card(offer: Offer, asked: list[Asked]) -> list[Asked] | None:
    """Search a packing of the shares on the cards, and return the order that reaches it; None when none was found."""
    whole = [one for one in asked if one[1].whole_cards]
    shares = [one for one in asked if 0 < one[1].gpus < SHARE]
    rest = [one for one in asked if one[1].gpus == 0]
    for _, claim in whole:
        taken = take(offer, claim)
        if taken is None:
            return None
        offer = taken.left
    sizes = sorted({claim.gpus for _, claim in shares}, reverse=True)
    by_size = {size: sorted((one for one in shares if one[1].gpus == size), key=_large_first) for size in sizes}
    free = sorted(card.free_share for card in offer.cards if not card.dirty)
    filled = _Cards(free, sizes).fill(0, tuple(len(by_size[size]) for size in sizes))
    if filled is None:
        return None
    by_card = [by_size[size].pop(0) for counts in filled for size, count in zip(sizes, counts, strict=True)
               for _ in range(count)]
    return [*whole, *by_card, *rest]


class _Issue:
    """Searches an order of issue by the rule itself, depth first; states that led nowhere are not tried again."""

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
        if self.steps < 0 or state in self.hopeless:
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


class _Cards:
    """Fills cards with shares one after another, each as far as it goes (bin completion: Martello and Toth 1990)."""

    def __init__(self, free: Sequence[int], sizes: Sequence[int]) -> None:
        self.free, self.sizes = free, sizes
        self.room = [sum(free[card:]) for card in range(len(free) + 1)]
        self.steps = SEARCH_STEPS
        self.hopeless: set[tuple[int, tuple[int, ...]]] = set()

    def fill(self, card: int, left: tuple[int, ...]) -> list[tuple[int, ...]] | None:
        """Return how many of each size go on each card from number `card` on; None when not all found a place."""
        if not any(left):
            return []
        self.steps -= 1
        wanted = sum(size * count for size, count in zip(self.sizes, left, strict=True))
        if wanted > self.room[card] or self.steps < 0 or (card, left) in self.hopeless:
            return None
        fillings = sorted(self._fillings(0, self.free[card], left), key=lambda filling: filling[0])
        for _, counts in fillings:
            rest = self.fill(card + 1, tuple(have - used for have, used in zip(left, counts, strict=True)))
            if rest is not None:
                return [counts, *rest]
        self.hopeless.add((card, left))
        return None

    def _fillings(self, place: int, free: int, left: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield what a card may hold so that nothing that is left can be added, with the share that stays free."""
        if place == len(self.sizes):
            yield free, ()
            return
        size = self.sizes[place]
        most = min(left[place], free // size)
        for count in range(most, -1, -1):
            for waste, rest in self._fillings(place + 1, free - count * size, left):
                if count == left[place] or waste < size:
                    yield waste, (count, *rest)
