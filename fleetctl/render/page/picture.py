"""The map before and after a plan: with its new replicas, and without them."""

from __future__ import annotations

from collections import Counter

from fleetctl.documents.placement_map import Beside, LegendEntry, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.plan import Action, ActionMember, Plan
from fleetctl.documents.quantity import SHARE, amount_of


def is_touched(node: MapNode) -> bool:
    """Return whether the plan would create anything on a node."""
    return any(piece.holder == "new" for card in node.cards for piece in card.pieces) or any(
        member.holder == "new" for member in node.beside)


def before(node: MapNode) -> MapNode:
    """Return a node as it is now: without what the plan would create."""
    return node.model_copy(update={
        "cards": [_card_before(card) for card in node.cards],
        "beside": [member for member in node.beside if member.holder != "new"],
    })


def _card_before(card: MapCard) -> MapCard:
    new = sum(piece.share for piece in card.pieces if piece.holder == "new")
    if not new:
        return card
    pieces = [piece for piece in card.pieces if piece.holder != "new"]
    return card.model_copy(update={"pieces": pieces, "free_share": card.free_share + new})


def planned_alone(plan: Plan) -> PlacementMap:
    """Return a map of the nodes that a plan places on, with only what it would create.

    For a saved plan, which does not hold what else is on the nodes, or how many cards they have.
    """
    there: dict[str, list[tuple[Action, ActionMember]]] = {}
    for action in plan.actions:
        for member in action.members:
            there.setdefault(member.node_id, []).append((action, member))
    nodes = [_planned_node(node_id, coming) for node_id, coming in there.items()]
    new = Counter(action.model for action in plan.actions)
    return PlacementMap(fleet=plan.fleet.name, inventory=plan.inventory, nodes=sorted(nodes, key=lambda n: n.name),
                        legend=[LegendEntry(model=model, new=count) for model, count in new.most_common()])


def _planned_node(node_id: str, coming: list[tuple[Action, ActionMember]]) -> MapNode:
    cards: list[list[Piece]] = []
    for action, member in coming:
        whole, part = divmod(member.gpus, SHARE)
        cards += [[_piece(action, SHARE)] for _ in range(whole)]
        if part:
            _add_share(cards, _piece(action, part))
    beside = [Beside(holder="new", model=action.model, replica=action.id) for action, member in coming
              if not member.gpus]
    return MapNode(
        id=node_id, name=coming[0][1].node, hardware=f"{amount_of(sum(m.gpus for _, m in coming), 'GPU')} planned",
        state="ALIVE", beside=beside,
        cards=[MapCard(index=index, free_share=SHARE - sum(piece.share for piece in pieces), pieces=pieces)
               for index, pieces in enumerate(cards)],
    )


def _piece(action: Action, share: int) -> Piece:
    return Piece(holder="new", share=share, model=action.model, replica=action.id, certain=False)


def _add_share(cards: list[list[Piece]], piece: Piece) -> None:
    """Put a share on the first card with room, as Ray would; else on a new card."""
    for pieces in cards:
        if sum(other.share for other in pieces) + piece.share <= SHARE:
            pieces.append(piece)
            return
    cards.append([piece])
