"""The placement map as one self-contained SVG: no script, no font, no network; light or dark by the reader's setting.

Text from a fleet or a cluster is escaped twice: invisible characters are spelled out, XML markup is quoted. Every card
is one `<g class="card">` with a title that says in words what its colors show.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from fleetctl.documents.answers import MapCard, MapNode, PlacementMap
from fleetctl.documents.quantity import SHARE
from fleetctl.render.map_legend import MEANINGS, Legend, card_title, color_of, counts_of, node_state, node_title, totals
from fleetctl.render.place_text import scope_text
from fleetctl.render.visible import visible

CELL, GAP, LINE, MARGIN = 26, 4, 32, 16
CARDS_PER_LINE = 16
LETTER, HEAD_LETTER = 7.3, 8.6
"""Approximate width in px of one character: of the 12 px monospace text, and of the bold 14 px heading."""

LONGEST = 48
"""Longer labels are cut in the picture; the title of the row is complete."""


# no CSS variables: Inkscape and librsvg do not support them and draw everything black
def _themed(page: str, text: str, soft: str, line: str, gray: str, alarm: str) -> str:
    return (
        f".page{{fill:{page}}}text{{fill:{text}}}.small,.closed .name{{fill:{soft}}}.code{{stroke:{page}}}"
        f".cell,.cross,.swatch{{stroke:{line}}}.piece{{stroke:{page}}}.stripe{{fill:{page}}}"
        f".foreign,.unknown{{fill:{gray}}}.dirty{{stroke:{alarm}}}"
    )


STYLE = (
    "text{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px}"
    ".head{font-size:14px;font-weight:600}"
    ".code{font-size:11px;font-weight:600;text-anchor:middle;paint-order:stroke;stroke-width:2px}"
    ".cell,.swatch.dirty{fill:none}.swatch.new{fill:#6ea8fe}.dirty{stroke-width:2.5px}.piece{stroke-width:.5px}"
    ".stripe{opacity:.55}.hatched{fill:url(#hatch)}.cross{stroke-width:2px;fill:none}.closed .card{opacity:.55}"
    + _themed("#fff", "#1f2328", "#59636e", "#8c959f", "#c8ced4", "#cf222e")
    + "@media (prefers-color-scheme:dark){"
    + _themed("#0d1117", "#e6edf3", "#9198a1", "#6e7681", "#7d8590", "#ff7b72")
    + "}"
)


def render_placement_svg(answer: PlacementMap) -> str:
    """Return the SVG document."""
    return "\n".join(_svg(answer)) + "\n"


def _svg(answer: PlacementMap) -> Iterator[str]:
    legend = Legend.of(answer)
    left = MARGIN + round(LETTER * max([len(_label(node)) for node in answer.nodes] + [12])) + 12
    heights = [LINE * max(1, -(-len(node.cards) // CARDS_PER_LINE)) for node in answer.nodes]
    most = max([min(CARDS_PER_LINE, len(node.cards)) for node in answer.nodes] + [8])
    top = 64
    legend_top = top + sum(heights) + 24
    lines = _legend_lines(answer, legend)
    longest = max([len(text) for _, text in lines] + [len(totals(answer))])
    heading = f"Placement map: {scope_text(answer.fleet, answer.inventory)}"
    width = max(left + most * (CELL + GAP) + MARGIN, round(longest * LETTER) + 60,
                round(len(visible(heading)) * HEAD_LETTER) + 2 * MARGIN)
    height = legend_top + 22 * len(lines) + MARGIN
    models = "; ".join(f"{entry.model}: {counts_of(entry)}" for entry in answer.legend)
    description = f"{totals(answer)}. A row per node, a cell per card. {models}"
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc">')
    yield f'<title id="title">{_safe(heading)}</title>'
    yield f'<desc id="desc">{_safe(description)}</desc>'
    yield f"<style>{STYLE}</style>"
    yield ('<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
           '<rect class="stripe" width="2" height="6"/></pattern></defs>')
    yield f'<rect class="page" width="{width}" height="{height}"/>'
    yield f'<text class="head" x="{MARGIN}" y="26">{_safe(heading)}</text>'
    yield f'<text class="small" x="{MARGIN}" y="46">{_safe(totals(answer))}</text>'
    y = top
    for node, row_height in zip(answer.nodes, heights, strict=True):
        yield from _row(node, y, left, legend)
        y += row_height
    for number, (color, text) in enumerate(lines):
        yield from _legend_line(color, text, legend_top + 22 * number)
    yield "</svg>"


def _label(node: MapNode) -> str:
    state = node_state(node)
    text = f"{visible(node.name)} {visible(node.hardware)}" + (f" ({state})" if state else "")
    return text if len(text) <= LONGEST else f"{text[:LONGEST - 2]}.."


def _row(node: MapNode, y: int, left: int, legend: Legend) -> Iterator[str]:
    classes = "node" if node.state == "ALIVE" and not node.cordoned_by else "node closed"
    yield f'<g class="{classes}"><title>{_safe(node_title(node))}</title>'
    yield f'<text class="name" x="{MARGIN}" y="{y + 18}">{_safe(_label(node))}</text>'
    for number, card in enumerate(node.cards):
        x = left + number % CARDS_PER_LINE * (CELL + GAP)
        yield from _card(node, card, x, y + number // CARDS_PER_LINE * LINE, legend)
    yield "</g>"


def _card(node: MapNode, card: MapCard, x: int, y: int, legend: Legend) -> Iterator[str]:
    title = f"{node.name} {card_title(node, card)}"
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
        place = f'x="{x}" y="{bottom:.2f}" width="{CELL}" height="{tall:.2f}"'
        if piece.holder in ("unknown", "foreign") or piece.model is None:
            yield f'<rect class="piece {piece.holder}" {place}/>'
        else:
            yield f'<rect class="piece {piece.holder}" {place} fill="{color_of(legend.numbers[piece.model])}"/>'
        if piece.holder in ("unknown", "new"):
            yield f'<rect class="hatched" {place}/>'
    yield f'<text class="code" x="{x + CELL // 2}" y="{y + 17}">{_safe(legend.label(card))}</text></g>'


def _legend_lines(answer: PlacementMap, legend: Legend) -> list[tuple[str, str]]:
    """Return (color, text) pairs; a color that begins with a dot is a CSS class."""
    models = [(color_of(legend.numbers[entry.model]) if entry.live or entry.new else ".foreign",
               f"{legend.codes[entry.model]}  {visible(entry.model)}: {counts_of(entry)}") for entry in answer.legend]
    return [*models, (".new", f"+  {MEANINGS['+']}"), (".foreign", f"~  {MEANINGS['~']}"),
            (".unknown", f"?  {MEANINGS['?']}"), (".dirty", f"!  {MEANINGS['!']}")]


def _legend_line(color: str, text: str, y: int) -> Iterator[str]:
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
