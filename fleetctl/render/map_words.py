"""One card of the placement map in words, the same in every picture: what it is, who holds it, what is free."""

from __future__ import annotations

from fleetctl.documents.placement_map import MapCard, MapNode, Piece
from fleetctl.documents.quantity import SHARE, format_bytes, format_share
from fleetctl.render.map_signs import DIRTY, MEANINGS, UNKNOWN, node_words


def card_words(node: MapNode, card: MapCard) -> str:
    """Return `card 3 H100, 80Gi; org/a/7 0.5 (live); 0.5 free`."""
    kind = f" {card.hardware}" if card.hardware else ""
    memory = f", {format_bytes(card.memory)}" if card.memory else ""
    parts = [f"card {card.index}{kind}{memory}"]
    parts += [f"{piece.replica or UNKNOWN}{_part(piece.share)} ({_whose(piece)})" for piece in card.pieces]
    if node.state == "DEAD":
        parts.append("its node is dead")
    elif card.free_share:
        parts.append("free" if card.free_share == SHARE else f"{format_share(card.free_share)} free")
    return "; ".join([*parts, *([f"dirty: {MEANINGS[DIRTY]}"] if card.dirty else [])])


def node_title(node: MapNode) -> str:
    """Return what a node is, what is unusual about it, and who sits on it without a card."""
    words = node_words(node)
    beside = f"; without a card: {', '.join(one.replica for one in node.beside)}" if node.beside else ""
    cordon = f" by {node.cordoned_by}" if node.cordoned_by else ""
    return f"{node.name}, {node.hardware}" + (f", {words}{cordon}" if words else "") + beside


def _part(share: int) -> str:
    return "" if share == SHARE else f" {format_share(share)}"


def _whose(piece: Piece) -> str:
    words = {"live": "live", "new": "new", "foreign": "not this fleet's", "unknown": MEANINGS[UNKNOWN]}[piece.holder]
    return words if piece.certain or piece.holder in ("new", "unknown") else f"{words}, card inferred"
