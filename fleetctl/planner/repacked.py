"""What could be placed if our own replicas that run could be moved: the price of how they happen to lie today.

Nothing is ever moved. The bound is worked out on a second ledger, on which those replicas were taken off their cards
and stand in the demand instead, to be placed before anything new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fleetctl.documents.inventory import indices_among
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.exact.climb import most_replicas
from fleetctl.planner.placement.exact.linear import InfeasibleError
from fleetctl.planner.placement.exact.relaxation import relax
from fleetctl.planner.placement.ledger.cards import Card, Offer
from fleetctl.planner.placement.ledger.crowds import Crowds
from fleetctl.planner.placement.ledger.ledger import Ledger, Slots
from fleetctl.planner.placement.occupants import Occupant, Occupants
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.slim import slim_down


def repacked_bound(
    demands: Sequence[Demand], placed: Sequence[Placed], most: int, running: Running
) -> int | None:
    """Bound the new replicas of any plan that keeps all of `placed`, if live ones of the same models could be moved.

    `most` = the bound as things lie. None where moving them would gain nothing, or where it cannot be said. A live
    replica stays where it lies when it is not of its model's present shape, when the cards it holds are not known, or
    when a node of it takes nothing new.
    """
    lifting = _Lifting(running)
    lifted = Counter({demand.place: lifting.lift(demand.shape) for demand in demands})
    if not lifted.total():
        return None
    have = Counter(one.demand.place for one in placed)
    try:
        moved = _most(demands, lifted, have, Ledger.opened(
            running.ledger.nodes, lifting.offers, lifting.slots, crowds=lifting.crowds(lifting.staying)))
        if moved <= most:
            return None
        unmoved = Ledger.opened(running.ledger.nodes, lifting.before, lifting.all_slots,
                                crowds=lifting.crowds(lifting.standing))
        return moved if moved > _most(demands, Counter(), have, unmoved) else None
    except InfeasibleError:  # something runs where its model's file would not let it
        return None


def _most(demands: Sequence[Demand], lifted: Counter[int], have: Counter[int], ledger: Ledger) -> int:
    """Bound the new replicas, with those that were lifted and those a plan has to be placed in any case."""
    asked = [replace(demand, missing=demand.missing + lifted[demand.place], live=1) for demand in demands]
    asked = [demand for demand in asked if demand.missing]
    slim = slim_down(state_problem(asked, ledger), asked)
    relaxation = relax(state_problem(slim.demands, slim.ledger))
    for column, one in zip(relaxation.replicas, relaxation.problem.demands, strict=True):
        kept = sum(lifted[demand.place] + have[demand.place] for demand in one.demands)
        relaxation.model.lows[column] = min(kept, relaxation.model.highs[column])
    return most_replicas(relaxation) - lifted.total()


@dataclass(frozen=True, slots=True)
class Running:
    """Who runs where; `opening` = the number of each node's offer before anything was placed."""

    occupants: Occupants
    ledger: Ledger
    opening: Sequence[int]


class _Lifting:
    """Which live replicas can be taken off their nodes, and what the nodes offer without them."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._live: dict[str, list[Occupant]] = {}
        for one in running.occupants.everybody:
            if one.counted and not one.planned:
                self._live.setdefault(one.model, []).append(one)
        self._cards: dict[int, tuple[dict[str, int], frozenset[int]]] = {}
        self._lifted: dict[int, list[_Grant]] = {}
        self._held: dict[tuple[int, str], int] = {}
        self._gone: Counter[tuple[int, str]] = Counter()
        self._labels: dict[str, str] = {}
        self.standing: dict[str, list[set[int]]] = {}
        """By model: the nodes each live replica touches."""
        self.staying: dict[str, list[set[int]]] = {}
        """The same of those that stay where they lie."""

    def lift(self, shape: ReplicaShape) -> int:
        """Take the live replicas of a model off their nodes; returns how many could be."""
        wanted = sorted((seat.claim.gpus, seat.claim.cpus, seat.claim.memory) for seat in shape.seats)
        count = 0
        if shape.spread is not None:
            self._labels[shape.key] = shape.spread.label
        for live in self._live.get(shape.key, ()):
            touched = set(live.places)
            for place in touched:
                self._held[place, shape.key] = self._held.get((place, shape.key), 0) + 1
            self.standing.setdefault(shape.key, []).append(touched)
            grants = self._grants(live, wanted)
            if grants is None:
                self.staying.setdefault(shape.key, []).append(touched)
            else:
                count += 1
                for place, grant in grants:
                    self._lifted.setdefault(place, []).append(grant)
                self._gone.update((place, shape.key) for place in touched)
        return count

    def crowds(self, standing: Mapping[str, Sequence[set[int]]]) -> Crowds:
        """Return the crowds of the models that were looked at, where these replicas stand."""
        return Crowds(self._running.ledger.nodes, self._labels, lambda key: standing.get(key, ()))

    @property
    def before(self) -> list[Offer]:
        """The offers as things lie."""
        return [self._running.ledger.numbered(number) for number in self._running.opening]

    @property
    def offers(self) -> list[Offer]:
        """The offers without what was lifted; equal nodes are worked out once."""
        known: dict[tuple[int, int, tuple[_Grant, ...]], Offer] = {}
        result = self.before
        for place, grants in self._lifted.items():
            reserve = self._running.ledger.nodes[place].policy.reserve_vram
            kind = self._running.opening[place], reserve, tuple(sorted(grants))
            if kind not in known:
                known[kind] = _freed(result[place], kind[2], reserve)
            result[place] = known[kind]
        return result

    @property
    def all_slots(self) -> dict[tuple[int, str], Slots]:
        """The slots held by what runs, by (node, model)."""
        return {where: frozenset(range(count)) for where, count in self._held.items()}

    @property
    def slots(self) -> dict[tuple[int, str], Slots]:
        """The slots held by what stays where it lies."""
        return {where: frozenset(range(count - self._gone[where])) for where, count in self._held.items()}

    def _grants(self, live: Occupant, wanted: Sequence[tuple[int, int, int]]) -> list[tuple[int, _Grant]] | None:
        members = [(place, member) for place, there in live.live.items() for member in there]
        if sorted((member.gpus, member.cpus, member.memory) for _, member in members) != wanted:
            return None
        grants: list[tuple[int, _Grant]] = []
        for place, member in members:
            if not self._running.ledger.nodes[place].open:
                return None
            cards = tuple(indices_among(member, *self._cards_of(place))) if member.gpus else ()
            if len(cards) != -(-member.gpus // SHARE):
                return None
            grants.append((place, _Grant(cards, member.gpus, member.vram, member.cpus, member.memory)))
        return grants

    def _cards_of(self, place: int) -> tuple[dict[str, int], frozenset[int]]:
        if place not in self._cards:
            cards = self._running.occupants.nodes[place].gpus
            self._cards[place] = ({card.uuid: card.index for card in cards if card.uuid},
                                  frozenset(card.index for card in cards))
        return self._cards[place]


class _Grant(NamedTuple):
    """What one member holds on its node, and on which cards."""

    cards: tuple[int, ...]
    gpus: int
    vram: int
    cpus: int
    memory: int


def _freed(offer: Offer, grants: Sequence[_Grant], reserve: int) -> Offer:
    cards = {card.index: card for card in offer.cards}
    for grant in grants:
        for index in grant.cards:
            if index in cards:
                cards[index] = _freed_card(cards[index], grant, reserve)
    return Offer(
        tuple(cards.values()), offer.free_gpus + sum(grant.gpus for grant in grants),
        offer.free_cpus + sum(grant.cpus for grant in grants),
        offer.free_memory + sum(grant.memory for grant in grants), offer.empty,
    )


def _freed_card(card: Card, grant: _Grant, reserve: int) -> Card:
    """Return a card without a member; one that nobody holds any more is as good as new."""
    held = min(SHARE, grant.gpus)
    share = min(SHARE, card.free_share + held)
    if card.memory is None or card.free_vram is None:
        return replace(card, free_share=share)
    free = card.free_vram + (grant.vram or held * card.memory // SHARE)
    return replace(card, free_share=share, free_vram=card.memory - reserve if share == SHARE
                   else min(card.memory - reserve, free))
