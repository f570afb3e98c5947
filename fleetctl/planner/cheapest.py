"""The cheapest new nodes on which as much fits as on all that may be added: a branch and bound over their counts.

Counts are tried in a fixed order, those of the last type first, so that of equally cheap ones those with the fewest
nodes of later types win. A branch ends where it cannot become cheaper: each type needs some nodes even if all others
have their maximum, and what must run on new nodes needs room, at best on the type that sells it cheapest. Whether
counts are enough is a packing, so their number is limited; the cheapest found so far wins then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fleetctl.planner.placement.claims import Kind, ReplicaShape
from fleetctl.planner.placement.ledger.cards import Offer, take
from fleetctl.planner.placement.ledger.ledger import Ledger

MOST_TRIED, LEAST_TRIED = 400, 100
"""The most counts that are packed, fewer if many existing nodes are packed with them. Of 60 random fleets with four
types of up to 40 nodes, 400 find for all what 4,000 find, and 100 for all but one."""
MOST_BRANCHES = 20_000
AMOUNTS = ("gpus", "cpus", "memory")
MOST_DEMANDS = 16
"""The most models of which each has a bound of its own, those with the most replicas."""
Room = tuple[int, ...]
"""What is needed, or one node holds: GPUs, CPUs and memory of all members, of those on new nodes alone, and members."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A type of node: the most that count as new, and of these, how many exist already and so cost nothing.

    `price` None = unknown: such nodes are used only for what others cannot hold. `holds` = at most, on one node.
    """

    most: int
    price: int | None
    holds: Room
    joined: int = 0


def kinds_of_nodes(
    prices: Sequence[int | None], most: Sequence[int], joined: Sequence[int], one_of_each: Ledger, existing: Ledger,
    fitting: Sequence[tuple[Sequence[ReplicaShape], int]],
) -> tuple[list[NodeKind], Room]:
    """Return the types, and what the replicas that fit, all of which have a member on a new node, need of them.

    `one_of_each` has an empty node of each type, in their order. Members of a gang may be on `existing` nodes.
    `fitting` = the variants of each model, and how many replicas of it fit; what they need is that of the smallest.
    """
    free = [existing.offer(place) for place, node in enumerate(existing.nodes) if node.open]
    alone = [(shapes, count) for shapes, count in fitting if all(shape.size == 1 for shape in shapes)]
    own = sorted(alone, key=lambda one: -one[1])[:MOST_DEMANDS]
    offers = [one_of_each.offer(place) for place in range(len(prices))]
    amounts = [tuple(getattr(offer, f"free_{amount}") for amount in AMOUNTS) for offer in offers]
    members = [[max(held) for held in zip(*(_members(kind, count, one_of_each, offers)
                                            for shape in shapes for kind in shape.kinds), strict=True)]
               for shapes, count in own]
    needs = (*(_least(fitting, amount) - sum(getattr(offer, f"free_{amount}") for offer in free) for amount in AMOUNTS),
             *(_least(alone, amount) for amount in AMOUNTS), *(count for _, count in own))
    return [NodeKind(most[at], price, (*amounts[at], *amounts[at], *(held[at] for held in members)), joined[at])
            for at, price in enumerate(prices)], needs


def _least(fitting: Sequence[tuple[Sequence[ReplicaShape], int]], amount: str) -> int:
    """Return how much of an amount replicas take at least, each as the variant that takes the least of it."""
    return sum(replicas * min(sum(getattr(claim, amount) * count for (claim, _), count in shape.kinds.items())
                              for shape in shapes) for shapes, replicas in fitting)


def _members(kind: Kind, count: int, one_of_each: Ledger, offers: Sequence[Offer]) -> Iterator[int]:
    """Yield how many members of a kind, at most `count`, an empty node of each type holds."""
    claim, selector = kind
    selected = set(one_of_each.selected(selector))
    for at, offer in enumerate(offers):
        held, left = 0, offer
        while at in selected and held < count and (taken := take(left, claim)) is not None:
            held, left = held + 1, taken.left
        yield held


@dataclass
class Search:
    """The search for counts that are `enough` and cost least. All sequences are in the order of the types.

    `needs` = the room that all counts must have at least; `best` = the cheapest counts found, at first any that are
    enough.
    """

    kinds: Sequence[NodeKind]
    needs: Room
    enough: Callable[[Sequence[int]], bool]
    best: list[int]
    tries: int = MOST_TRIED
    """The most counts that are packed."""
    cost: int = 0
    least: list[int] = field(default_factory=list)
    """The fewest nodes of each type, the others at their maximum."""
    known: dict[tuple[int, ...], bool] = field(default_factory=dict)
    branches: int = 0

    def __post_init__(self) -> None:
        known = [(kind.price or 0) * kind.most for kind in self.kinds]
        unknown = 1 + sum(known)  # one node without a price costs more than all with one
        self.prices = [unknown if kind.price is None else kind.price for kind in self.kinds]
        self.cost = self._cost_of(self.best)

    def _cost_of(self, counts: Sequence[int]) -> int:
        return sum(price * max(0, count - kind.joined)
                   for price, count, kind in zip(self.prices, counts, self.kinds, strict=True))

    def cheapest(self) -> list[int]:
        """Return the cheapest counts; of equally cheap ones, those with the fewest nodes of later types."""
        places, most = range(len(self.kinds)), [kind.most for kind in self.kinds]
        dearest = sorted(places, key=lambda at: -self.prices[at])
        by_worth = sorted(places, key=lambda at: -min(
            (self.prices[at] / held for held, need in zip(self.kinds[at].holds, self.needs, strict=True)
             if held and need), default=float(self.prices[at])))
        for order in (dearest, by_worth):
            self._offer(self._reduced(most, order))
        self.least = [self._fewest(at, most, 0, most[at]) for at in places]
        self._branch(list(self.least), len(self.kinds) - 1)
        return self.best

    def _reduced(self, counts: Sequence[int], order: Sequence[int]) -> list[int]:
        """Return the counts, those of one type after another made as low as the others allow."""
        counts = list(counts)
        for at in order:
            counts[at] = self._fewest(at, counts, 0, counts[at])
        return counts

    def _fewest(self, at: int, counts: Sequence[int], least: int, most: int) -> int:
        """Return the fewest nodes of a type that are enough with the other counts; `most` if no fewer are."""
        def is_enough(count: int) -> bool:
            return self._is_enough([*counts[:at], count, *counts[at + 1:]])

        if least == most or is_enough(least):  # of most types none is needed
            return least
        return bisect_left(range(most), True, lo=least + 1, key=is_enough)

    def _is_enough(self, counts: Sequence[int]) -> bool:
        key = tuple(counts)
        if key not in self.known:
            if len(self.known) >= self.tries:
                return False
            self.known[key] = self.enough(key)
        return self.known[key]

    def _offer(self, counts: Sequence[int]) -> None:
        """Keep the counts if they are better; they are enough."""
        cost = self._cost_of(counts)
        if (cost, list(reversed(counts))) < (self.cost, list(reversed(self.best))):
            self.best, self.cost = list(counts), cost

    def _branch(self, counts: list[int], at: int) -> None:
        """Try all counts of the types up to `at`; those after it are decided, the others at their least."""
        self.branches += 1
        if at == 0:
            top = self._fewest(0, counts, self.least[0], self.kinds[0].most)
            if self._is_enough([top, *counts[1:]]):
                self._offer([top, *counts[1:]])
            return
        for count in range(self.least[at], self.kinds[at].most + 1):
            counts[at] = count
            bound = self._bound(counts, at)
            later = list(reversed(counts[at:])) > list(reversed(self.best[at:]))
            if self._cost_of(counts) > self.cost or self.branches > MOST_BRANCHES or len(self.known) >= self.tries:
                break
            if bound < self.cost or (bound == self.cost and not later):
                self._branch(counts, at - 1)
        counts[at] = self.least[at]

    def _bound(self, counts: Sequence[int], at: int) -> int:
        """Return what the counts cost at least if only those of the types before `at` become higher."""
        decided, extra = self._cost_of(counts), 0
        held = [max(count, kind.joined) if place < at else count
                for place, (count, kind) in enumerate(zip(counts, self.kinds, strict=True))]
        for unit, need in enumerate(self.needs):
            left = need - sum(count * kind.holds[unit] for count, kind in zip(held, self.kinds, strict=True))
            if left > 0:
                costs = [-(-left * self.prices[place] // kind.holds[unit])
                         for place, kind in enumerate(self.kinds[:at]) if kind.holds[unit]]
                extra = max(extra, min(costs, default=self.cost + 1))
        return decided + extra
