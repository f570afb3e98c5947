"""A node of the map as HTML: its name, and its cards as small boxes, once or before and after.

A card with one whole holder is a single element, as a large fleet has thousands of them. The title of a box says in
words what its letters say, so it can be read without a script.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.documents.placement_map import Beside, MapCard, MapNode
from fleetctl.documents.quantity import SHARE, count_of
from fleetctl.render.map_legend import MARKS, Legend, card_title, node_state, node_title, warm_text
from fleetctl.render.page.map_rules import model_class, piece_class, share_class
from fleetctl.render.page.markup import Markup, el
from fleetctl.render.page.picture import before
from fleetctl.render.place_text import replica_ranges

GONE, FREE = "x", "·"
SHORT = 2
"""Longer labels have smaller letters."""

NAMED = 4
"""At most so many models with new replicas are named beside a node."""


def changed_node(node: MapNode, legend: Legend) -> Markup:
    """Return a node before and after, and what is new on it."""
    return el("li", _name(node), _strip(before(node), "before", legend), _strip(node, "after", legend), _coming(node),
              class_="node", data_node=node.name, data_holds=_holds(node, legend))


def same_node(node: MapNode, legend: Legend) -> Markup:
    """Return a node without a change."""
    return el("li", _name(node), _strip(node, "both", legend), class_="node", data_node=node.name,
              data_holds=_holds(node, legend))


def planned_node(node: MapNode, legend: Legend) -> Markup:
    """Return a node of which only the new replicas are known."""
    return el("li", _name(node), _strip(node, "after", legend), _coming(node), class_="node", data_node=node.name,
              data_holds=_holds(node, legend))


def _name(node: MapNode) -> Markup:
    words = node_state(node)
    state = el("span", words, class_="state warn") if words else None
    return el("div", el("span", node.name, class_="key"), " ", el("span", node.hardware, class_="soft"), " ", state,
              class_="who", title=node_title(node))


def _strip(node: MapNode, side: str, legend: Legend) -> Markup:
    words = {"before": "before", "after": "after", "both": "before and after"}[side]
    return el("div", (_cell(node, card, legend) for card in node.cards), _beside(node.beside, legend), class_="strip",
              role="group", aria_label=words, data_side=side)


def _cell(node: MapNode, card: MapCard, legend: Legend) -> Markup:
    title, label = card_title(node, card), legend.label(card) or FREE
    marks = " ".join(["cell", *(["dirty"] if card.dirty else []), *(["long"] if len(label) > SHORT else [])])
    if node.state == "DEAD":
        return el("span", GONE, class_="cell gone", title=title)
    if len(card.pieces) == 1 and card.pieces[0].share == SHARE:
        (piece,) = card.pieces
        return el("span", label, class_=f"{marks} {piece_class(piece, legend)}", data_r=piece.replica, title=title)
    pieces = [el("i", class_=f"{piece_class(piece, legend)} {share_class(piece.share)}", data_r=piece.replica)
              for piece in card.pieces]
    return el("span", pieces, el("b", label), title=title, class_=f"{marks} {'part' if pieces else 'free'}")


def _beside(members: Iterable[Beside], legend: Legend) -> Markup | None:
    """Return the members on a node that hold no card; None where there are none."""
    chips = [el("span", MARKS[one.holder] + legend.code(one.model), data_r=one.replica,
                class_=f"cell {model_class(one.model, legend)} {one.holder}",
                title=f"without a card: {one.replica} ({one.holder}){warm_text(one)}") for one in members]
    return el("span", el("span", "no card", class_="soft"), chips, class_="beside") if chips else None


def _coming(node: MapNode) -> Markup:
    """Name the new replicas of a node, those of one model together: `+ org/a/2-5`."""
    new = [piece.replica for card in node.cards for piece in card.pieces if piece.holder == "new"]
    new += [one.replica for one in node.beside if one.holder == "new"]
    lines = sorted(replica_ranges(replica for replica in new if replica))
    more = len(lines) - NAMED
    return el("div", (el("div", f"+ {line}", class_="key") for line in lines[:NAMED]),
              el("div", f"and {count_of(more, 'more model')}") if more > 0 else None, class_="coming")


def _holds(node: MapNode, legend: Legend) -> str | None:
    """Return the classes of the models on a node, for the filter."""
    models = [piece.model for card in node.cards for piece in card.pieces] + [one.model for one in node.beside]
    return " ".join(model_class(model, legend) for model in dict.fromkeys(models)).strip() or None
