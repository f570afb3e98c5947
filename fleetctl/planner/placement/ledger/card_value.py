"""How valuable the cards of each node are, so that small models go to small cards and leave large ones free.

Kinds of cards are ranked from 0, the least valuable: by price per card if every node that could hold a claim has a
price, else by memory if that is known of all of them, else not at all. Nodes that do not report all their cards are
left out of this question, as they are used last anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from fleetctl.planner.placement.claims import Claim, Kind, Selector
from fleetctl.planner.placement.ledger.cards import share_of
from fleetctl.planner.placement.ledger.ledger import Ledger

ALIKE = 10
"""In percent: cards with as much more memory are of the same kind. Drivers report a little more or less of it."""
UNKNOWN = -1
MICRO = 1_000_000
"""The unit of worth: a millionth of a card."""


class Trait(NamedTuple):
    """What tells nodes with equal offers apart; ranks from 0, the least valuable, or UNKNOWN.

    A node with cards of several kinds counts as its largest one.
    """

    area: int
    """Of the worth of its room."""
    by_price: int
    by_memory: int
    counts: bool
    """It has cards, all of which are reported."""
    tariff: int = 0
    """Of its price, where prices decide between variants."""


class Ranking(NamedTuple):
    """The value of cards for one kind of member."""

    rank_of: tuple[int, ...]
    """By trait."""
    share: int
    """What the member takes of the smallest card that holds it, in 1/10000 of a card."""


class CardValues:
    """The traits of all nodes of a ledger.

    `areas` = the area of each node, or None; unless `ranked`, all cards are worth the same.
    """

    def __init__(self, ledger: Ledger, areas: Sequence[int] | None, *, ranked: bool) -> None:
        self.ledger = ledger
        self._sizes: list[tuple[int, int]] = []
        """By rank of memory: the bytes of the smallest and of the largest card."""
        self._present: dict[Selector, frozenset[int]] = {}
        alike = Trait(0, UNKNOWN, UNKNOWN, counts=False)
        values = self._values() if ranked else [alike] * len(ledger.nodes)
        prices = ledger.prices
        numbers: dict[Trait, int] = {alike: 0} if areas is None and not ranked and prices is None else {}
        if prices is not None:
            values = [value._replace(tariff=tariff) for value, tariff in zip(values, prices.of_node, strict=True)]
        if areas is not None:
            values = [value._replace(area=area) for value, area in zip(values, areas, strict=True)]
        self.of_node = [numbers.setdefault(value, len(numbers)) for value in values]
        """The number of each node's trait."""
        self.traits = list(numbers)
        self._by_price = tuple([trait.by_price for trait in self.traits])
        self._by_memory = tuple([trait.by_memory for trait in self.traits])

    def _values(self) -> list[Trait]:
        """Return the trait of each node, with the area still to be set."""
        ledger = self.ledger
        offers = {number: ledger.numbered(number) for number in set(ledger.numbers)}
        memory = {number: max((card.memory or 0 for card in offer.cards), default=0)
                  for number, offer in offers.items()}
        rank_of = {0: UNKNOWN}
        for size in sorted(set(memory.values()) - {0}):
            if not self._sizes or size * 100 > self._sizes[-1][0] * (100 + ALIKE):
                self._sizes.append((size, size))
            self._sizes[-1] = self._sizes[-1][0], size
            rank_of[size] = len(self._sizes) - 1
        prices: list[Fraction | None] = [
            None if node.policy.price is None or not offers[number].cards else
            Fraction(node.policy.price, len(offers[number].cards))
            for node, number in zip(ledger.nodes, ledger.numbers, strict=True)]
        order = {price: rank for rank, price in enumerate(sorted({price for price in prices if price is not None}))}
        counts = {number: bool(offer.cards) and not offer.unreported for number, offer in offers.items()}
        return [Trait(0, UNKNOWN if price is None else order[price], rank_of[memory[number]], counts[number])
                for number, price in zip(ledger.numbers, prices, strict=True)]

    def ranking(self, kind: Kind) -> Ranking | None:
        """Return how valuable the cards are that could hold a kind of member; None if they are of one kind."""
        claim, selector = kind
        if not claim.wants_card:
            return None
        if selector not in self._present:
            self._present[selector] = frozenset([self.of_node[node] for node in self.ledger.selected(selector)])
        holding = [trait for trait in map(self.traits.__getitem__, self._present[selector])
                   if trait.counts and (not claim.vram or (trait.by_memory != UNKNOWN
                                                           and self._sizes[trait.by_memory][1] >= claim.vram))]
        by_memory = {trait.by_memory for trait in holding}
        ranks, found = self._by_price, {trait.by_price for trait in holding}
        if UNKNOWN in found:
            ranks, found = self._by_memory, by_memory
        if UNKNOWN in found or len(found) <= 1:
            return None
        return Ranking(ranks, self._share(claim, min(by_memory)))

    def _share(self, claim: Claim, smallest: int) -> int:
        if claim.gpus or smallest == UNKNOWN:
            return claim.gpus
        return share_of(claim.vram, max(self._sizes[smallest][0], claim.vram))


def tells_cards_apart(ledger: Ledger) -> bool:
    """Return whether a ledger has cards of several kinds or prices."""
    traits = CardValues(ledger, None, ranked=True).traits
    return len({(trait.by_price, trait.by_memory) for trait in traits if trait.counts}) > 1
