"""The certificate: how many new replicas could be placed at most, by counting slots.

Each model alone on the ledger can have at most so many (members of one kind per node, gangs on distinct nodes, slots);
all together cannot use more GPU, CPU or memory than there is, nor more groups of s whole cards than the nodes hold.
Counting ignores what is hard about packing, so the truth is never above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.cards import Offer, share_of
from fleetctl.planner.placement.claims import Claim, GroupShape, ReplicaShape
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.ledger import Ledger
from fleetctl.planner.placement.replica import Placer


@dataclass(frozen=True, slots=True)
class Bound:
    """No plan places more than `replicas` new ones; `method` says which count was the tightest."""

    replicas: int
    method: str


def upper_bound(demands: Sequence[Demand], ledger: Ledger) -> Bound:
    """Bound the new replicas all `demands` together can get on the ledger as it stands now (before packing)."""
    placer = Placer(ledger)
    alone = {demand.place: replicas_alone(demand.shape, demand.missing, placer) for demand in demands}
    bounds = [Bound(sum(alone.values()), "slots per model")]
    for name, room, cost in _pools(demands, ledger):
        asked = [(cost(demand.shape), alone[demand.place]) for demand in demands]
        bounds.append(Bound(_most_cheap(asked, room), name))
    return min(bounds, key=lambda bound: bound.replicas)


def replicas_alone(shape: ReplicaShape, wanted: int, placer: Placer) -> int:
    """Bound the new replicas of one model if it had all that is free to itself."""
    most = wanted
    for group in shape.groups:
        if most:
            most = min(most, _gangs_alone(shape, group, most * group.copies, placer) // group.copies)
    return most


def _gangs_alone(shape: ReplicaShape, group: GroupShape, wanted: int, placer: Placer) -> int:
    ledger, cards = placer.ledger, shape.wants_cards
    per_node = shape.ranks_per_node if group.size > 1 else 1
    domains: list[frozenset[int] | None] = [None]
    if shape.same_label is not None and group.size > 1:
        domains = [domain.nodes for domain in placer.domains(shape.same_label).by_value.values()]
    most = wanted
    for (claim, selector), count in group.classes().items():
        per_replica = count * group.copies
        room = {node: min(ledger.most(node, claim), ledger.free_slots(node, shape.key, wants_cards=cards) * per_replica)
                for node in ledger.selected(selector)}
        total = sum(
            _most_gangs([room[n] for n in room if domain is None or n in domain], count, per_node, wanted)
            for domain in domains
        )
        most = min(most, total)
    return most


def _most_gangs(room: list[int], count: int, per_node: int, wanted: int) -> int:
    """Return the most gangs g <= wanted with sum(min(room, per_node * g)) >= count * g; that range has no gaps."""
    low, high = 0, wanted
    while low < high:
        gangs = (low + high + 1) // 2
        if sum(min(free, per_node * gangs) for free in room) >= count * gangs:
            low = gangs
        else:
            high = gangs - 1
    return low


Pool = tuple[str, int, Callable[[ReplicaShape], int]]


def _pools(demands: Sequence[Demand], ledger: Ledger) -> list[Pool]:
    offers = [ledger.offer(place) for place, node in enumerate(ledger.nodes) if node.open]
    memories = [card.memory for offer in offers for card in offer.cards if card.memory]
    largest = max(memories, default=0)
    pools: list[Pool] = [
        ("free GPU share", sum(_free_share(offer) for offer in offers), lambda shape: _gpu_cost(shape, largest)),
        ("free CPUs", sum(offer.free_cpus for offer in offers), lambda shape: _total(shape, lambda c: c.cpus)),
        ("free memory", sum(offer.free_memory for offer in offers), lambda shape: _total(shape, lambda c: c.memory)),
    ]
    sizes = {m.claim.whole_cards for demand in demands for g in demand.shape.groups for m in g.members} - {0}
    for size in sorted(sizes):
        room = sum(_free_cards(offer) // size for offer in offers)
        pools.append((f"free groups of {size} whole cards on one node", room, _groups_of(size)))
    return pools


def _groups_of(size: int) -> Callable[[ReplicaShape], int]:
    return lambda shape: _total(shape, lambda claim: claim.whole_cards // size)


def _total(shape: ReplicaShape, amount: Callable[[Claim], int]) -> int:
    return sum(group.copies * m.count * amount(m.claim) for group in shape.groups for m in group.members)


def _gpu_cost(shape: ReplicaShape, largest_card: int) -> int:
    def least_share(claim: Claim) -> int:
        return claim.gpus or (share_of(claim.vram, largest_card) if claim.vram and largest_card else 0)

    return _total(shape, least_share)


def _free_share(offer: Offer) -> int:
    return min(offer.free_gpus, sum(card.free_share for card in offer.cards if not card.dirty))


def _free_cards(offer: Offer) -> int:
    return min(sum(card.fully_free and not card.dirty for card in offer.cards), max(0, offer.free_gpus) // SHARE)


def _most_cheap(asked: list[tuple[int, int]], room: int) -> int:
    """Return how many replicas fit into `room` when the cheapest go first: (cost of one, how many) pairs."""
    count = 0
    for cost, wanted in sorted(asked):
        fitting = wanted if cost == 0 else min(wanted, room // cost)
        count += fitting
        room -= fitting * cost
    return count
