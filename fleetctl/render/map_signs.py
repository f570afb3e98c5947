"""The signs of a placement map, the same in the terminal and in the picture: a letter for each model, a word for each
state of a node. Letters carry all there is to know; colours only repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_uppercase

from fleetctl.documents.placement_map import LegendEntry, MapCard, MapNode, PlacementMap
from fleetctl.documents.quantity import count_of

NEW, FOREIGN, UNKNOWN, DIRTY = "+", "~", "?", "!"
OTHER = "*"
"""Stands for models beyond the last pair of letters, and for a third model on one card."""

MEANINGS = {
    NEW: "the plan would create it", FOREIGN: "not this fleet's", UNKNOWN: "in use, nobody says by whom",
    DIRTY: "used beyond what is granted, not on offer",
}


def letters(legend: list[LegendEntry]) -> dict[str, str]:
    """Return a code for each model: one letter for up to 26 of them, else two; the last ones share a sign."""
    if len(legend) <= len(ascii_uppercase):
        return {entry.model: letter for entry, letter in zip(legend, ascii_uppercase, strict=False)}
    pairs = [first + second for first in ascii_uppercase for second in ascii_uppercase.lower()]
    codes = {entry.model: pair for entry, pair in zip(legend, pairs, strict=False)}
    return {entry.model: codes.get(entry.model, OTHER) for entry in legend}


def code_of(model: str | None, codes: Mapping[str, str]) -> str:
    """Return the code of a piece's model; `?` where nobody knows whose it is."""
    return UNKNOWN if model is None else codes.get(model, OTHER)


def node_words(node: MapNode) -> str:
    """Return what is unusual about a node: dead, draining, cordoned; empty where nothing is."""
    words = [] if node.state == "ALIVE" else [node.state.lower()]
    return ", ".join([*words, *(["cordoned"] if node.cordoned_by else [])])


def mark_of(card: MapCard) -> str:
    """Return the gravest mark of a card: dirty, then new, then foreign; a blank for none."""
    holders = {piece.holder for piece in card.pieces}
    if card.dirty:
        return DIRTY
    if "new" in holders:
        return NEW
    return FOREIGN if "foreign" in holders else " "


def totals(answer: PlacementMap) -> str:
    """Return one line: nodes, cards, and how much of them is free, on nodes that are alive."""
    alive = [node for node in answer.nodes if node.state == "ALIVE"]
    cards = [card for node in alive for card in node.cards]
    free = sum(card.free_share for card in cards) / 10_000
    whole = sum(card.free_share == 10_000 and not card.dirty for card in cards)
    new = sum(entry.new for entry in answer.legend)
    coming = f", {count_of(new, 'new replica')} drawn in" if new else ""
    return (f"{count_of(len(alive), 'node')} alive, {count_of(len(cards), 'card')}, "
            f"{free:g} free ({whole} of them whole){coming}")
