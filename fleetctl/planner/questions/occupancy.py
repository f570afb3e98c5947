"""Builds the placement map: which replica holds which share of every card, planned replicas included.

Free shares come from the ledger, so the map and a plan never disagree. Replicas report the cards that they hold; if one
reports none, they are inferred by Ray's rule. What no replica claims has an unknown holder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetctl.documents.answers import Beside, Holder, LegendEntry, LegendVariant, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.inventory import Node, card_indices
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.ledger.cards import OfferedCard
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.node_offer import offer_of
from fleetctl.planner.placement.occupants import Occupant, Occupants
from fleetctl.planner.questions.new_node import hardware
from fleetctl.planner.questions.scenario import Scenario, take_waiting, with_new_nodes


def placement_map(scenario: Scenario, plan: Plan | None = None) -> PlacementMap:
    """Return the map; with a fleet, it includes the new replicas of its plan. `plan` = that plan, if made already.

    Raises InventoryError if a plan has to be made on an incomplete inventory, and ValueError if `plan` does not fit on
    this scenario.
    """
    plan = scenario.plan() if plan is None and scenario.named else plan
    existing = {node.id for node in scenario.inventory.nodes}
    if plan and plan.growth:
        scenario = with_new_nodes(scenario, {row.name: row.in_all for row in plan.growth})
    ledger, state = scenario.opened(), scenario.sorted_out()
    nodes = {node.id: node for node in scenario.inventory.nodes}
    cards = [_cards_now(nodes[fact.id], place, ledger, state) for place, fact in enumerate(ledger.nodes)]
    found = scenario.occupants(ledger, plan)
    if plan and plan.growth:
        found.replicas += take_waiting(scenario, plan, ledger)
    drawn = []
    for place, offered in enumerate(cards):
        members = list(_members(scenario, found, place))
        beside = [one for one in members if not one.gpus]
        node = _node(found.nodes[place], ledger.nodes[place].policy.cordoned_by, offered,
                     _assigned(offered, members), beside)
        drawn.append(node if node.id in existing else node.model_copy(update={"new": True}))
    return PlacementMap(fleet=scenario.named, inventory=scenario.about(), nodes=drawn,
                        legend=_legend(scenario, found, drawn))


def of_models(drawn: PlacementMap, keys: Collection[str]) -> PlacementMap:
    """Return the map reduced to the nodes that have, or would have, replicas of these models."""
    models = {node.id: {*(piece.model for card in node.cards for piece in card.pieces),
                        *(one.model for one in node.beside)} for node in drawn.nodes}
    nodes = [node for node in drawn.nodes if not models[node.id].isdisjoint(keys)]
    shown = {key for node in nodes for key in models[node.id]}
    return drawn.model_copy(update={"nodes": nodes, "legend": [one for one in drawn.legend if one.model in shown]})


def _cards_now(node: Node, place: int, ledger: Ledger, state: LiveState) -> tuple[OfferedCard, ...]:
    """Return the current cards of a node, even if it offers nothing because it is draining or dead."""
    if node.state == "ALIVE":
        return ledger.offer(place).cards
    return offer_of(node, state.holding.get(node.id, ()), ledger.nodes[place].policy).cards


class _Member(NamedTuple):
    """One member on a node: its holder, the GPU share it takes, and its cards; empty = unknown."""

    holder: Holder
    model: str
    replica: str
    variant: str
    gpus: int
    cards: tuple[int, ...]
    warm: int | None = None

    def shares(self) -> list[int]:
        """Return what it takes of each card: whole cards, then the share below one."""
        whole, part = divmod(self.gpus, SHARE)
        return [SHARE] * whole + ([part] if part else [])


def _members(scenario: Scenario, found: Occupants, place: int) -> Iterator[_Member]:
    """Yield the members on a node: running ones, then planned ones."""
    for one in found.on(place):
        for member in one.live.get(place, ()):
            known = card_indices(member, found.nodes[place].gpus)
            cards = tuple(known) if len(known) * SHARE >= member.gpus else ()
            yield _Member(_holder(scenario, one), one.model, one.name, one.variant, member.gpus, cards,
                          member.memory if one.warm else None)
        for new in one.planned.get(place, ()):
            yield _Member("new", one.model, one.name, one.variant, new.gpus, new.cards)


def _holder(scenario: Scenario, one: Occupant) -> Holder:
    """Return the holder of a replica; without a fleet, all replicas with a fleet's mark are live, others foreign."""
    if one.planned:
        return "new"
    ours = {scenario.named or one.fleet, scenario.adopt_from}
    return "live" if one.fleet is not None and one.fleet in ours else "foreign"


@dataclass(slots=True)
class _CardPieces:
    """One card while its pieces are assigned: `granted` = in use but not assigned yet; `free` = not in use."""

    granted: int
    free: int
    pieces: list[Piece] = field(default_factory=list)

    def add(self, member: _Member, share: int, *, certain: bool) -> None:
        """Assign a piece of the granted share, or for a new replica of the free share, as far as it suffices."""
        room = self.free if member.holder == "new" else self.granted
        share = min(share, room)
        if not share:
            return
        if member.holder == "new":
            self.free -= share
        else:
            self.granted -= share
        self.pieces.append(Piece(holder=member.holder, share=share, model=member.model, replica=member.replica,
                                 variant=member.variant or None, certain=certain))


def _assigned(cards: Sequence[OfferedCard], members: Sequence[_Member]) -> dict[int, _CardPieces]:
    """Assign all members to cards: those with known cards, others to granted shares, and then the new ones."""
    by_card = {card.index: _CardPieces(SHARE - card.free_share, card.free_share) for card in cards}
    running = [one for one in members if one.holder != "new"]
    for member in running:
        _add_to_its_cards(member, by_card, certain=True)
    for member in sorted((one for one in running if one.gpus and not one.cards), key=lambda one: -one.gpus):
        for share in member.shares():
            # Ray most likely chose the card with the least that still has this share granted
            granted = {index: card.granted for index, card in by_card.items() if card.granted >= share}
            if granted:
                by_card[min(granted, key=lambda index: (granted[index], index))].add(member, share, certain=False)
    for member in members[len(running):]:
        _add_to_its_cards(member, by_card, certain=False)  # Ray picks the card when the replica is created
    return by_card


def _add_to_its_cards(member: _Member, by_card: Mapping[int, _CardPieces], *, certain: bool) -> None:
    for index in member.cards:
        by_card[index].add(member, min(SHARE, member.gpus), certain=certain)


def _node(
    node: Node, cordoned_by: str | None, cards: Sequence[OfferedCard], by_card: Mapping[int, _CardPieces],
    beside: Sequence[_Member],
) -> MapNode:
    models = {card.index: card.model for card in node.gpus}
    return MapNode(
        id=node.id, name=node.name, hardware=hardware(node), state=node.state, cordoned_by=cordoned_by,
        cards=[_card(card, models.get(card.index), by_card[card.index]) for card in cards],
        beside=[Beside(holder=one.holder, model=one.model, replica=one.replica, variant=one.variant or None,
                       warm=one.warm) for one in beside],
    )


def _card(card: OfferedCard, model: str | None, assigned: _CardPieces) -> MapCard:
    """Return one card of the map; a granted share that is not assigned has an unknown holder."""
    unknown = [Piece(holder="unknown", share=assigned.granted)] if assigned.granted else []
    return MapCard(index=card.index, hardware=model, memory=card.memory, free_share=assigned.free, dirty=card.dirty,
                   pieces=[*assigned.pieces, *unknown])


def _legend(scenario: Scenario, found: Occupants, nodes: Sequence[MapNode]) -> list[LegendEntry]:
    """Count replicas by model; models that hold the most on cards come first."""
    held: Counter[str] = Counter()
    for piece in (piece for node in nodes for card in node.cards for piece in card.pieces):
        if piece.model is not None:
            held[piece.model] += piece.share
    counts: dict[str, dict[str, Counter[Holder]]] = {}
    for one in found.replicas:
        by = counts.setdefault(one.model, {}).setdefault(one.variant, Counter())
        by[_holder(scenario, one)] += not one.warm
    order = {(model.key, one.variant): place for model in scenario.fleet.models
             for place, one in enumerate(model.variants)}
    legend = []
    for model in sorted(counts, key=lambda model: (-held[model], model)):
        names = sorted(counts[model], key=lambda name: (order.get((model, name), len(order)), name))
        each = [LegendVariant(name=name, live=by["live"], new=by["new"], foreign=by["foreign"])
                for name, by in ((name, counts[model][name]) for name in names)]
        live, new, foreign = (sum(getattr(one, holder) for one in each) for holder in ("live", "new", "foreign"))
        legend.append(LegendEntry(model=model, live=live, new=new, foreign=foreign,
                                  variants=each if any(names) else []))
    return legend
