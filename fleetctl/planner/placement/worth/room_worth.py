"""The worth of each node's free room to what a fleet still expects, and so the cost of a placement to the rest.

Similar to Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023), which places a task where the GPU share that
no typical task could use grows least. Two things differ. A node's room is worth the best use that *all* expected
members could make of it together (`node_worth`), not what each alone could use. And members count at their bid price
(`bid_prices`), so that room for plentiful members is not kept at the expense of scarce ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.ledger.cards import Card
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.problem import WantedClasses, with_nodes
from fleetctl.planner.placement.tally import Tally
from fleetctl.planner.placement.worth.bid_prices import MICRO, bid_prices
from fleetctl.planner.placement.worth.expected import Expected, expected_kinds
from fleetctl.planner.placement.worth.groups import find_areas, find_groups
from fleetctl.planner.placement.worth.node_worth import MIB, node_worth

FULLER = 3 * MICRO // 100
"""An empty node costs 0.03 cards more than a full one, which only decides between nearly equal nodes.

Without it the trace default loses 0.08 points.
"""


class RoomWorth:
    """The worth of free room, by offer and area, in millionths of a card; `area_of` = the area of each node.

    Prices are set once, for the ledger as it is then. If nothing runs yet, areas also distinguish how rare a node is.
    Later, what runs is a better guess: with rarity the openb trace lost two points of its GPUs.
    """

    def __init__(self, ledger: Ledger, expected: Sequence[Expected]) -> None:
        self._ledger = ledger
        numbers = Counter(number for node, number in zip(ledger.nodes, ledger.numbers, strict=True) if node.open)
        share = sum(count * sum([card.free_share for card in ledger.numbered(number).cards
                                 if card.free_share and not card.dirty]) for number, count in numbers.items())
        wanted = expected_kinds(expected, share)
        tally = Tally(with_nodes(WantedClasses(tuple([kind for kind, _ in wanted]), (), {}), ledger))
        areas = find_areas(tally)
        claims, counts = [claim for (claim, _), _ in wanted], [count for _, count in wanted]
        worth = bid_prices(claims, np.array(counts), *find_groups(tally, areas))
        cards, cpus, mib = share // SHARE, tally.total(tally.cpus) // SHARE, tally.total(tally.memory) // MIB
        self._most_cards = max((len(node.offer.cards) for node in tally.problem.nodes), default=0)
        self._by_vram = any(claim.vram for claim in claims)
        self._tables = node_worth(claims, worth, areas.shares, self._most_cards, cards * MICRO // cpus if cpus else 0,
                                  cards * MICRO * 1024 // mib if mib else 0)
        self._known: dict[tuple[int, int], tuple[int, int]] = {}
        nothing_runs = all(one.total == one.missing for one in expected)
        rare = rarities(ledger) if nothing_runs else [0] * len(ledger.nodes)
        self.area_of = rare
        for area, node in zip(areas.of_class.tolist(), tally.problem.nodes, strict=True):
            for place in node.nodes:
                self.area_of[place] += area * (STEPS + 1)

    def harm(self, before: int, after: int, area: int) -> int:
        """Return the cost to the rest when one offer becomes another, both by number."""
        if (before, area) not in self._known or (after, area) not in self._known:
            self.prepare([(before, area), (after, area)])
        worth, emptiness = self._known[before, area]
        return worth - self._known[after, area][0] + emptiness

    def prepare(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Compute the worth of many (number of an offer, area) pairs at once."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if not new:
            return
        offers = [self._ledger.numbered(number) for number, _ in new]
        shares = np.zeros((len(new), self._most_cards), np.int64)
        for row, offer in enumerate(offers):
            shares[row, :len(offer.cards)] = [self._usable(card) for card in offer.cards]
        area, rarity = np.divmod(np.array([area for _, area in new], np.int64), STEPS + 1)
        cpus, memory, size = np.array([(offer.free_cpus, offer.free_memory, len(offer.cards)) for offer in offers],
                                      np.int64).clip(min=0).T
        free = shares.sum(axis=1)
        worth = self._tables.of(area, shares, cpus, memory) + rarity * free // SHARE
        emptiness = FULLER * free // (SHARE * np.maximum(size, 1))
        self._known.update(zip(new, zip(worth.tolist(), emptiness.tolist(), strict=True), strict=True))

    def _usable(self, card: Card) -> int:
        """Return the share of a card that is still of use; limited by its free memory if the fleet claims VRAM."""
        if card.dirty:
            return 0
        share = max(0, card.free_share)
        if self._by_vram and share < SHARE and card.memory and card.free_vram is not None:
            share = min(share, card.free_vram // max(card.memory // SHARE, 1))
        return share


STEPS = 4


def rarities(ledger: Ledger) -> list[int]:
    """Return how rare each node is, from 0 (most are like it) to STEPS; closed nodes are 0.

    A label counts, relative to its most common value, if its values group nodes; host names do not.
    """
    open_nodes = [place for place, node in enumerate(ledger.nodes) if node.open]
    counts: dict[str, Counter[str]] = {}
    for place in open_nodes:
        for key, value in ledger.nodes[place].labels.items():
            counts.setdefault(key, Counter())[value] += 1
    groups = {key: by_value for key, by_value in counts.items() if 1 < len(by_value) <= len(open_nodes) // 2}
    memory = [max((card.memory or 0 for card in ledger.offer(place).cards), default=0) for place in open_nodes]
    sizes = sorted(memory)
    result = [0] * len(ledger.nodes)
    for place, size in zip(open_nodes, memory, strict=True):
        as_large = len(sizes) - bisect_left(sizes, size)
        labels = ledger.nodes[place].labels
        common = min([as_large / len(sizes), *(by_value[labels[key]] / max(by_value.values())
                                               for key, by_value in groups.items() if key in labels)])
        result[place] = round(STEPS * (1 - common))
    return result
