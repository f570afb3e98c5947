"""The placement map: its legend, the map in a terminal, and as one self-contained SVG; the page has the same legend.

The legend has a letter per model, a sign per state, and a card in words. Letters and signs carry all the information;
colors only repeat it. In a terminal a node is a row and a card a cell of a few characters: a mark, up to two letters
for models, and how full the card is. In a large fleet equal nodes share a row. The SVG has no script, no font, no
network; light or dark by the reader's setting. Text in it is escaped twice: invisible characters are spelled out, XML
markup is quoted. Every card is one `<g class="card">` with a title that says in words what its colors show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from string import ascii_uppercase

from rich.console import Console
from rich.text import Text

from fleetctl.documents.answers import Beside, Holder, LegendEntry, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.quantity import SHARE, count_of, format_bytes, format_share, grouped
from fleetctl.render.place_text import scope_text
from fleetctl.render.visible import print_trimmed, visible

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


WIDEST_NAME = 36
BLOCKS = "▁▂▃▄▅▆▇█"
PALETTE = (
    "color(75)", "color(215)", "color(114)", "color(211)", "color(222)", "color(147)", "color(80)", "color(180)",
    "color(150)", "color(174)", "color(110)", "color(187)",
)
"""Light colors of the 256-color palette, neighbors as different as possible; text on them is black."""
GRAY = "black on color(250)"
DEAD = "-"


def render_placement_map(answer: PlacementMap, console: Console, *, rows: int | None) -> None:
    """Print the map in at most `rows` rows; None = every node in its own row.

    If there are more nodes than rows, nodes that look the same share a row.
    """
    print_trimmed(Text(visible(f"Map: {scope_text(answer.fleet, answer.inventory)}")), console)
    console.print()
    cells = Cells(Legend.of(answer), blocks="utf" in console.encoding.lower())
    shared = rows is not None and len(answer.nodes) > rows
    groups = list(grouped((_appearance(node) if shared else (node.id,), node) for node in answer.nodes).values())
    shown = groups if rows is None else groups[:rows]
    for line in _lines(shown, cells, console.width):
        print_trimmed(line, console)
    omitted = sum(len(nodes) for nodes in groups[len(shown):])
    if omitted:
        print_trimmed(Text(f"and {omitted} more nodes (--all shows every node)", "dim"), console)
    console.print()
    for line in _legend(answer, cells, [node for node, *_ in shown] if omitted else answer.nodes):
        print_trimmed(line, console)
    print_trimmed(Text(totals(answer), "bold"), console)


def _appearance(node: MapNode) -> tuple[object, ...]:
    cards = tuple((card.free_share, card.dirty, tuple((p.holder, p.model, p.share) for p in card.pieces))
                  for card in node.cards)
    beside = tuple((one.holder, one.model, one.warm) for one in node.beside)
    return node.hardware, node_state(node), cards, beside


def _lines(rows: Sequence[Sequence[MapNode]], cells: Cells, width: int) -> Iterator[Text]:
    """Yield the lines of the rows; cards that do not fit on one line continue on the next, aligned."""
    heads = []
    for node, *others in rows:
        state = node_state(node)  # before the hardware: in a narrow terminal the end is cut off
        heads.append((visible(node.name) + (f" and {len(others)} more" if others else ""),
                      (f"{state} " if state else "") + visible(node.hardware)))
    name_width = min(WIDEST_NAME, max(4, width // 3), max((len(name) for name, _ in heads), default=0))
    kind_width = min(max(4, width // 4), max((len(kind) for _, kind in heads), default=0))
    indent = name_width + kind_width + 4
    per_line = max(1, (width - indent) // (cells.width + 1))
    for (node, *_), (name, kind) in zip(rows, heads, strict=True):
        drawn = [cells.cell(card, dead=node.state == "DEAD") for card in node.cards]
        chunks = [drawn[at:at + per_line] for at in range(0, len(drawn), per_line)] or [[]]
        for number, chunk in enumerate(chunks):
            head = Text(f"{_fit(name, name_width)}  {_fit(kind, kind_width)}  ") if number == 0 else Text(" " * indent)
            yield head + Text(" ").join(chunk)
        beside = cells.beside(node.beside)
        if beside:
            yield Text(" " * indent + f"no card: {beside}", overflow="fold")


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[:max(0, width - 2)]}.."


def _legend(answer: PlacementMap, cells: Cells, rows: Sequence[MapNode]) -> Iterator[Text]:
    """Yield a line for every model in the shown rows, the number of other models, and the signs."""
    drawn = {piece.model for node in rows for card in node.cards for piece in card.pieces}
    drawn |= {one.model for node in rows for one in node.beside}
    shown = [entry for entry in answer.legend if entry.model in drawn or len(rows) == len(answer.nodes)]
    for entry in shown:
        code = cells.legend.codes[entry.model].ljust(cells.code_width)
        counts = counts_of(entry)
        yield Text.assemble((code, cells.style_of(entry.model)), f" {visible(entry.model)}: {counts}")
    omitted = len(answer.legend) - len(shown)
    if omitted:
        yield Text(f"and {count_of(omitted, 'model')} not in these rows (--all shows every node)", "dim")
    meanings = "; ".join(f"{sign} {MEANINGS[sign]}" for sign, _ in signs_used(answer))
    if meanings:
        yield Text(meanings, "dim")


class Cells:
    """Draws cells with the letters and colors of a legend; `blocks` = the terminal can show block characters."""

    def __init__(self, legend: Legend, *, blocks: bool) -> None:
        self.legend = legend
        self.code_width = max(map(len, legend.codes.values()), default=1)
        self.blocks = blocks

    @property
    def width(self) -> int:
        """Columns of one cell: the mark, two codes (or one and `*`), the fill level."""
        return 2 + max(2, self.code_width + 1)

    def cell(self, card: MapCard, *, dead: bool) -> Text:
        """Return one card as `width` columns."""
        if dead:
            return Text(DEAD.center(self.width), "dim")
        pieces = sorted(card.pieces, key=lambda piece: (-piece.share, piece.model or "~"))
        holders = {piece.holder for piece in pieces}
        # the most severe mark: dirty, then new, then foreign
        text = Text(DIRTY, "bold red") if card.dirty else Text(NEW, "bold green") if "new" in holders else Text(
            FOREIGN if "foreign" in holders else " ", "dim")
        if not pieces:
            return text.append(("·" if self.blocks else ".").ljust(self.width - 1), "dim")
        for code, style in self._letters(pieces):
            text.append(code, style)
        text.append(" " * (self.width - 1 - len(text)))
        return text.append(self._fill(card))

    def beside(self, members: Sequence[Beside]) -> str:
        """Return the members without a card on a node: `A x2 +B C (WARM, 15Gi)`."""
        counts = Counter(
            f"{MARKS[one.holder]}{self.legend.code(one.model)}{warm_text(one)}" for one in members)
        return " ".join(name if number == 1 else f"{name} x{number}" for name, number in sorted(counts.items()))

    def style_of(self, model: str | None) -> str:
        """Return the color of a model; gray for anything that is not a model of this fleet."""
        number = self.legend.numbers.get(model or "")
        return GRAY if number is None else f"black on {PALETTE[number % len(PALETTE)]}"

    def _letters(self, pieces: Sequence[Piece]) -> list[tuple[str, str]]:
        """Return codes and styles for the two largest holders, or for the largest and `*` for the rest."""
        holders = list(dict.fromkeys((piece.model, piece.holder == "unknown") for piece in pieces))
        shown = [(UNKNOWN if unknown else self.legend.code(model), self.style_of(model)) for model, unknown in holders]
        if len(shown) == 1 or (len(shown) == 2 and self.code_width == 1):
            return shown
        return [shown[0], (OTHER, GRAY)]

    def _fill(self, card: MapCard) -> str:
        """Return the fill level of a card: a block in eighths, or a digit for tenths and `#` for a full card."""
        used = SHARE - card.free_share
        if not self.blocks:
            return "#" if used >= SHARE else str(used * 10 // SHARE)
        return BLOCKS[min(len(BLOCKS), max(1, -(-used * len(BLOCKS) // SHARE))) - 1]


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
    return escape(visible(text), quote=False).replace('"', "&quot;")
