"""What holds what on which node: every live replica, of this fleet or not, and every replica that a plan would create.

Remedies, the gain from moving replicas, the loss of a node and the placement map all use this view. A ledger knows what
is free; what would be free without some replica is computed from the inventory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from fleetctl.documents.inventory import Amounts, Gpu, Node, Replica, ReplicaMember, card_indices
from fleetctl.documents.quantity import SHARE, grouped
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.ledger.cards import Offer, take
from fleetctl.planner.placement.ledger.ledger import LedgerNode
from fleetctl.planner.placement.ledger.node_offer import offer_of

NOTHING: Mapping[int, tuple[Any, ...]] = {}


class Planned(NamedTuple):
    """A member that does not run yet: its claim, the GPU share it takes on its node, and its cards if known."""

    claim: Claim
    gpus: int
    cards: tuple[int, ...] = ()


class Occupant(NamedTuple):
    """One replica: `live` members (it runs) or `planned` members, by place of the node in the ledger."""

    model: str
    replica_id: int | None
    foreign_id: str | None = None
    fleet: str | None = None
    priority: int | None = None
    """The priority of its model; None if that is not in the fleet file."""
    ours: bool = True
    """It belongs to this fleet, even if the file no longer has the model."""
    counted: bool = True
    """It counts toward the target of a model in the file."""
    wanted: bool = True
    """False = of this fleet, but beyond what its model wants or not in the file."""
    warm: bool = False
    """It holds only memory and serves nothing."""
    variant: str = ""
    """The name of its variant; without a file, or for a model that is not in it, as in its mark."""
    live: Mapping[int, tuple[ReplicaMember, ...]] = NOTHING
    planned: Mapping[int, tuple[Planned, ...]] = NOTHING

    @property
    def name(self) -> str:
        """Its name in a plan, or the actor's own name in a foreign scheme."""
        return self.foreign_id or self.model if self.replica_id is None else f"{self.model}/{self.replica_id}"

    @property
    def places(self) -> Sequence[int]:
        """The nodes it touches, in the order of its members."""
        return tuple(self.live or self.planned)

    def holds(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield for each member its node, GPU share, CPUs and memory."""
        for place, members in self.live.items():
            for member in members:
                yield place, member.gpus, member.cpus, member.memory
        for place, new in self.planned.items():
            for one in new:
                yield place, one.gpus, one.claim.cpus, one.claim.memory

    @property
    def gpus(self) -> int:
        """The GPU share of all its members, in 1/10000."""
        return sum(gpus for _, gpus, _, _ in self.holds())

    def units(self, place: int) -> int:
        """Return the GPU share it holds on one node, in 1/10000."""
        return sum(member.gpus for member in self.live.get(place, ())) + sum(
            new.gpus for new in self.planned.get(place, ()))


@dataclass
class Occupants:
    """All replicas by number: running ones in a fixed order, then planned ones as created. `nodes` in ledger order."""

    nodes: Sequence[Node]
    facts: Sequence[LedgerNode]
    replicas: list[Occupant] = field(default_factory=list)

    @cached_property
    def by_place(self) -> Mapping[int, Sequence[int]]:
        """The numbers of the replicas on each node, in order."""
        found: dict[int, list[int]] = {}
        for number, one in enumerate(self.replicas):
            for place in one.live or one.planned:
                found.setdefault(place, []).append(number)
        return found

    def here(self, place: int) -> Sequence[int]:
        """Return the numbers of the replicas on a node."""
        return self.by_place.get(place, ())

    def on(self, place: int) -> list[Occupant]:
        """Return the replicas on a node."""
        return [self.replicas[number] for number in self.here(place)]

    def offer_without(self, place: int, gone: Collection[int], *, sure: bool) -> tuple[Offer, bool]:
        """Return the offer of a node without some of its replicas, and whether all planned members still fit.

        Ray chooses cards by what is free, so without one replica, other planned replicas may get other cards.
        `sure` as for `without_members`.
        """
        leaving, staying, fits = list[ReplicaMember](), list[ReplicaMember](), True
        for number in self.here(place):
            (leaving if number in gone else staying).extend(self.replicas[number].live.get(place, ()))
        node = without_members(self.nodes[place], leaving, sure=sure)
        offer = offer_of(node, staying, self.facts[place].policy)
        for number in self.here(place):
            for new in self.replicas[number].planned.get(place, ()) if number not in gone else ():
                taken = take(offer, new.claim)
                offer, fits = (offer, False) if taken is None else (taken.left, fits)
        return offer, fits


def look_around(
    nodes: Iterable[Node], facts: Sequence[LedgerNode], running: Sequence[tuple[Replica, bool]],
    models: Mapping[str, ResolvedModel],
) -> Occupants:
    """Return all replicas that run; `running` = live replicas in a fixed order, and whether each is of this fleet."""
    documents = {node.id: node for node in nodes}
    places = {node.id: place for place, node in enumerate(facts)}
    surplus = _surplus(running, models)
    found = []
    for replica, ours in running:
        model = models.get(replica.model) if ours else None
        counted = model is not None and replica.level == "HOT"
        variant = model.variant_name(replica.spec_hash, replica.variant) if model else replica.variant or ""
        wanted = not ours or (counted and (replica.model, replica.replica_id) not in surplus)
        found.append(Occupant(replica.model, replica.replica_id, replica.foreign_id, replica.fleet,
                              model.priority if model else None, ours, counted, wanted, replica.level == "WARM",
                              variant,
                              _by_place((places.get(member.node_id or ""), member) for member in replica.members)))
    return Occupants([documents[node.id] for node in facts], facts, found)


def _surplus(
    running: Iterable[tuple[Replica, bool]], models: Mapping[str, ResolvedModel]
) -> set[tuple[str, int | None]]:
    """Return the replicas beyond the target of their model, by model and id; each is the newest that no minimum needs.
    """
    found = set[tuple[str, int | None]]()
    live = grouped((replica.model, replica) for replica, ours in running
                   if ours and replica.level == "HOT" and replica.model in models)
    for key, replicas in live.items():
        model, of_each = models[key], Counter[int | None]()
        if len(replicas) <= model.replicas:
            continue
        spare = list[int | None]()
        for replica in sorted(replicas, key=lambda one: one.replica_id or 0):
            number = model.variant_of(replica.spec_hash, replica.variant) if model.variants else None
            of_each[number] += 1
            if number is None or of_each[number] > model.variants[number].least:
                spare.append(replica.replica_id)
        kept = len(replicas) - len(spare)
        found |= {(key, number) for number in spare[max(0, model.replicas - kept):]}
    return found


def new_occupants(placed: Iterable[tuple[Placed, int]], models: Sequence[ResolvedModel]) -> Iterator[Occupant]:
    """Yield the replicas that a plan would create, in order of creation; `placed` = with the id of each."""
    for one, replica_id in placed:
        model = models[one.demand.place]
        members = _by_place((new.node, Planned(new.seat.claim, new.gpus)) for new in one.assignments)
        yield Occupant(model.key, replica_id, priority=model.priority, planned=members,
                       variant=model.variants[one.demand.variant].variant if model.variants else "")


def _by_place(members: Iterable[tuple[int | None, Any]]) -> dict[int, tuple[Any, ...]]:
    found: dict[int, tuple[Any, ...]] = {}
    for place, member in members:
        if place is not None:
            found[place] = (*found.get(place, ()), member)
    return found


def without_members(node: Node, members: Iterable[ReplicaMember], *, sure: bool) -> Node:
    """Return `node` without `members`.

    `sure` = free only what they claimed, on cards known to be theirs. Otherwise a whole card is freed with all of its
    memory, and a member without known cards is assumed on the cards with most memory in use.
    """
    ended = list(members)
    cards = {card.index: card for card in node.gpus}
    for member in ended:
        known = card_indices(member, node.gpus)
        for index in known or ([] if sure else _likely(list(cards.values()), member)):
            cards[index] = _without_member(cards[index], member, sure=sure)
    used = node.resources.used
    if used is not None:
        used = Amounts(
            gpu=max(0, round(used.gpu * SHARE) - sum(member.gpus for member in ended)) / SHARE,
            cpu=max(0, round(used.cpu * SHARE) - sum(member.cpus for member in ended)) / SHARE,
            memory=max(0, used.memory - sum(member.memory for member in ended)),
        )
    resources = node.resources.model_copy(update={"used": used})
    return node.model_copy(update={"gpus": list(cards.values()), "resources": resources})


def _likely(cards: Sequence[Gpu], member: ReplicaMember) -> list[int]:
    by_use = sorted(cards, key=lambda card: (-(card.memory_used or 0), card.index))
    return [card.index for card in by_use[:-(-member.gpus // SHARE)]]


def _without_member(card: Gpu, member: ReplicaMember, *, sure: bool) -> Gpu:
    share, size = min(SHARE, member.gpus), card.memory_total or 0
    granted = share * size // SHARE
    memory = member.vram or granted if sure else max(member.vram, granted) if share < SHARE else size
    left = None if card.share is None else max(0, round(card.share * SHARE) - share) / SHARE
    measured = None if card.memory_used is None else max(0, card.memory_used - memory)
    return card.model_copy(update={"share": left, "memory_used": measured})
