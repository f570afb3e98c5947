"""The greedy pass: the first tier, on most fleets the answer, otherwise the packing that the other tiers must beat.

Priorities from high to low; within one, models without a live replica get their first before others get more. Members
with the fewest nodes go first, and of those the large ones, as in first-fit decreasing (Johnson 1974; optimal on equal
nodes if sizes divide one another, Coffman, Garey and Johnson 1987). The place in a file only breaks ties.

`MovablePacking` is a packing on the ledger, of which new replicas can be lifted off and replaced; running ones are not
known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from operator import itemgetter

from fleetctl.documents.quantity import grouped
from fleetctl.planner.placement.demand import Demand, Missing, Option, Placed, cheapest_first
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.problem import DemandClass, WantedClasses

MAX_LIFTED = 64
"""The most replicas lifted at once, so that a step is cheap even on full nodes."""


def pack_greedily(
    wanted: WantedClasses, placer: Placer, limits: Sequence[int] | None = None, *, apart: bool = False
) -> list[Placed]:
    """Place as much as fits in one pass, priority by priority, scarce members first; the result stays taken.

    A model with variants tries them one after another, the cheapest first, when it is the turn of the one with most
    nodes; with `apart` each of its variants has a turn of its own. Where prices decide, each replica takes the variant
    that is cheapest by then. `limits` = the most replicas of each class of demand.
    """
    placer.expect([selector for _, selector in wanted.kinds])

    most = None if limits is None else Counter(
        demand.option for alike, count in zip(wanted.demands, limits, strict=True) for demand in alike.in_turn(count))
    missing = Missing((demand for alike in wanted.demands for demand in alike.demands), most)
    together = wanted.has_variants and not apart
    result, taken = list[Placed](), Counter[Option]()
    priced = _priced_ways(wanted, placer) if together else {}

    def place(demand: Demand, count: int, *, as_it_is: bool = False) -> bool:
        if demand.place in priced and not as_it_is:
            return _place_cheapest(priced[demand.place], count, placer, missing, partial(place, as_it_is=True))
        count = min(count, missing.of(demand))
        new = list(place_some(demand, count, placer)) if count > 0 else []
        if new:
            result.extend(new)
            missing.take(demand, len(new))
            taken[demand.option] += len(new)
        return bool(new)

    for priority in wanted.priorities:
        classes = sorted((alike for alike in wanted.demands if alike.priority == priority),
                         key=lambda alike: _fewest_nodes_first(alike, wanted, placer))
        demands = [demand for alike in classes for demand in alike.demands]
        if together:
            turn = {demand.place: number for number, demand in enumerate(demands)}
            demands = sorted(demands, key=lambda demand: (turn[demand.place], *cheapest_first(demand)))
        served, with_least = set[int](), [demand for demand in demands if demand.least]
        for demand in (*with_least, *demands):  # a first replica of each model without any, then the others
            if demand.live == 0 and demand.place not in served and place(demand, 1, as_it_is=demand.least > 0):
                served.add(demand.place)
        for demand in with_least:
            place(demand, demand.least - taken[demand.option], as_it_is=True)
        for demand in demands:
            place(demand, demand.missing)
    return result


def _fewest_nodes_first(demand: DemandClass, wanted: WantedClasses, placer: Placer) -> tuple[int, ...]:
    claims = [wanted.kinds[kind][0] for kind in demand.members()]
    return (min(len(placer.candidates(wanted.kinds[kind])) for kind in demand.members()),
            -max(claim.gpus for claim in claims), -max(claim.vram for claim in claims),
            -max(claim.cpus for claim in claims), -demand.shape.size)


def _priced_ways(wanted: WantedClasses, placer: Placer) -> dict[int, list[Demand]]:
    """Return the demands of each model for which prices decide between variants, by its place."""
    prices = placer.ledger.prices
    return {} if prices is None else grouped(
        (demand.place, demand) for alike in wanted.demands for demand in alike.demands
        if demand.shape.key in prices.models)


def _place_cheapest(
    ways: Sequence[Demand], count: int, placer: Placer, missing: Missing, place: Callable[[Demand, int], bool]
) -> bool:
    """Place replicas of one model, each as the variant that is cheapest by then; return whether any was placed."""
    placed, left = 0, list(ways)
    while placed < count:
        left = [way for way in left if missing.of(way) > 0]
        priced = [((way.shape.gpu_units, price, way.variant), way) for way in left
                  if (price := placer.least_price(way.shape)) is not None]
        if not priced:
            break
        (_, price, _), best = min(priced, key=itemgetter(0))
        while placed < count and place(best, 1):
            placed += 1
            if placer.least_price(best.shape) != price:
                break
        else:
            left.remove(best)
    return placed > 0


def take_again(placed: Sequence[Placed], placer: Placer) -> list[Placed]:
    """Take replicas again where they were placed before an undo; replicas that the ledger now refuses are left out."""
    taken = ((replica.demand, placer.take_at(replica.demand.shape, replica.seats)) for replica in placed)
    return [Placed(demand, assignments) for demand, assignments in taken if assignments is not None]


def top_up(demands: Sequence[Demand], placed: list[Placed], placer: Placer) -> None:
    """Try each model with missing replicas again until nothing more fits; append the new replicas to `placed`.

    Largest first, since small replicas would use up the gaps of large ones. A later placement can make room, by moving
    Ray's next choice to a card with more memory. Without this, the next plan might find more to place.
    """
    missing = Missing(demands, placed=placed)
    progress = True
    while progress:
        progress = False
        for demand in sorted(demands, key=lambda demand: (-demand.priority, -demand.units, *cheapest_first(demand))):
            if missing.of(demand):
                more = list(place_some(demand, missing.of(demand), placer))
                placed += more
                missing.take(demand, len(more))
                progress = progress or bool(more)


def place_some(demand: Demand, count: int, placer: Placer) -> Iterator[Placed]:
    """Place up to `count` replicas of one model, one after another."""
    if demand.shape.size == 1:
        for assignments in placer.place_singles(demand.shape, count):
            yield Placed(demand, assignments)
        return
    for _ in range(count):
        found = placer.place(demand.shape)
        if found is None:
            return
        yield Placed(demand, found)


@dataclass(slots=True)
class MovablePacking:
    """New replicas by identity, in order of creation, and by node."""

    ledger: Ledger
    opening: Sequence[int]
    """The numbers of the nodes' offers before the packing."""
    packing: InitVar[Sequence[Placed]]
    placed: dict[int, Placed] = field(default_factory=dict)
    on_node: dict[int, list[Placed]] = field(default_factory=dict)
    _loosened: set[tuple[int, str]] = field(default_factory=set)
    """(node, model) pairs that lost a replica for good."""

    def __post_init__(self, packing: Sequence[Placed]) -> None:
        for replica in packing:
            self._enter(replica)

    def lift(self, chosen: Iterable[Placed]) -> bool:
        """Take some replicas off the ledger; False if the others would then get other cards."""
        lifted = {id(replica): replica for replica in chosen}
        for node in {node for replica in lifted.values() for node in replica.nodes}:
            if not self._replay(node, [replica for replica in self.on_node[node] if id(replica) not in lifted]):
                return False
        for replica in lifted.values():
            self._lift_slots(replica)
        return True

    def accept(self, lifted: Iterable[Placed], added: Iterable[Placed]) -> None:
        """Replace the `lifted` replicas by `added` ones, which are on the ledger."""
        for replica in lifted:
            del self.placed[id(replica)]
            for node in replica.nodes:
                self._loosened.add((node, replica.demand.shape.key))
                self.on_node[node] = [other for other in self.on_node[node] if other is not replica]
        for replica in added:
            self._enter(replica)

    def closed_up(self) -> list[Placed]:
        """Return the packing, after giving replicas on (node, model) pairs that lost one the lowest slots again."""
        placed = list(self.placed.values())
        gaps = [index for index, replica in enumerate(placed)
                if any((assigned.node, replica.demand.shape.key) in self._loosened for assigned in replica.assignments)]
        for index in gaps:
            self._lift_slots(placed[index])
        for index in gaps:
            demand, assignments = placed[index]
            slots = self.ledger.take_slots(demand.shape.key, (assigned.node for assigned in assignments))
            placed[index] = Placed(demand, tuple(
                assigned._replace(slot=slots[assigned.node]) for assigned in assignments))
        return placed

    def _enter(self, replica: Placed) -> None:
        self.placed[id(replica)] = replica
        for node in replica.nodes:
            self.on_node.setdefault(node, []).append(replica)

    def _lift_slots(self, replica: Placed) -> None:
        slots = {assigned.node: assigned.slot for assigned in replica.assignments}
        self.ledger.lift_slots(replica.demand.shape.key, slots)

    def _replay(self, node: int, staying: Sequence[Placed]) -> bool:
        """Set a node to its opening offer less the replicas that stay; False if they no longer fit."""
        number = self.opening[node]
        for assigned in (assigned for replica in staying for assigned in replica.assignments if assigned.node == node):
            fit = self.ledger.fit(number, assigned.seat.claim)
            if fit is None:
                return False
            number = fit[1]
        self.ledger.shift(node, number)
        return True
