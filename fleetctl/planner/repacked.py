"""What could be placed if our own replicas that run could be moved: the price of how they happen to lie today.

Nothing is ever moved. The bound is worked out on a second ledger, on which those replicas were taken off their cards
and stand in the demand instead, to be placed before anything new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fleetctl.documents.inventory import Inventory, Node, Replica, ReplicaMember, card_indices
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.cards import Card, Offer
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.climb import most_replicas
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.ledger import Ledger, Slots
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.relaxation import relax

Lifted = tuple[ReplicaMember, tuple[int, ...]]
"""A member taken off its node, and the cards it held there."""


def repacked_bound(
    demands: Sequence[Demand], state: LiveState, inventory: Inventory, ledger: Ledger, opening: Sequence[int]
) -> int | None:
    """Bound the new replicas any plan could place if live ones of the same models could be moved.

    `opening` = the number of each node's offer before anything was placed. None where moving them would gain nothing,
    or where it cannot be said. A live replica stays where it lies when it is not of its model's present shape, when the
    cards it holds are not known, or when a node of it takes nothing new.
    """
    lifting = _Lifting(state, inventory, ledger, opening)
    more = Counter({demand.place: lifting.lift(demand.shape) for demand in demands})
    if not more.total():
        return None
    now = [demand for demand in demands if demand.missing]
    as_it_lies = relax(state_problem(now, Ledger.opened(ledger.nodes, lifting.before, lifting.all_slots(demands))))
    asked = [replace(demand, missing=demand.missing + more[demand.place], live=1) for demand in demands]
    problem = state_problem([demand for demand in asked if demand.missing],
                            Ledger.opened(ledger.nodes, lifting.offers, lifting.slots(demands)))
    moved = relax(problem)
    for column, one in zip(moved.replicas, problem.demands, strict=True):
        moved.model.lows[column] = min(sum(more[demand.place] for demand in one.demands), moved.model.highs[column])
    most = most_replicas(moved) - more.total()
    return most if most > most_replicas(as_it_lies) else None


class _Lifting:
    """The offers of all nodes while replicas are taken off them."""

    def __init__(self, state: LiveState, inventory: Inventory, ledger: Ledger, opening: Sequence[int]) -> None:
        self.before = [ledger.numbered(number) for number in opening]
        self.offers = list(self.before)
        self._state, self._ledger = state, ledger
        self._nodes: Mapping[str, Node] = {node.id: node for node in inventory.nodes}
        self._places = {node.id: place for place, node in enumerate(ledger.nodes)}
        self._gone: Counter[tuple[int, str]] = Counter()

    def lift(self, shape: ReplicaShape) -> int:
        """Take the live replicas of a model off their nodes; returns how many could be."""
        count = 0
        for live in self._state.models[shape.key].live:
            lifted = self._liftable(live, shape)
            if lifted is not None:
                count += 1
                self._take_off(lifted, shape.key)
        return count

    def slots(self, demands: Sequence[Demand]) -> dict[tuple[int, str], Slots]:
        """Return the slots still held, by (node, model)."""
        return {(place, key): frozenset(sorted(slots)[self._gone[place, key]:])
                for (place, key), slots in self.all_slots(demands).items()}

    def all_slots(self, demands: Sequence[Demand]) -> dict[tuple[int, str], Slots]:
        """Return the slots held by what runs, by (node, model)."""
        return dict(self._held(demands))

    def _held(self, demands: Sequence[Demand]) -> Iterator[tuple[tuple[int, str], Slots]]:
        for demand in demands:
            key, held = demand.shape.key, Counter[int]()
            for live in self._state.models[key].live:
                held.update({self._places[node] for member in live.members
                             if (node := member.node_id) is not None and node in self._places})
            for place, count in held.items():
                yield (place, key), frozenset(range(count))

    def _liftable(self, live: Replica, shape: ReplicaShape) -> list[Lifted] | None:
        wanted = Counter((seat.claim.gpus, seat.claim.cpus, seat.claim.memory) for seat in shape.seats)
        if Counter((member.gpus, member.cpus, member.memory) for member in live.members) != wanted:
            return None
        lifted: list[Lifted] = []
        for member in live.members:
            place = self._places.get(member.node_id or "")
            if place is None or not self._ledger.nodes[place].open:
                return None
            cards = tuple(card_indices(member, self._nodes[self._ledger.nodes[place].id].gpus))
            if len(cards) * SHARE < member.gpus or (member.gpus >= SHARE and len(cards) * SHARE != member.gpus):
                return None
            lifted.append((member, cards))
        return lifted

    def _take_off(self, lifted: Sequence[Lifted], key: str) -> None:
        for member, indices in lifted:
            place = self._places[member.node_id or ""]
            reserve = self._ledger.nodes[place].policy.reserve_vram
            offer = self.offers[place]
            cards = tuple(_freed(card, member, reserve) if card.index in indices else card for card in offer.cards)
            self.offers[place] = Offer(cards, offer.free_gpus + member.gpus, offer.free_cpus + member.cpus,
                                       offer.free_memory + member.memory, offer.empty)
        for place in {self._places[member.node_id or ""] for member, _ in lifted}:
            self._gone[place, key] += 1


def _freed(card: Card, member: ReplicaMember, reserve: int) -> Card:
    """Return a card without a member; one that nobody holds any more is as good as new."""
    share = min(SHARE, card.free_share + min(SHARE, member.gpus))
    if card.memory is None or card.free_vram is None:
        return replace(card, free_share=share)
    held = member.vram or member.gpus * card.memory // SHARE
    free = card.memory - reserve if share == SHARE else min(card.memory - reserve, card.free_vram + held)
    return replace(card, free_share=share, free_vram=free)
