"""The legend of the placement map, shared by the terminal, the SVG and the page: a letter per model, a sign per state,
and a card in words. Letters and signs carry all the information; colors only repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from string import ascii_uppercase

from fleetctl.documents.answers import Beside, Holder, LegendEntry, MapCard, MapNode, PlacementMap
from fleetctl.documents.quantity import SHARE, count_of, format_bytes, format_share

NEW, FOREIGN, UNKNOWN, DIRTY = "+", "~", "?", "!"
OTHER = "*"
"""For models beyond the last pair of letters, and for a third model on one card."""

MEANINGS = {
    NEW: "the plan would create it", FOREIGN: "not this fleet's", UNKNOWN: "granted to an unknown holder",
    DIRTY: "used beyond what is granted, so not offered",
}
MARKS: Mapping[Holder, str] = {"new": NEW, "foreign": FOREIGN, "live": "", "unknown": ""}
_PALETTE = (
    "#6ea8fe", "#f4a261", "#7bc47f", "#e87ea1", "#e9c46a", "#a99bf0", "#4fc3c7", "#c9a27e", "#a3c96b", "#d98880",
    "#8fb8de", "#d6cf8b",
)
_GOLDEN_ANGLE = 137.508


def warm_text(one: Beside) -> str:
    """Return the memory of a WARM replica as ` (WARM, 15Gi)`; "" for others."""
    return "" if one.warm is None else f" (WARM, {format_bytes(one.warm)})"


@dataclass(frozen=True, slots=True)
class Legend:
    """The letters of every model, and its number, which determines its color."""

    codes: Mapping[str, str]
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, picture: PlacementMap) -> Legend:
        """Return the legend of a map."""
        return cls(letters(picture.legend), {entry.model: number for number, entry in enumerate(picture.legend)})

    def code(self, model: str | None) -> str:
        """Return the letters of a model; `?` for an unknown holder."""
        return UNKNOWN if model is None else self.codes.get(model, OTHER)

    def label(self, card: MapCard) -> str:
        """Return the letters of at most two models, with marks for new, foreign and dirty; "" for a free card."""
        holders = {piece.holder for piece in card.pieces}
        marks = "".join(MARKS[holder] for holder in ("new", "foreign") if holder in holders)
        codes = list(dict.fromkeys(self.code(piece.model) for piece in card.pieces))
        shown = "".join(codes) if len(codes) <= 2 else f"{codes[0]}{OTHER}"
        return f"{DIRTY if card.dirty else ''}{marks}{shown}"


def letters(legend: list[LegendEntry]) -> dict[str, str]:
    """Return a code per model: one letter for up to 26 models, else two letters, then `*` for all the rest."""
    if len(legend) <= len(ascii_uppercase):
        return {entry.model: letter for entry, letter in zip(legend, ascii_uppercase, strict=False)}
    pairs = [first + second for first in ascii_uppercase for second in ascii_uppercase.lower()]
    codes = {entry.model: pair for entry, pair in zip(legend, pairs, strict=False)}
    return {entry.model: codes.get(entry.model, OTHER) for entry in legend}


def color_of(number: int) -> str:
    """Return the color of the model with a number in the legend: neighbors differ, and dark text is legible on it."""
    if number < len(_PALETTE):
        return _PALETTE[number]
    return f"hsl({number * _GOLDEN_ANGLE % 360:.0f},60%,{68 + number % 3 * 6}%)"


def signs_used(picture: PlacementMap) -> Iterator[tuple[str, str]]:
    """Yield the signs on the map, each with its meaning: new, foreign, unknown, dirty."""
    cards = [card for node in picture.nodes for card in node.cards]
    holders: set[str] = {piece.holder for card in cards for piece in card.pieces}
    holders |= {one.holder for node in picture.nodes for one in node.beside}
    yield from ((sign, holder) for sign, holder in ((NEW, "new"), (FOREIGN, "foreign"), (UNKNOWN, "unknown"))
                if holder in holders)
    if any(card.dirty for card in cards):
        yield DIRTY, "dirty"


def counts_of(entry: LegendEntry) -> str:
    """Return the numbers of live, new and foreign replicas of a model."""
    parts = [(entry.live, "live"), (entry.new, "new"), (entry.foreign, "not this fleet's")]
    return ", ".join(f"{number} {word}" for number, word in parts if number)


def totals(picture: PlacementMap) -> str:
    """Return one line for the nodes that are alive: their number, their cards, and how many of these are free."""
    alive = [node for node in picture.nodes if node.state == "ALIVE" and not node.new]
    cards = [card for node in alive for card in node.cards]
    free = sum(card.free_share for card in cards) / SHARE
    whole = sum(card.free_share == SHARE and not card.dirty for card in cards)
    new_replicas = sum(entry.new for entry in picture.legend)
    new_nodes = sum(node.new for node in picture.nodes)
    planned = f", {count_of(new_replicas, 'new replica')} shown" if new_replicas else ""
    planned += f", {count_of(new_nodes, 'new node')}" if new_nodes else ""
    return (f"{count_of(len(alive), 'node')} alive, {count_of(len(cards), 'card')}, "
            f"{free:g} free ({whole} of them whole){planned}")


def node_state(node: MapNode) -> str:
    """Return the unusual states of a node: new, dead, draining, cordoned; "" for none."""
    words = ["new"] if node.new else [] if node.state == "ALIVE" else [node.state.lower()]
    return ", ".join([*words, *(["cordoned"] if node.cordoned_by else [])])


def node_title(node: MapNode) -> str:
    """Return a node's hardware, its unusual states, and its replicas without a card."""
    state = node_state(node)
    beside = f"; without a card: {', '.join(one.replica for one in node.beside)}" if node.beside else ""
    cordon = f" by {node.cordoned_by}" if node.cordoned_by else ""
    return f"{node.name}, {node.hardware}" + (f", {state}{cordon}" if state else "") + beside


def card_title(node: MapNode, card: MapCard) -> str:
    """Return `card 3 H100, 80Gi; org/a/7 0.5 (live); 0.5 free`."""
    kind = f" {card.hardware}" if card.hardware else ""
    memory = f", {format_bytes(card.memory)}" if card.memory else ""
    parts = [f"card {card.index}{kind}{memory}"]
    for piece in card.pieces:
        share = "" if piece.share == SHARE else f" {format_share(piece.share)}"
        holder = {"foreign": MEANINGS[FOREIGN], "unknown": MEANINGS[UNKNOWN]}.get(piece.holder, piece.holder)
        holder += "" if piece.certain or piece.holder in ("new", "unknown") else ", card inferred"
        parts.append(f"{piece.replica or UNKNOWN}{share} ({holder})")
    if node.state == "DEAD":
        parts.append("its node is dead")
    elif card.free_share:
        parts.append("free" if card.free_share == SHARE else f"{format_share(card.free_share)} free")
    return "; ".join([*parts, *([f"dirty: {MEANINGS[DIRTY]}"] if card.dirty else [])])
