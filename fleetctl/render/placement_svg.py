"""The placement map as one self-contained SVG: no script, no font, no network; light and dark by the reader's setting.

Text from a fleet or a cluster is escaped twice over: what a reader could not see is written out, and what XML would
obey is quoted. Every card is one `<g class="card">` with a title that says in words what its colours say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from fleetctl.documents.placement_map import MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.quantity import SHARE
from fleetctl.render.map_signs import DIRTY, MEANINGS, NEW, code_of, letters, node_words, totals
from fleetctl.render.map_words import card_words, node_title
from fleetctl.render.placement_map import counts_of
from fleetctl.render.svg_style import STYLE, color_of
from fleetctl.render.visible import visible
from fleetctl.render.words import asked_of

CELL, GAP, LINE, MARGIN = 26, 4, 32, 16
CARDS_PER_LINE = 16
LETTER = 7.3
"""Width of one character of the 12 px monospace type, in px."""

LONGEST = 48
"""Names longer than this are cut in the picture; the title of the row has all of it."""


@dataclass(frozen=True, slots=True)
class _Ink:
    """Letters and colours by model."""

    codes: Mapping[str, str]
    colors: Mapping[str, str]

    @classmethod
    def of(cls, answer: PlacementMap) -> _Ink:
        colors = {entry.model: color_of(number) for number, entry in enumerate(answer.legend)}
        return cls(letters(answer.legend), colors)


def render_placement_svg(answer: PlacementMap) -> str:
    """Return the picture as text, with a line end."""
    return "\n".join(_svg(answer)) + "\n"


def _svg(answer: PlacementMap) -> Iterator[str]:
    ink = _Ink.of(answer)
    left = MARGIN + round(LETTER * max([len(_label(node)) for node in answer.nodes] + [12])) + 12
    heights = [LINE * max(1, -(-len(node.cards) // CARDS_PER_LINE)) for node in answer.nodes]
    most = max([min(CARDS_PER_LINE, len(node.cards)) for node in answer.nodes] + [8])
    top = 64
    legend_top = top + sum(heights) + 24
    lines = _legend_lines(answer)
    longest = max([len(text) for _, text in lines] + [len(totals(answer)), len(_about(answer))])
    width = max(left + most * (CELL + GAP) + MARGIN, round(longest * LETTER) + 60)
    height = legend_top + 22 * len(lines) + MARGIN
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc">')
    yield f'<title id="title">{_safe(_about(answer))}</title>'
    yield f'<desc id="desc">{_safe(_description(answer))}</desc>'
    yield f"<style>{STYLE}</style>"
    yield ('<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
           '<rect class="stripe" width="2" height="6"/></pattern></defs>')
    yield f'<rect class="page" width="{width}" height="{height}"/>'
    yield f'<text class="head" x="{MARGIN}" y="26">{_safe(_about(answer))}</text>'
    yield f'<text class="small" x="{MARGIN}" y="46">{_safe(totals(answer))}</text>'
    y = top
    for node, row_height in zip(answer.nodes, heights, strict=True):
        yield from _row(node, y, left, ink)
        y += row_height
    yield from _legend(lines, legend_top)
    yield "</svg>"


def _about(answer: PlacementMap) -> str:
    return f"Placement map: {asked_of(answer.fleet, answer.inventory)}"


def _description(answer: PlacementMap) -> str:
    models = "; ".join(f"{entry.model}: {counts_of(entry)}" for entry in answer.legend)
    return f"{totals(answer)}. A row per node, a cell per card. {models}"


def _label(node: MapNode) -> str:
    words = node_words(node)
    text = f"{visible(node.name)} {visible(node.hardware)}" + (f" ({words})" if words else "")
    return text if len(text) <= LONGEST else f"{text[:LONGEST - 2]}.."


def _row(node: MapNode, y: int, left: int, ink: _Ink) -> Iterator[str]:
    state = "node" if node.state == "ALIVE" and not node.cordoned_by else "node closed"
    yield f'<g class="{state}"><title>{_safe(node_title(node))}</title>'
    yield f'<text class="name" x="{MARGIN}" y="{y + 18}">{_safe(_label(node))}</text>'
    for number, card in enumerate(node.cards):
        x = left + number % CARDS_PER_LINE * (CELL + GAP)
        yield from _card(node, card, x, y + number // CARDS_PER_LINE * LINE, ink)
    yield "</g>"


def _card(node: MapNode, card: MapCard, x: int, y: int, ink: _Ink) -> Iterator[str]:
    title = f"{node.name} {card_words(node, card)}"
    yield f'<g class="card"><title>{_safe(title)}</title>'
    classes = "cell dirty" if card.dirty else "cell"
    yield f'<rect class="{classes}" x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="2"/>'
    if node.state == "DEAD":
        yield f'<path class="cross" d="M{x + 6} {y + 6}l14 14m0 -14l-14 14"/></g>'
        return
    bottom = float(y + CELL)
    for piece in card.pieces:
        tall = CELL * piece.share / SHARE
        bottom -= tall
        yield from _piece(piece, x, bottom, tall, ink)
    yield f'<text class="code" x="{x + CELL // 2}" y="{y + 17}">{_safe(_signs(card, ink.codes))}</text></g>'


def _piece(piece: Piece, x: int, y: float, tall: float, ink: _Ink) -> Iterator[str]:
    place = f'x="{x}" y="{y:.2f}" width="{CELL}" height="{tall:.2f}"'
    if piece.holder in ("unknown", "foreign") or piece.model is None:
        yield f'<rect class="piece {piece.holder}" {place}/>'
    else:
        yield f'<rect class="piece {piece.holder}" {place} fill="{ink.colors[piece.model]}"/>'
    if piece.holder in ("unknown", "new"):
        yield f'<rect class="hatched" {place}/>'


def _signs(card: MapCard, codes: Mapping[str, str]) -> str:
    """Return the letters on a card: at most two models, and a mark for what is new or dirty."""
    models = list(dict.fromkeys(code_of(piece.model, codes) for piece in card.pieces))
    mark = DIRTY if card.dirty else NEW if any(piece.holder == "new" for piece in card.pieces) else ""
    return mark + "".join(models[:2]) if len(models) <= 2 else f"{mark}{models[0]}*"


def _legend_lines(answer: PlacementMap) -> list[tuple[str, str]]:
    """Return (colour, text) pairs; a colour that begins with a dot is a class."""
    ink = _Ink.of(answer)
    models = [(ink.colors[entry.model] if entry.live or entry.new else ".foreign",
               f"{ink.codes[entry.model]}  {visible(entry.model)}: {counts_of(entry)}") for entry in answer.legend]
    return [*models, (".new", f"+  {MEANINGS['+']}"), (".foreign", f"   {MEANINGS['~']}"),
            (".unknown", f"?  {MEANINGS['?']}"), (".dirty", f"!  {MEANINGS['!']}")]


def _legend(lines: Sequence[tuple[str, str]], top: int) -> Iterator[str]:
    for number, (color, text) in enumerate(lines):
        y = top + 22 * number
        place = f'x="{MARGIN}" y="{y}" width="14" height="14" rx="3"'
        if color.startswith("."):
            yield f'<rect class="swatch {color[1:]}" {place}/>'
            if color in (".new", ".unknown"):
                yield f'<rect class="hatched" {place}/>'
        else:
            yield f'<rect class="swatch" {place} fill="{color}"/>'
        yield f'<text class="small" x="{MARGIN + 22}" y="{y + 12}">{_safe(text)}</text>'


def _safe(text: str) -> str:
    return escape(visible(text), {'"': "&quot;"})
