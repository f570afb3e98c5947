"""Occupancy: who holds which share of every card, and with a plan also who would. What the placement map is made of.

What is free is read off the ledger, so the map and a plan never disagree. The replicas say
who has the rest; the cards of one that names none are inferred by Ray's rule, and what no replica claims is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetctl.documents.inventory import Node, card_indices
from fleetctl.documents.placement_map import Beside, Holder, LegendEntry, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.ledger.cards import Card
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.node_offer import offer_of
from fleetctl.planner.placement.occupants import Occupant, Occupants
from fleetctl.planner.questions.grown import take_waiting, with_new_nodes
from fleetctl.planner.questions.hardware import hardware
from fleetctl.planner.questions.scenario import Scenario


def placement_map(scenario: Scenario, plan: Plan | None = None) -> PlacementMap:
    """Return who holds what; with a fleet, its plan's new replicas are drawn in. `plan` = where it is made already.

    Raises InventoryError for an incomplete inventory where there is a plan to make, and ValueError when `plan` does
    not fit on this scenario.
    """
    plan = scenario.plan() if plan is None and scenario.named else plan
    there = {node.id for node in scenario.inventory.nodes}
    if plan and plan.growth:
        scenario = with_new_nodes(scenario, {row.name: row.nodes for row in plan.growth})
    ledger, state = scenario.opened(), scenario.sorted_out()
    nodes = {node.id: node for node in scenario.inventory.nodes}
    cards = [_cards_now(nodes[fact.id], place, ledger, state) for place, fact in enumerate(ledger.nodes)]
    found = scenario.occupants(ledger, plan)
    if plan and plan.growth:
        found.replicas += take_waiting(scenario, plan, ledger)
    drawn = []
    for place, offered in enumerate(cards):
        here = list(_members(scenario, found, place))
        beside = [one for one in here if not one.gpus]
        node = _node(found.nodes[place], ledger.nodes[place].policy.cordoned_by, offered, _laid(offered, here), beside)
        drawn.append(node if node.id in there else node.model_copy(update={"new": True}))
    return PlacementMap(fleet=scenario.named, inventory=scenario.about(), nodes=drawn,
                        legend=_legend(scenario, found, drawn))


def of_models(drawn: PlacementMap, keys: Collection[str]) -> PlacementMap:
    """Return the map with the nodes alone that have, or would have, replicas of these models."""
    models = {node.id: {*(piece.model for card in node.cards for piece in card.pieces),
                        *(one.model for one in node.beside)} for node in drawn.nodes}
    nodes = [node for node in drawn.nodes if not models[node.id].isdisjoint(keys)]
    here = {key for node in nodes for key in models[node.id]}
    return drawn.model_copy(update={"nodes": nodes, "legend": [one for one in drawn.legend if one.model in here]})


def _cards_now(node: Node, place: int, ledger: Ledger, state: LiveState) -> tuple[Card, ...]:
    """Return the cards of a node as they are, also where it offers nothing new because it is draining or dead."""
    if node.state == "ALIVE":
        return ledger.offer(place).cards
    return offer_of(node, state.holding.get(node.id, ()), ledger.nodes[place].policy).cards


class _Member(NamedTuple):
    """One member on a node: whose it is, the GPU share it takes, and on which cards; empty = not known."""

    holder: Holder
    model: str
    replica: str
    gpus: int
    cards: tuple[int, ...]
    warm: int | None = None

    def shares(self) -> list[int]:
        """Return what it takes card by card: whole cards, then the share below one."""
        whole, part = divmod(self.gpus, SHARE)
        return [SHARE] * whole + ([part] if part else [])


def _members(scenario: Scenario, found: Occupants, place: int) -> Iterator[_Member]:
    """Yield the members on a node: those there now, then the planned ones."""
    for one in found.on(place):
        for member in one.live.get(place, ()):
            known = card_indices(member, found.nodes[place].gpus)
            cards = tuple(known) if len(known) * SHARE >= member.gpus else ()
            yield _Member(_holder(scenario, one), one.model, one.name, member.gpus, cards,
                          member.memory if one.warm else None)
        for new in one.planned.get(place, ()):
            yield _Member("new", one.model, one.name, new.gpus, new.cards)


def _holder(scenario: Scenario, one: Occupant) -> Holder:
    """Return whose a replica is; without a fleet whatever carries any fleet's mark is live, and the rest foreign."""
    if one.planned:
        return "new"
    ours = {scenario.named or one.fleet, scenario.adopt_from}
    return "live" if one.fleet is not None and one.fleet in ours else "foreign"


@dataclass(slots=True)
class _Sheet:
    """One card while pieces are put on it: `granted` = what is in use now and not yet assigned; `free` = the rest."""

    granted: int
    free: int
    pieces: list[Piece] = field(default_factory=list)

    def lay(self, member: _Member, share: int, *, certain: bool) -> None:
        """Put a piece on what is granted, or for a new replica on what is free; never more than there is."""
        room = self.free if member.holder == "new" else self.granted
        share = min(share, room)
        if not share:
            return
        if member.holder == "new":
            self.free -= share
        else:
            self.granted -= share
        self.pieces.append(Piece(holder=member.holder, share=share, model=member.model, replica=member.replica,
                                 certain=certain))


def _laid(cards: Sequence[Card], here: Sequence[_Member]) -> dict[int, _Sheet]:
    """Put all members on cards: those who name theirs, the others where something is granted, and then the new ones."""
    sheets = {card.index: _Sheet(SHARE - card.free_share, card.free_share) for card in cards}
    now = [one for one in here if one.holder != "new"]
    for member in now:
        _lay_told(member, sheets, certain=True)
    for member in sorted((one for one in now if one.gpus and not one.cards), key=lambda one: -one.gpus):
        for share in member.shares():
            # the card that Ray most likely chose: the fullest on which so much is granted
            granted = {index: sheet.granted for index, sheet in sheets.items() if sheet.granted >= share}
            if granted:
                sheets[min(granted, key=lambda index: (granted[index], index))].lay(member, share, certain=False)
    for member in here[len(now):]:
        _lay_told(member, sheets, certain=False)  # Ray picks the card when it comes
    return sheets


def _lay_told(member: _Member, sheets: Mapping[int, _Sheet], *, certain: bool) -> None:
    for index in member.cards:
        sheets[index].lay(member, min(SHARE, member.gpus), certain=certain)


def _node(
    node: Node, cordoned_by: str | None, cards: Sequence[Card], sheets: Mapping[int, _Sheet], beside: Sequence[_Member]
) -> MapNode:
    models = {card.index: card.model for card in node.gpus}
    return MapNode(
        id=node.id, name=node.name, hardware=hardware(node), state=node.state, cordoned_by=cordoned_by,
        cards=[_card(card, models.get(card.index), sheets[card.index]) for card in cards],
        beside=[Beside(holder=one.holder, model=one.model, replica=one.replica, warm=one.warm) for one in beside],
    )


def _card(card: Card, model: str | None, sheet: _Sheet) -> MapCard:
    """Write one card down; what is granted without a known holder is unknown."""
    unknown = [Piece(holder="unknown", share=sheet.granted)] if sheet.granted else []
    return MapCard(index=card.index, hardware=model, memory=card.memory, free_share=sheet.free, dirty=card.dirty,
                   pieces=[*sheet.pieces, *unknown])


def _legend(scenario: Scenario, found: Occupants, nodes: Sequence[MapNode]) -> list[LegendEntry]:
    """Count replicas by model; those that hold most on cards come first."""
    held: Counter[str] = Counter()
    for piece in (piece for node in nodes for card in node.cards for piece in card.pieces):
        if piece.model is not None:
            held[piece.model] += piece.share
    counts: dict[str, Counter[Holder]] = {}
    for one in found.replicas:
        counts.setdefault(one.model, Counter())[_holder(scenario, one)] += not one.warm
    return [LegendEntry(model=model, live=by["live"], new=by["new"], foreign=by["foreign"])
            for model, by in sorted(counts.items(), key=lambda item: (-held[item[0]], item[0]))]
