"""A node of the map as HTML: its name, and its cards as small boxes, once or before and after.

A card with one whole holder is a single element: a large fleet has thousands of them. What a box says in letters, its
title says in words, so that no script is needed to read it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.documents.placement_map import Beside, MapCard, MapNode
from fleetctl.documents.quantity import SHARE, count_of
from fleetctl.render.map_signs import node_words
from fleetctl.render.map_words import card_words, node_title
from fleetctl.render.page.map_ink import Ink, share_class
from fleetctl.render.page.markup import Markup, el
from fleetctl.render.page.picture import before
from fleetctl.render.place_text import replica_ranges

GONE = "x"
SHORT = 2
"""Longer labels are set in smaller type."""

NAMED = 4
"""So many models with new replicas are named beside a node."""


def changed_node(node: MapNode, ink: Ink) -> Markup:
    """Return a node before and after, and what is new on it."""
    return el("li", _name(node), _strip(before(node), "before", ink), _strip(node, "after", ink), _coming(node),
              class_="node", data_node=node.name, data_holds=_holds(node, ink))


def same_node(node: MapNode, ink: Ink) -> Markup:
    """Return a node that stays as it is."""
    return el("li", _name(node), _strip(node, "both", ink), class_="node", data_node=node.name,
              data_holds=_holds(node, ink))


def planned_node(node: MapNode, ink: Ink) -> Markup:
    """Return a node of which only what is new is known."""
    return el("li", _name(node), _strip(node, "after", ink), _coming(node), class_="node", data_node=node.name,
              data_holds=_holds(node, ink))


def _name(node: MapNode) -> Markup:
    words = node_words(node)
    state = el("span", words, class_="state warn") if words else None
    return el("div", el("span", node.name, class_="key"), " ", el("span", node.hardware, class_="soft"), " ", state,
              class_="who", title=node_title(node))


def _strip(node: MapNode, side: str, ink: Ink) -> Markup:
    words = {"before": "before", "after": "after", "both": "before and after"}[side]
    return el("div", (_cell(node, card, ink) for card in node.cards), _beside(node.beside, ink), class_="strip",
              role="group", aria_label=words, data_side=side)


def _cell(node: MapNode, card: MapCard, ink: Ink) -> Markup:
    title, label = card_words(node, card), ink.label(card)
    marks = " ".join(["cell", *(["dirty"] if card.dirty else []), *(["long"] if len(label) > SHORT else [])])
    if node.state == "DEAD":
        return el("span", GONE, class_="cell gone", title=title)
    if len(card.pieces) == 1 and card.pieces[0].share == SHARE:
        (piece,) = card.pieces
        return el("span", label, class_=f"{marks} {ink.look(piece)}", data_r=piece.replica, title=title)
    pieces = [el("i", class_=f"{ink.look(piece)} {share_class(piece.share)}", data_r=piece.replica)
              for piece in card.pieces]
    return el("span", pieces, el("b", label), title=title, class_=f"{marks} {'part' if pieces else 'free'}")


def _beside(sitters: Iterable[Beside], ink: Ink) -> Markup | None:
    """Return the members on a node that hold no card; None where there are none."""
    chips = [el("span", ink.sign(one.model, one.holder), class_=f"cell {ink.classes.get(one.model, '')} {one.holder}",
                data_r=one.replica, title=f"without a card: {one.replica} ({one.holder})") for one in sitters]
    return el("span", el("span", "no card", class_="soft"), chips, class_="beside") if chips else None


def _coming(node: MapNode) -> Markup:
    """Name the new replicas of a node, those of one model together: `+ org/a/2-5`."""
    new = [piece.replica for card in node.cards for piece in card.pieces if piece.holder == "new"]
    new += [one.replica for one in node.beside if one.holder == "new"]
    lines = sorted(replica_ranges(replica for replica in new if replica))
    more = len(lines) - NAMED
    return el("div", (el("div", f"+ {line}", class_="key") for line in lines[:NAMED]),
              el("div", f"and {count_of(more, 'more model')}") if more > 0 else None, class_="coming")


def _holds(node: MapNode, ink: Ink) -> str | None:
    """Return the classes of the models on a node, for the filter."""
    models = [piece.model for card in node.cards for piece in card.pieces] + [one.model for one in node.beside]
    return " ".join(ink.classes.get(model or "", "") for model in dict.fromkeys(models)).strip() or None
