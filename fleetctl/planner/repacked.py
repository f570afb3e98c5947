"""The bound if our own running replicas could be moved: what today's fragmentation costs. Nothing is ever moved.

It is worked out on a copy of the ledger: those replicas are taken off their cards there, and are placed again before
anything new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fleetctl.documents.inventory import card_indices
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.exact.climb import most_replicas
from fleetctl.planner.placement.exact.linear import InfeasibleError
from fleetctl.planner.placement.exact.relaxation import relax
from fleetctl.planner.placement.ledger.cards import Card, Offer
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.occupants import Occupant, Occupants
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.reduce import reduce_problem


class _Grant(NamedTuple):
    """What one member holds on its node, and on which cards."""

    cards: tuple[int, ...]
    gpus: int
    vram: int
    cpus: int
    memory: int


Grants = Mapping[int, Sequence[_Grant]]
"""By place of the node."""


def repacked_bound(
    demands: Sequence[Demand], placed: Sequence[Placed], most: int, occupants: Occupants, before: Ledger
) -> int | None:
    """Bound the new replicas of any plan that keeps all of `placed`, if live ones of the same models could be moved.

    `most` = the bound without moves; `before` = the ledger before anything was placed. None where moving them gains
    nothing, or where it is not known. A live replica is not moved when it is not of its model's present shape, when the
    cards it holds are not known, or when a node of it takes nothing new.
    """
    lifted, ended, grants = Counter[int](), list[tuple[str, Sequence[int]]](), dict[int, list[_Grant]]()
    for demand, one, held in _movable(demands, occupants, before):
        lifted[demand.place] += 1
        ended.append((one.model, one.places))
        for place, grant in held:
            grants.setdefault(place, []).append(grant)
    if not lifted:
        return None
    have = Counter(one.demand.place for one in placed)
    try:
        moved = _most(demands, lifted, have, before.copied(offers=_freed_offers(before, grants), ended=ended))
        if moved <= most:
            return None
        return moved if moved > _most(demands, Counter(), have, before) else None
    except InfeasibleError:  # something runs where its model's file would not let it
        return None


def _most(demands: Sequence[Demand], lifted: Counter[int], have: Counter[int], ledger: Ledger) -> int:
    """Bound the new replicas, with those that were lifted and those a plan has to be placed in any case."""
    asked = [replace(demand, missing=demand.missing + lifted[demand.place], live=1) for demand in demands]
    asked = [demand for demand in asked if demand.missing]
    reduced = reduce_problem(state_problem(asked, ledger), asked)
    relaxation = relax(state_problem(reduced.demands, reduced.ledger))
    for column, one in zip(relaxation.replicas, relaxation.problem.demands, strict=True):
        kept = sum(lifted[demand.place] + have[demand.place] for demand in one.demands)
        relaxation.model.lows[column] = min(kept, relaxation.model.highs[column])
    return most_replicas(relaxation) - lifted.total()


def _movable(
    demands: Sequence[Demand], occupants: Occupants, ledger: Ledger
) -> Iterator[tuple[Demand, Occupant, list[tuple[int, _Grant]]]]:
    """Yield each live replica that could be moved, with the demand of its model and what its members hold by node."""
    demand_of = {demand.shape.key: demand for demand in demands}
    for one in occupants.replicas:
        demand = demand_of.get(one.model) if one.counted and not one.planned else None
        held = None if demand is None else _held(one, demand.shape, occupants, ledger)
        if demand is not None and held is not None:
            yield demand, one, held


def _held(
    one: Occupant, shape: ReplicaShape, occupants: Occupants, ledger: Ledger
) -> list[tuple[int, _Grant]] | None:
    members = [(place, member) for place, there in one.live.items() for member in there]
    if sorted((member.gpus, member.cpus, member.memory) for _, member in members) != sorted(
            (seat.claim.gpus, seat.claim.cpus, seat.claim.memory) for seat in shape.seats):
        return None
    held: list[tuple[int, _Grant]] = []
    for place, member in members:
        cards = tuple(card_indices(member, occupants.nodes[place].gpus)) if member.gpus else ()
        if not ledger.nodes[place].open or len(cards) != -(-member.gpus // SHARE):
            return None
        held.append((place, _Grant(cards, member.gpus, member.vram, member.cpus, member.memory)))
    return held


def _freed_offers(ledger: Ledger, grants: Grants) -> dict[int, Offer]:
    """Return by place what nodes offer without some grants; equal nodes are worked out once."""
    known: dict[tuple[int, int, tuple[_Grant, ...]], Offer] = {}
    offers = {}
    for place, held in grants.items():
        kind = ledger.numbers[place], ledger.nodes[place].policy.reserve_vram, tuple(sorted(held))
        if kind not in known:
            known[kind] = _freed(ledger.offer(place), kind[2], kind[1])
        offers[place] = known[kind]
    return offers


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
    """Return a card without a member; a card without any holder is as good as new."""
    held = min(SHARE, grant.gpus)
    share = min(SHARE, card.free_share + held)
    if card.memory is None or card.free_vram is None:
        return replace(card, free_share=share)
    free = card.free_vram + (grant.vram or held * card.memory // SHARE)
    return replace(card, free_share=share, free_vram=card.memory - reserve if share == SHARE
                   else min(card.memory - reserve, free))
