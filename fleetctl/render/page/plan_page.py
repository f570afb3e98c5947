"""The page of a plan, and the placement map on it: the nodes a plan changes, before and after; then the others.

A node is its name and a small box per card, drawn as in a terminal and in the SVG (`placement_map.py`), but as HTML: it
wraps on a phone, and a filter takes nodes out. A card with a single holder is one element, as a large fleet has
thousands of cards. The title of a box says in words what its letters say, so it can be read without a script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetctl.documents.answers import Beside, LegendEntry, LegendVariant, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.plan import Action, ActionMember, Plan
from fleetctl.documents.quantity import SHARE, amount_of, count_of, grouped
from fleetctl.render.page.report_page import Markup, Part, el, fold, omission_note, report_page
from fleetctl.render.placement_map import (
    FREE,
    MARKS,
    MEANINGS,
    SIGNS,
    Cell,
    Drawing,
    as_variant,
    color_of,
    counts_of,
    warm_text,
)
from fleetctl.render.replica_text import replica_ranges
from fleetctl.render.report.model import Report
from fleetctl.render.report.of_plan import plan_report

NODES_SHOWN = 2_000
"""The most nodes drawn, changed nodes first; the page says how many are omitted."""

CHANGED_SHOWN = 12
"""The most changed nodes shown at once: the map is the first part, and the totals follow it. The others are folded."""

OPEN_UP_TO = 24
"""The list of unchanged nodes is folded if it is longer than this."""

LEGEND_SHOWN = 24
ONLY_THE_PLAN = ("Made from the plan alone: shows only the nodes it places on, and only their new replicas. "
                 "With an inventory, fleetctl draws the whole fleet before and after.")
SHORT = 2
"""Longer labels have smaller letters."""
NAMED = 4
"""The most models with new replicas named beside a node."""


def plan_page(plan: Plan, picture: PlacementMap | None, report: Report | None = None) -> str:
    """Return the page of a plan: its report, or `report` instead, and the placement map before and after.

    `picture` is the placement map with this plan's new replicas. None if only the plan is known; then the map
    shows only the nodes the plan places on.
    """
    drawn = picture or planned_alone(plan)
    return report_page(report or plan_report(plan), map_part(drawn, whole=picture is not None), map_rules(drawn))


def map_part(picture: PlacementMap, *, whole: bool) -> Part:
    """Return the map; `whole` = the picture has every node and the replicas that run now."""
    drawing = Drawing(picture)
    touched = [node for node in picture.nodes if is_touched(node)][:NODES_SHOWN]
    same = [node for node in picture.nodes if not is_touched(node)][:NODES_SHOWN - len(touched)]
    unchanged = el("details", el("summary", f"{count_of(len(same), 'node')} unchanged"),
                   el("ul", (_node(node, drawing, "both") for node in same)), class_="fold same", data_same=True,
                   open=len(same) <= OPEN_UP_TO) if same else None
    body = el(
        "section", el("h2", "Placement map"), el("p", f"{drawing.totals()}." if whole else ONLY_THE_PLAN),
        _changed(touched, drawing, whole=whole), _legend(drawing) if picture.nodes else None, unchanged,
        omission_note(len(picture.nodes) - len(touched) - len(same), "node", "fleetctl map --all shows all of them"),
        id="map", class_="map wide" if drawing.is_wide else "map", aria_label="Placement map")
    return Part("map", "Placement map", body)


def _changed(nodes: Sequence[MapNode], drawing: Drawing, *, whole: bool) -> Markup:
    if not nodes:
        return el("p", "No node changes.", class_="soft")
    heads = ("node", "before", "after", "new here") if whole else ("node", "new", "replicas")
    head = el("div", (el("span", name) for name in heads), class_="heads", aria_hidden="true")
    sides = ("before", "after") if whole else ("after",)
    title = el("h3", f"{count_of(len(nodes), 'node')} with new replicas")
    rows = [el("ul", (_node(node, drawing, *sides, name_new=True) for node in some)) for some in _first(nodes) if some]
    more = fold(f"{count_of(len(nodes) - CHANGED_SHOWN, 'more node')} with new replicas", rows[1]) if rows[1:] else None
    return el("div", title, head, rows[0], more, class_="changed" if whole else "changed alone")


def _first(nodes: Sequence[MapNode]) -> tuple[list[MapNode], list[MapNode]]:
    """Return the nodes shown at once and the others: of many, those with a model that no node before has come first."""
    if len(nodes) <= CHANGED_SHOWN:
        return [*nodes], []
    seen: set[str | None] = set()
    first, others = list[MapNode](), list[MapNode]()
    for node in nodes:
        new = {piece.model for card in node.cards for piece in card.pieces if piece.holder == "new"}
        new |= {one.model for one in node.beside if one.holder == "new"}
        (others if new <= seen else first).append(node)
        seen |= new
    ordered = first + others
    return ordered[:CHANGED_SHOWN], ordered[CHANGED_SHOWN:]


def _legend(drawing: Drawing) -> Markup:
    """Return the letters of the models and the signs; the script turns the link of each model into a filter."""
    entries, changing = [], {entry.model for entry in drawing.legend if entry.new}
    lines = sorted(drawing.entries.items(), key=lambda line: line[0][0] not in changing)
    for (model, variant), entry in lines:  # what changes comes first, as on the map
        color = f"m{drawing.numbers[model]}"
        sign = el("span", drawing.codes[model, variant],
                  class_=f"cell {color}{'' if entry.live or entry.new else ' foreign'}")
        name = el("a", model, href="#map", class_="key", data_model=color)
        entries.append(el("li", sign, el("span", name, as_variant(variant), " ",
                                         el("span", counts_of(entry), class_="soft"))))
    rest, others = entries[LEGEND_SHOWN:], {model for (model, _), _ in lines[LEGEND_SHOWN:]}
    more = fold(count_of(len(others), "more model"), el("ul", rest)) if rest else None
    signs = [(SIGNS[state], "free dirty" if state == "dirty" else state, MEANINGS[state]) for state in drawing.signs()]
    shown = el("ul", (el("li", el("span", sign, class_=f"cell {classes}"), el("span", words))
                      for sign, classes, words in (*signs, (FREE, "free", "free"))), class_="signs")
    return el("div", el("ul", entries[:LEGEND_SHOWN]), more, shown, class_="legend")


def _node(node: MapNode, drawing: Drawing, *sides: str, name_new: bool = False) -> Markup:
    """Return a node with its cards before, after, or both; `name_new` lists its new replicas."""
    row = drawing.row(node)
    about = el("div", el("span", node.name, class_="key"), " ", el("span", node.hardware, class_="soft"), " ",
               el("span", row.state, class_="state warn") if row.state else None, class_="about-node", title=row.title)
    strips = []
    for side in sides:
        shown = drawing.row(before(node)) if side == "before" else row
        chips = [el("span", MARKS.get(one.holder, "") + drawing.code(one), data_r=one.replica,
                    class_=f"cell {_classes(drawing, one)}",
                    title=f"without a card: {one.replica}{as_variant(one.variant)} ({one.holder}){warm_text(one)}")
                 for one in shown.node.beside]
        beside = el("span", el("span", "no card", class_="soft"), chips, class_="beside") if chips else None
        strips.append(el("div", (_cell(cell, drawing) for cell in shown.cells), beside, class_="strip", role="group",
                         aria_label="before and after" if side == "both" else side, data_side=side))
    held = [piece.model for card in node.cards for piece in card.pieces] + [one.model for one in node.beside]
    holds = " ".join(f"m{drawing.numbers[model]}" for model in dict.fromkeys(held) if model in drawing.numbers)
    return el("li", about, strips, _new_replicas(node) if name_new else None, class_="node", data_node=node.name,
              data_holds=holds or None)  # for the filter


def _cell(cell: Cell, drawing: Drawing) -> Markup:
    if cell.dead:
        return el("span", cell.label, class_="cell dead", title=cell.title)
    label, pieces = cell.label or FREE, cell.card.pieces
    marks = f"cell{' dirty' if cell.card.dirty else ''}{' long' if len(label) > SHORT else ''}"
    if len(pieces) == 1 and pieces[0].share == SHARE:
        return el("span", label, class_=f"{marks} {_classes(drawing, pieces[0])}", data_r=pieces[0].replica,
                  title=cell.title)
    parts = [el("i", class_=f"{_classes(drawing, piece)} s{piece.share}", data_r=piece.replica) for piece in pieces]
    return el("span", parts, el("b", label), title=cell.title, class_=f"{marks} {'part' if parts else 'free'}")


def _classes(drawing: Drawing, piece: Piece | Beside) -> str:
    """Return the classes of a piece, or of a member without a card: those of its model and of its holder."""
    number = drawing.numbers.get(piece.model or "")
    return piece.holder if number is None else f"m{number} {piece.holder}"


def _new_replicas(node: MapNode) -> Markup:
    """Return the new replicas of a node, grouped by model and variant: `+ org/a/2-5 as a100`."""
    held: list[Piece | Beside] = [piece for card in node.cards for piece in card.pieces]
    new = grouped((one.variant, one.replica) for one in [*held, *node.beside] if one.holder == "new" and one.replica)
    lines = sorted(f"{line}{as_variant(variant)}" for variant, names in new.items() for line in replica_ranges(names))
    more = len(lines) - NAMED
    return el("div", (el("div", f"+ {line}", class_="key") for line in lines[:NAMED]),
              el("div", f"and {count_of(more, 'more model')}") if more > 0 else None, class_="new-replicas")


def map_rules(picture: PlacementMap) -> str:
    """Return the style rules of a map."""
    shares = {piece.share for node in picture.nodes for card in node.cards for piece in card.pieces}
    return "".join([
        *(f".m{number}{{--m:{color_of(number)}}}" for number in range(len(picture.legend))),
        *(f".s{share}{{height:{share / 100:g}%}}" for share in sorted(shares - {SHARE}))])


def is_touched(node: MapNode) -> bool:
    """Return whether the plan would create a replica on a node."""
    return any(piece.holder == "new" for card in node.cards for piece in card.pieces) or any(
        member.holder == "new" for member in node.beside)


def before(node: MapNode) -> MapNode:
    """Return a node as it is now, without the replicas the plan would create."""
    cards = [card.model_copy(update={
        "pieces": [piece for piece in card.pieces if piece.holder != "new"],
        "free_share": card.free_share + sum(piece.share for piece in card.pieces if piece.holder == "new"),
    }) for card in node.cards]
    return node.model_copy(update={"cards": cards, "beside": [one for one in node.beside if one.holder != "new"]})


def planned_alone(plan: Plan) -> PlacementMap:
    """Return a map of the nodes that a plan places on, with only the replicas it would create.

    For a saved plan, which contains neither the running replicas nor the number of cards of a node.
    """
    by_node = grouped((member.node_id, (action, member)) for action in plan.all_starts for member in action.members)
    nodes = [_planned_node(node_id, planned) for node_id, planned in by_node.items()]
    new = Counter(action.model for action in plan.all_starts)
    of_each = grouped((action.model, action.variant) for action in plan.all_starts if action.variant)
    legend = [LegendEntry(model=model, new=count, variants=[
        LegendVariant(name=name, new=number) for name, number in Counter(of_each.get(model, ())).items()])
        for model, count in new.most_common()]
    return PlacementMap(fleet=plan.fleet.name, inventory=plan.inventory, nodes=sorted(nodes, key=lambda n: n.name),
                        legend=legend)


def _planned_node(node_id: str, planned: list[tuple[Action, ActionMember]]) -> MapNode:
    cards: list[list[Piece]] = []
    for action, member in planned:
        whole, part = divmod(member.gpus, SHARE)
        for share in [SHARE] * whole + ([part] if part else []):
            piece = Piece(holder="new", share=share, model=action.model, replica=action.id, variant=action.variant,
                          certain=False)
            # on the first card with room, as Ray does; else on a new card
            card = next((pieces for pieces in cards if sum(other.share for other in pieces) + share <= SHARE), None)
            if card is None:
                cards.append([piece])
            else:
                card.append(piece)
    beside = [Beside(holder="new", model=action.model, replica=action.id, variant=action.variant)
              for action, member in planned if not member.gpus]
    gpus = sum(member.gpus for _, member in planned)
    return MapNode(
        id=node_id, name=planned[0][1].node, hardware=f"{amount_of(gpus, 'GPU')} planned", state="ALIVE", beside=beside,
        cards=[MapCard(index=index, free_share=SHARE - sum(piece.share for piece in pieces), pieces=pieces)
               for index, pieces in enumerate(cards)])
