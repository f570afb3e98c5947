"""The placement map of a page: the nodes a plan changes, before and after; then those that stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.placement_map import LegendEntry, MapNode, PlacementMap
from fleetctl.documents.quantity import count_of
from fleetctl.render.map_signs import DIRTY, FOREIGN, MEANINGS, NEW, UNKNOWN, totals
from fleetctl.render.page.map_ink import FREE, Ink
from fleetctl.render.page.map_nodes import GONE, changed_node, planned_node, same_node
from fleetctl.render.page.markup import Markup, el
from fleetctl.render.page.parts import fold, left_out
from fleetctl.render.page.picture import is_touched
from fleetctl.render.page.tables import Part
from fleetctl.render.placement_map import counts_of

NODES_SHOWN = 2_000
"""More nodes than this are not drawn: those that change come first, and what is left out is said."""

OPEN_UP_TO = 60
"""So many nodes that stay as they are can be seen from the start; more are folded."""

LEGEND_SHOWN = 24
ONLY_THE_PLAN = ("Made from the plan alone: only the nodes it places on, and of those only what is new. "
                 "With an inventory, fleetctl draws the whole fleet before and after.")


def map_part(picture: PlacementMap, *, whole: bool) -> Part:
    """Return the map; `whole` = it knows every node, and what runs on it now."""
    ink = Ink.of(picture)
    touched = [node for node in picture.nodes if is_touched(node)][:NODES_SHOWN]
    same = [node for node in picture.nodes if not is_touched(node)][:NODES_SHOWN - len(touched)]
    note = f"{totals(picture)}." if whole else ONLY_THE_PLAN
    long = " wide" if any(len(code) > 1 for code in ink.codes.values()) else ""
    body = el(
        "section", el("h2", "Placement map"), el("p", note), _legend(picture, ink),
        _changed(touched, ink, whole=whole), _same(same, ink),
        left_out(len(picture.nodes) - len(touched) - len(same), "node", "fleetctl map --all shows every one"),
        id="map", class_=f"map{long}", aria_label="Placement map",
    )
    return Part("map", "Placement map", body)


def _changed(nodes: Sequence[MapNode], ink: Ink, *, whole: bool) -> Markup:
    if not nodes:
        return el("p", "No node changes.", class_="soft")
    heads = ("node", "before", "after", "new here") if whole else ("node", "new", "replicas")
    head = el("div", (el("span", name) for name in heads), class_="heads", aria_hidden="true")
    draw = changed_node if whole else planned_node
    title = el("h3", f"{count_of(len(nodes), 'node')} with new replicas")
    return el("div", title, head, el("ul", (draw(node, ink) for node in nodes)),
              class_="changed" if whole else "changed alone")


def _same(nodes: Sequence[MapNode], ink: Ink) -> Markup | None:
    if not nodes:
        return None
    summary = el("summary", f"{count_of(len(nodes), 'node')} as before")
    return el("details", summary, el("ul", (same_node(node, ink) for node in nodes)), class_="fold same",
              data_same=True, open=len(nodes) <= OPEN_UP_TO)


def _legend(picture: PlacementMap, ink: Ink) -> Markup:
    """Return the letters of the models, and the signs; each model is a link that the script makes a filter of."""
    entries = [_entry(entry, ink) for entry in picture.legend]
    rest = entries[LEGEND_SHOWN:]
    more = fold(count_of(len(rest), "more model"), el("ul", rest)) if rest else None
    signs = el("ul", (_sign(sign, look, words) for sign, look, words in _signs(picture)), class_="signs")
    return el("div", el("ul", entries[:LEGEND_SHOWN]), more, signs, class_="legend")


def _entry(entry: LegendEntry, ink: Ink) -> Markup:
    theirs = "" if entry.live or entry.new else " foreign"
    sign = el("span", ink.codes[entry.model], class_=f"cell {ink.classes[entry.model]}{theirs}")
    name = el("a", entry.model, href="#map", class_="key", data_model=ink.classes[entry.model])
    return el("li", sign, el("span", name, " ", el("span", counts_of(entry), class_="soft")))


def _sign(sign: str, look: str, words: str) -> Markup:
    return el("li", el("span", sign, class_=f"cell {look}"), el("span", words))


def _signs(picture: PlacementMap) -> Iterator[tuple[str, str, str]]:
    """Yield the signs that are on the map, each with its look and its meaning."""
    cards = [card for node in picture.nodes for card in node.cards]
    holders: set[str] = {piece.holder for card in cards for piece in card.pieces}
    holders |= {sitter.holder for node in picture.nodes for sitter in node.beside}
    for sign, holder in ((NEW, "new"), (FOREIGN, "foreign"), (UNKNOWN, "unknown")):
        if holder in holders:
            yield sign, holder, MEANINGS[sign]
    if any(card.dirty for card in cards):
        yield DIRTY, "free dirty", MEANINGS[DIRTY]
    if any(node.state == "DEAD" for node in picture.nodes):
        yield GONE, "gone", "its node is dead"
    yield FREE, "free", "free"
