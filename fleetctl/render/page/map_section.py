"""The placement map of a page: the nodes a plan changes, before and after; then the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.placement_map import LegendEntry, MapNode, PlacementMap
from fleetctl.documents.quantity import count_of
from fleetctl.render.map_legend import MEANINGS, Legend, counts_of, signs_used, totals
from fleetctl.render.page.map_nodes import FREE, GONE, changed_node, planned_node, same_node
from fleetctl.render.page.map_rules import model_class
from fleetctl.render.page.markup import Markup, el
from fleetctl.render.page.parts import fold, left_out
from fleetctl.render.page.picture import is_touched
from fleetctl.render.page.tables import Part

NODES_SHOWN = 2_000
"""At most so many nodes are drawn, those that change first; the page says how many are left out."""

OPEN_UP_TO = 60
"""Up to so many nodes without a change are open from the start; more are folded."""

LEGEND_SHOWN = 24
ONLY_THE_PLAN = ("Made from the plan alone: only the nodes it places on, and of those only what is new. "
                 "With an inventory, fleetctl draws the whole fleet before and after.")


def map_part(picture: PlacementMap, *, whole: bool) -> Part:
    """Return the map; `whole` = it has every node, and what runs there now."""
    legend = Legend.of(picture)
    touched = [node for node in picture.nodes if is_touched(node)][:NODES_SHOWN]
    same = [node for node in picture.nodes if not is_touched(node)][:NODES_SHOWN - len(touched)]
    note = f"{totals(picture)}." if whole else ONLY_THE_PLAN
    long = " wide" if any(len(code) > 1 for code in legend.codes.values()) else ""
    body = el(
        "section", el("h2", "Placement map"), el("p", note), _legend(picture, legend),
        _changed(touched, legend, whole=whole), _same(same, legend),
        left_out(len(picture.nodes) - len(touched) - len(same), "node", "fleetctl map --all shows every one"),
        id="map", class_=f"map{long}", aria_label="Placement map",
    )
    return Part("map", "Placement map", body)


def _changed(nodes: Sequence[MapNode], legend: Legend, *, whole: bool) -> Markup:
    if not nodes:
        return el("p", "No node changes.", class_="soft")
    heads = ("node", "before", "after", "new here") if whole else ("node", "new", "replicas")
    head = el("div", (el("span", name) for name in heads), class_="heads", aria_hidden="true")
    draw = changed_node if whole else planned_node
    title = el("h3", f"{count_of(len(nodes), 'node')} with new replicas")
    return el("div", title, head, el("ul", (draw(node, legend) for node in nodes)),
              class_="changed" if whole else "changed alone")


def _same(nodes: Sequence[MapNode], legend: Legend) -> Markup | None:
    if not nodes:
        return None
    summary = el("summary", f"{count_of(len(nodes), 'node')} as before")
    return el("details", summary, el("ul", (same_node(node, legend) for node in nodes)), class_="fold same",
              data_same=True, open=len(nodes) <= OPEN_UP_TO)


def _legend(picture: PlacementMap, legend: Legend) -> Markup:
    """Return the letters of the models, and the signs; each model is a link, which the script turns into a filter."""
    entries = [_entry(entry, legend) for entry in picture.legend]
    rest = entries[LEGEND_SHOWN:]
    more = fold(count_of(len(rest), "more model"), el("ul", rest)) if rest else None
    signs = el("ul", (_sign(*sign) for sign in _signs(picture)), class_="signs")
    return el("div", el("ul", entries[:LEGEND_SHOWN]), more, signs, class_="legend")


def _entry(entry: LegendEntry, legend: Legend) -> Markup:
    theirs = "" if entry.live or entry.new else " foreign"
    sign = el("span", legend.codes[entry.model], class_=f"cell {model_class(entry.model, legend)}{theirs}")
    name = el("a", entry.model, href="#map", class_="key", data_model=model_class(entry.model, legend))
    return el("li", sign, el("span", name, " ", el("span", counts_of(entry), class_="soft")))


def _sign(sign: str, classes: str, words: str) -> Markup:
    return el("li", el("span", sign, class_=f"cell {classes}"), el("span", words))


def _signs(picture: PlacementMap) -> Iterator[tuple[str, str, str]]:
    """Yield the signs that are on the map, each with its classes and its meaning."""
    for sign, about in signs_used(picture):
        yield sign, "free dirty" if about == "dirty" else about, MEANINGS[sign]
    if any(node.state == "DEAD" for node in picture.nodes):
        yield GONE, "gone", "its node is dead"
    yield FREE, "free", "free"
