"""The placement map of a page: the nodes a plan changes, before and after; then the others; and the map's style rules.

A node is its name and a small box per card. A card with a single holder is one element, as a large fleet has thousands
of cards. The title of a box says in words what its letters say, so it can be read without a script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fleetctl.documents.answers import Beside, LegendEntry, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.plan import Action, ActionMember, Plan
from fleetctl.documents.quantity import SHARE, amount_of, count_of, grouped
from fleetctl.render import map_legend
from fleetctl.render.map_legend import Legend
from fleetctl.render.page.markup import Markup, el
from fleetctl.render.page.tables import Part, fold, omission_note
from fleetctl.render.place_text import replica_ranges

NODES_SHOWN = 2_000
"""The most nodes drawn, changed nodes first; the page says how many are omitted."""

OPEN_UP_TO = 60
"""The list of unchanged nodes is folded if it is longer than this."""

LEGEND_SHOWN = 24
ONLY_THE_PLAN = ("Made from the plan alone: shows only the nodes it places on, and only their new replicas. "
                 "With an inventory, fleetctl draws the whole fleet before and after.")
DEAD, FREE = "x", "·"
SHORT = 2
"""Longer labels have smaller letters."""
NAMED = 4
"""The most models with new replicas named beside a node."""


def map_part(picture: PlacementMap, *, whole: bool) -> Part:
    """Return the map; `whole` = the picture has every node and the replicas that run now."""
    legend = Legend.of(picture)
    touched = [node for node in picture.nodes if is_touched(node)][:NODES_SHOWN]
    same = [node for node in picture.nodes if not is_touched(node)][:NODES_SHOWN - len(touched)]
    note = f"{map_legend.totals(picture)}." if whole else ONLY_THE_PLAN
    long = " wide" if any(len(code) > 1 for code in legend.codes.values()) else ""
    body = el(
        "section", el("h2", "Placement map"), el("p", note), _legend(picture, legend),
        _changed(touched, legend, whole=whole), _same(same, legend),
        omission_note(len(picture.nodes) - len(touched) - len(same), "node", "fleetctl map --all shows all of them"),
        id="map", class_=f"map{long}", aria_label="Placement map")
    return Part("map", "Placement map", body)


def _changed(nodes: Sequence[MapNode], legend: Legend, *, whole: bool) -> Markup:
    if not nodes:
        return el("p", "No node changes.", class_="soft")
    heads = ("node", "before", "after", "new here") if whole else ("node", "new", "replicas")
    head = el("div", (el("span", name) for name in heads), class_="heads", aria_hidden="true")
    sides = ("before", "after") if whole else ("after",)
    title = el("h3", f"{count_of(len(nodes), 'node')} with new replicas")
    return el("div", title, head, el("ul", (_drawn(node, legend, *sides, name_new=True) for node in nodes)),
              class_="changed" if whole else "changed alone")


def _same(nodes: Sequence[MapNode], legend: Legend) -> Markup | None:
    if not nodes:
        return None
    summary = el("summary", f"{count_of(len(nodes), 'node')} unchanged")
    return el("details", summary, el("ul", (_drawn(node, legend, "both") for node in nodes)), class_="fold same",
              data_same=True, open=len(nodes) <= OPEN_UP_TO)


def _legend(picture: PlacementMap, legend: Legend) -> Markup:
    """Return the letters of the models and the signs; the script turns the link of each model into a filter."""
    entries = [_entry(entry, legend) for entry in picture.legend]
    rest = entries[LEGEND_SHOWN:]
    more = fold(count_of(len(rest), "more model"), el("ul", rest)) if rest else None
    signs = el("ul", (el("li", el("span", sign, class_=f"cell {classes}"), el("span", words))
                      for sign, classes, words in _signs(picture)), class_="signs")
    return el("div", el("ul", entries[:LEGEND_SHOWN]), more, signs, class_="legend")


def _entry(entry: LegendEntry, legend: Legend) -> Markup:
    foreign = "" if entry.live or entry.new else " foreign"
    sign = el("span", legend.codes[entry.model], class_=f"cell {model_class(entry.model, legend)}{foreign}")
    name = el("a", entry.model, href="#map", class_="key", data_model=model_class(entry.model, legend))
    return el("li", sign, el("span", name, " ", el("span", map_legend.counts_of(entry), class_="soft")))


def _signs(picture: PlacementMap) -> Iterator[tuple[str, str, str]]:
    for sign, meaning in map_legend.signs_used(picture):
        yield sign, "free dirty" if meaning == "dirty" else meaning, map_legend.MEANINGS[sign]
    if any(node.state == "DEAD" for node in picture.nodes):
        yield DEAD, "dead", "its node is dead"
    yield FREE, "free", "free"


def _drawn(node: MapNode, legend: Legend, *sides: str, name_new: bool = False) -> Markup:
    """Return a node with its cards before, after, or both; `name_new` lists its new replicas."""
    strips = (_strip(before(node) if side == "before" else node, side, legend) for side in sides)
    return el("li", _name(node), strips, _new_replicas(node) if name_new else None, class_="node", data_node=node.name,
              data_holds=_holds(node, legend))


def _name(node: MapNode) -> Markup:
    words = map_legend.node_state(node)
    state = el("span", words, class_="state warn") if words else None
    return el("div", el("span", node.name, class_="key"), " ", el("span", node.hardware, class_="soft"), " ", state,
              class_="about-node", title=map_legend.node_title(node))


def _strip(node: MapNode, side: str, legend: Legend) -> Markup:
    words = {"before": "before", "after": "after", "both": "before and after"}[side]
    return el("div", (_cell(node, card, legend) for card in node.cards), _beside(node.beside, legend), class_="strip",
              role="group", aria_label=words, data_side=side)


def _cell(node: MapNode, card: MapCard, legend: Legend) -> Markup:
    title, label = map_legend.card_title(node, card), legend.label(card) or FREE
    marks = " ".join(["cell", *(["dirty"] if card.dirty else []), *(["long"] if len(label) > SHORT else [])])
    if node.state == "DEAD":
        return el("span", DEAD, class_="cell dead", title=title)
    if len(card.pieces) == 1 and card.pieces[0].share == SHARE:
        (piece,) = card.pieces
        return el("span", label, class_=f"{marks} {piece_class(piece, legend)}", data_r=piece.replica, title=title)
    pieces = [el("i", class_=f"{piece_class(piece, legend)} s{piece.share}", data_r=piece.replica)
              for piece in card.pieces]
    return el("span", pieces, el("b", label), title=title, class_=f"{marks} {'part' if pieces else 'free'}")


def _beside(members: Iterable[Beside], legend: Legend) -> Markup | None:
    chips = [el("span", map_legend.MARKS[one.holder] + legend.code(one.model), data_r=one.replica,
                class_=f"cell {model_class(one.model, legend)} {one.holder}",
                title=f"without a card: {one.replica} ({one.holder}){map_legend.warm_text(one)}") for one in members]
    return el("span", el("span", "no card", class_="soft"), chips, class_="beside") if chips else None


def _new_replicas(node: MapNode) -> Markup:
    """Return the new replicas of a node, grouped by model: `+ org/a/2-5`."""
    new = [piece.replica for card in node.cards for piece in card.pieces if piece.holder == "new"]
    new += [one.replica for one in node.beside if one.holder == "new"]
    lines = sorted(replica_ranges(replica for replica in new if replica))
    more = len(lines) - NAMED
    return el("div", (el("div", f"+ {line}", class_="key") for line in lines[:NAMED]),
              el("div", f"and {count_of(more, 'more model')}") if more > 0 else None, class_="new-replicas")


def _holds(node: MapNode, legend: Legend) -> str | None:
    """Return the classes of the models on a node, for the filter."""
    models = [piece.model for card in node.cards for piece in card.pieces] + [one.model for one in node.beside]
    return " ".join(model_class(model, legend) for model in dict.fromkeys(models)).strip() or None


def model_class(model: str | None, legend: Legend) -> str:
    """Return the class of a model's color; "" if it has none."""
    number = legend.numbers.get(model or "")
    return "" if number is None else f"m{number}"


def piece_class(piece: Piece, legend: Legend) -> str:
    """Return the classes of a piece: its model's color and its holder."""
    return f"{model_class(piece.model, legend)} {piece.holder}".strip()


def map_rules(picture: PlacementMap) -> str:
    """Return the style rules of a map."""
    shares = {piece.share for node in picture.nodes for card in node.cards for piece in card.pieces}
    return "".join([
        *(f".m{number}{{--m:{map_legend.color_of(number)}}}" for number in range(len(picture.legend))),
        *(f".s{share}{{height:{share / 100:g}%}}" for share in sorted(shares - {SHARE}))])


def is_touched(node: MapNode) -> bool:
    """Return whether the plan would create a replica on a node."""
    return any(piece.holder == "new" for card in node.cards for piece in card.pieces) or any(
        member.holder == "new" for member in node.beside)


def before(node: MapNode) -> MapNode:
    """Return a node as it is now, without the replicas the plan would create."""
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
    """Return a map of the nodes that a plan places on, with only the replicas it would create.

    For a saved plan, which contains neither the running replicas nor the number of cards of a node.
    """
    by_node = grouped((member.node_id, (action, member)) for action in plan.actions for member in action.members)
    nodes = [_planned_node(node_id, planned) for node_id, planned in by_node.items()]
    new = Counter(action.model for action in plan.actions)
    return PlacementMap(fleet=plan.fleet.name, inventory=plan.inventory, nodes=sorted(nodes, key=lambda n: n.name),
                        legend=[LegendEntry(model=model, new=count) for model, count in new.most_common()])


def _planned_node(node_id: str, planned: list[tuple[Action, ActionMember]]) -> MapNode:
    cards: list[list[Piece]] = []
    for action, member in planned:
        whole, part = divmod(member.gpus, SHARE)
        cards += [[_piece(action, SHARE)] for _ in range(whole)]
        if part:
            _add_share(cards, _piece(action, part))
    beside = [Beside(holder="new", model=action.model, replica=action.id) for action, member in planned
              if not member.gpus]
    gpus = sum(member.gpus for _, member in planned)
    return MapNode(
        id=node_id, name=planned[0][1].node, hardware=f"{amount_of(gpus, 'GPU')} planned", state="ALIVE", beside=beside,
        cards=[MapCard(index=index, free_share=SHARE - sum(piece.share for piece in pieces), pieces=pieces)
               for index, pieces in enumerate(cards)])


def _piece(action: Action, share: int) -> Piece:
    return Piece(holder="new", share=share, model=action.model, replica=action.id, certain=False)


def _add_share(cards: list[list[Piece]], piece: Piece) -> None:
    """Put a share on the first card with room, as Ray does; else on a new card."""
    for pieces in cards:
        if sum(other.share for other in pieces) + piece.share <= SHARE:
            pieces.append(piece)
            return
    cards.append([piece])
