"""What a node would offer if some of those who stand on it, or would stand on it, were not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.documents.inventory import Amounts, Gpu, Node, ReplicaMember, card_indices
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.ledger.cards import Offer, take
from fleetctl.planner.placement.ledger.ledger import LedgerNode
from fleetctl.planner.placement.ledger.stock import offer_of
from fleetctl.planner.placement.reasons.site import Site

Gone = frozenset[int]
"""Numbers of occupants that are thought away."""


@dataclass
class Vacancies:
    """Answers, and remembers, what nodes would offer without some occupants; `steps` counts the questions."""

    site: Site
    facts: Sequence[LedgerNode]
    steps: int = 0
    _known: dict[tuple[int, Gone], Offer | None] = field(default_factory=dict)
    _here: Mapping[int, tuple[int, ...]] | None = None

    def here(self, place: int) -> tuple[int, ...]:
        """Return the numbers of the occupants of a node: who runs there, then who is planned, as created."""
        if self._here is None:
            here: dict[int, list[int]] = {}
            for number, occupant in enumerate(self.site.occupants):
                for node in (*occupant.live, *occupant.planned):
                    here.setdefault(node, []).append(number)
            self._here = {node: tuple(numbers) for node, numbers in here.items()}
        return self._here.get(place, ())

    def without(self, place: int, gone: Gone) -> Offer | None:
        """Return what a node would offer; None where the planned rest could then not be placed as planned.

        Ray chooses cards by what is free, so without one replica the others of this plan may land on other cards.
        """
        gone = gone.intersection(self.here(place))
        self.steps += 1
        if (place, gone) not in self._known:
            self._known[place, gone] = self._without(place, gone)
        return self._known[place, gone]

    def _without(self, place: int, gone: Gone) -> Offer | None:
        here = [(number, self.site.occupants[number]) for number in self.here(place)]
        leaving = [member for number, one in here if number in gone for member in one.live.get(place, ())]
        staying = [member for number, one in here if number not in gone for member in one.live.get(place, ())]
        offer: Offer | None = offer_of(vacated(self.site.nodes[place], leaving), staying, self.facts[place].policy)
        for number, one in here:
            for stand in one.planned.get(place, ()) if number not in gone else ():
                taken = None if offer is None else take(offer, stand.seat.claim)
                offer = None if taken is None else taken.left
        return offer


def vacated(node: Node, leaving: Iterable[ReplicaMember]) -> Node:
    """Return a node as it would be read once some members have left, with the memory they claimed given back.

    What a member is granted on cards that nobody can name stays granted: it is not known where it would be free.
    """
    members = list(leaving)
    cards = {card.index: card for card in node.gpus}
    for member in members:
        for index in card_indices(member, node.gpus):
            cards[index] = _without_member(cards[index], member)
    used = node.resources.used
    if used is not None:
        used = Amounts(
            gpu=max(0.0, round(used.gpu * SHARE - sum(member.gpus for member in members)) / SHARE),
            cpu=max(0.0, round(used.cpu * SHARE - sum(member.cpus for member in members)) / SHARE),
            memory=max(0, used.memory - sum(member.memory for member in members)),
        )
    resources = node.resources.model_copy(update={"used": used})
    return node.model_copy(update={"gpus": list(cards.values()), "resources": resources})


def _without_member(card: Gpu, member: ReplicaMember) -> Gpu:
    share = min(SHARE, member.gpus)
    memory = member.vram or share * (card.memory_total or 0) // SHARE
    left = None if card.share is None else max(0, round(card.share * SHARE) - share) / SHARE
    measured = None if card.memory_used is None else max(0, card.memory_used - memory)
    return card.model_copy(update={"share": left, "memory_used": measured})
