"""Who stands where once a plan has been applied: live replicas and new ones alike, each with its members' nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.documents.inventory import Node, ReplicaMember
from fleetctl.documents.plan import ActionMember, Plan
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, take
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.stock import offer_of
from fleetctl.planner.questions.loss import given_back
from fleetctl.planner.questions.world import World, take_planned


@dataclass(frozen=True, eq=False, slots=True)
class Stay:
    """One replica of this fleet, live or planned; `places` are the nodes of its members, in their order."""

    model: str
    places: tuple[int, ...]
    live: tuple[ReplicaMember, ...] = ()
    planned: tuple[ActionMember, ...] = ()

    @property
    def spans(self) -> bool:
        """Tell whether it stands on several nodes."""
        return len(set(self.places)) > 1


@dataclass(slots=True)
class Standing:
    """The fleet as planned: the ledger after the plan, and the replicas on every node (by number in the ledger)."""

    nodes: Mapping[str, Node]
    """By id."""
    state: LiveState
    ledger: Ledger
    on: dict[int, list[Stay]] = field(default_factory=dict)
    have: Counter[str] = field(default_factory=Counter)
    """Replicas by model."""

    def content(self, place: int) -> Counter[str]:
        """Return how many replicas of each model a node has."""
        return Counter(stay.model for stay in self.on.get(place, ()))

    def offer_without(self, place: int, gone: Iterable[Stay]) -> Offer:
        """Return what a node would offer had the replicas in `gone` ended there."""
        ended = {id(stay) for stay in gone}
        node_id = self.ledger.nodes[place].id
        freed = [m for stay in self.on[place] if id(stay) in ended for m in stay.live if m.node_id == node_id]
        left_ids = {id(member) for member in freed}
        kept = [member for member in self.state.holding.get(node_id, ()) if id(member) not in left_ids]
        offer = offer_of(given_back(self.nodes[node_id], freed), kept, self.ledger.nodes[place].policy)
        for stay in self.on[place]:
            if id(stay) not in ended:
                offer = _less(offer, [member for member in stay.planned if member.node_id == node_id])
        return offer


def standing(world: World, plan: Plan) -> Standing:
    """Return the world as it stands once `plan`, which was made for it, has been applied."""
    state, ledger = world.sorted_out(), world.ledger()
    take_planned(plan, ledger)
    found = Standing({node.id: node for node in world.inventory.nodes}, state, ledger)
    places = {node.id: place for place, node in enumerate(ledger.nodes)}
    for key, model in state.models.items():
        for replica in model.live:
            known = tuple(places[m.node_id] for m in replica.members if m.node_id in places)
            _enter(found, Stay(key, known, live=tuple(replica.members)))
    for action in plan.actions:
        members = tuple(action.members)
        _enter(found, Stay(action.model, tuple(places[member.node_id] for member in members), planned=members))
    return found


def _enter(found: Standing, stay: Stay) -> None:
    found.have[stay.model] += 1
    for place in dict.fromkeys(stay.places):
        found.on.setdefault(place, []).append(stay)


def _less(offer: Offer, members: Sequence[ActionMember]) -> Offer:
    for member in members:
        taken = take(offer, Claim(member.gpus, member.vram, member.cpus, member.memory))
        offer = offer if taken is None else taken.left  # on other cards than before, the last one may not fit again
    return offer
