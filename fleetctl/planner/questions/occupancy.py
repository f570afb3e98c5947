"""Occupancy: who holds which share of every card, and with a plan also who would. What the placement map is made of.

What is free is read off the ledger, so the map and a plan never disagree. Who has the rest is told by the replicas; the
cards of one that names none are inferred by Ray's rule, and what nobody claims is drawn as unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.documents.inventory import Node
from fleetctl.documents.placement_map import Beside, Holder, LegendEntry, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.ledger.cards import Card
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.stock import offer_of
from fleetctl.planner.questions.hardware import hardware
from fleetctl.planner.questions.sitting import Sitter, holder_of, seated, sitting, there_now
from fleetctl.planner.questions.world import World, take_planned


def placement_map(world: World, plan: Plan | None = None) -> PlacementMap:
    """Return who holds what; with a fleet, its plan's new replicas are drawn in. `plan` = where it is made already.

    Raises InventoryError for an incomplete inventory where there is a plan to make, and ValueError when `plan` does
    not fit on this world.
    """
    plan = world.plan() if plan is None and world.named else plan
    ledger, state = world.opened(), world.sorted_out()
    nodes = {node.id: node for node in world.inventory.nodes}
    cards = [_cards_now(nodes[fact.id], place, ledger, state) for place, fact in enumerate(ledger.nodes)]
    here = sitting(world)
    coming = {} if plan is None else seated(plan, take_planned(plan, ledger))
    drawn = []
    for fact, offered in zip(ledger.nodes, cards, strict=True):
        sheets = _laid(offered, here.get(fact.id, ()), coming.get(fact.id, ()))
        beside = [one for one in (*here.get(fact.id, ()), *coming.get(fact.id, ())) if not one.gpus]
        drawn.append(_node(nodes[fact.id], fact.policy.cordoned_by, offered, sheets, beside))
    return PlacementMap(fleet=world.named, inventory=world.about(), nodes=drawn, legend=_legend(world, plan, drawn))


def _cards_now(node: Node, place: int, ledger: Ledger, state: LiveState) -> tuple[Card, ...]:
    """Return the cards of a node as they are, also where it offers nothing new because it is draining or dead."""
    if node.state == "ALIVE":
        return ledger.offer(place).cards
    return offer_of(node, state.holding.get(node.id, ()), ledger.nodes[place].policy).cards


@dataclass(slots=True)
class _Sheet:
    """One card while pieces are laid on it: `granted` = what is in use of it now and not yet laid; the rest is free."""

    granted: int
    free: int
    pieces: list[Piece] = field(default_factory=list)

    def lay(self, sitter: Sitter, share: int, *, certain: bool) -> None:
        """Lay a piece on what is granted, or for a new replica on what is free; never more than there is."""
        room = self.free if sitter.holder == "new" else self.granted
        share = min(share, room)
        if not share:
            return
        if sitter.holder == "new":
            self.free -= share
        else:
            self.granted -= share
        self.pieces.append(Piece(holder=sitter.holder, share=share, model=sitter.model, replica=sitter.replica,
                                 certain=certain))


def _laid(cards: Sequence[Card], here: Sequence[Sitter], coming: Sequence[Sitter]) -> dict[int, _Sheet]:
    """Lay everybody on cards: those who name theirs, the others where something is granted, and then the new ones."""
    sheets = {card.index: _Sheet(SHARE - card.free_share, card.free_share) for card in cards}
    for sitter in here:
        _lay_told(sitter, sheets, certain=True)
    for sitter in sorted((one for one in here if one.gpus and not one.cards), key=lambda one: -one.gpus):
        for share in sitter.shares():
            _infer(sitter, share, sheets)
    for sitter in coming:
        _lay_told(sitter, sheets, certain=False)  # Ray picks the card when it comes
    return sheets


def _lay_told(sitter: Sitter, sheets: Mapping[int, _Sheet], *, certain: bool) -> None:
    for index in sitter.cards:
        sheets[index].lay(sitter, min(SHARE, sitter.gpus), certain=certain)


def _infer(sitter: Sitter, share: int, sheets: Mapping[int, _Sheet]) -> None:
    """Lay a piece on the card that Ray most likely chose: the fullest on which so much is granted."""
    holding = [index for index, sheet in sheets.items() if sheet.granted >= share]
    if holding:
        index = min(holding, key=lambda index: (sheets[index].granted, index))
        sheets[index].lay(sitter, share, certain=False)


def _node(
    node: Node, cordoned_by: str | None, cards: Sequence[Card], sheets: Mapping[int, _Sheet], beside: Sequence[Sitter]
) -> MapNode:
    models = {card.index: card.model for card in node.gpus}
    return MapNode(
        id=node.id, name=node.name, hardware=hardware(node), state=node.state, cordoned_by=cordoned_by,
        cards=[_card(card, models.get(card.index), sheets[card.index]) for card in cards],
        beside=[Beside(holder=one.holder, model=one.model, replica=one.replica) for one in beside],
    )


def _card(card: Card, model: str | None, sheet: _Sheet) -> MapCard:
    """Write one card down; what is granted and nobody claims is unknown."""
    unknown = [Piece(holder="unknown", share=sheet.granted)] if sheet.granted else []
    return MapCard(index=card.index, hardware=model, memory=card.memory, free_share=sheet.free, dirty=card.dirty,
                   pieces=[*sheet.pieces, *unknown])


def _legend(world: World, plan: Plan | None, nodes: Sequence[MapNode]) -> list[LegendEntry]:
    """Count replicas by model; those that hold most on cards come first."""
    held: Counter[str] = Counter()
    for piece in (piece for node in nodes for card in node.cards for piece in card.pieces):
        if piece.model is not None:
            held[piece.model] += piece.share
    counts: dict[str, Counter[Holder]] = {}
    for replica in there_now(world):
        counts.setdefault(replica.model, Counter())[holder_of(world, replica)] += 1
    for action in plan.actions if plan else ():
        counts.setdefault(action.model, Counter())["new"] += 1
    return [LegendEntry(model=model, live=found["live"], new=found["new"], foreign=found["foreign"])
            for model, found in sorted(counts.items(), key=lambda item: (-held[item[0]], item[0]))]
