"""The placement map as it is drawn: a `Drawing` for every medium, and its writers for a terminal and for one SVG.

A drawing has a row per node, a cell per card, a letter per model, a sign per state, and a title in words for all of
them. Letters and signs carry all the information; colors only repeat it. A writer adds nothing but layout; the third
one, for the page, is in `page/plan_page.py`.

In a terminal a cell is a few characters: a sign, up to two letters for models, and how full the card is. In a large
fleet equal nodes share a row. The SVG has no script, no font, no network; light or dark by the reader's setting. Text
in it is escaped twice: invisible characters are spelled out, XML markup is quoted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from string import ascii_uppercase
from typing import Literal

from rich.console import Console
from rich.text import Text

from fleetctl.documents.answers import Beside, Holder, LegendEntry, LegendVariant, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.quantity import SHARE, count_of, format_bytes, format_share, grouped
from fleetctl.render.replica_text import scope_text
from fleetctl.render.visible import print_trimmed, visible

State = Literal["new", "foreign", "unknown", "dirty", "dead"]
SIGNS: dict[State, str] = {"new": "+", "foreign": "~", "unknown": "?", "dirty": "!", "dead": "x"}
MEANINGS: dict[State, str] = {
    "new": "the plan would create it", "foreign": "not this fleet's", "unknown": "granted to an unknown holder",
    "dirty": "used beyond what is granted, so not offered", "dead": "its node is dead",
}
MARKS: dict[Holder, str] = {"new": SIGNS["new"], "foreign": SIGNS["foreign"]}
"""The signs before the letters of a model."""
FREE = "·"
OTHER = "*"
"""For models beyond the last pair of letters, and for a third model on one card."""

_PALETTE = (
    "#6ea8fe", "#f4a261", "#7bc47f", "#e87ea1", "#e9c46a", "#a99bf0", "#4fc3c7", "#c9a27e", "#a3c96b", "#d98880",
    "#8fb8de", "#d6cf8b",
)
"""Light colors, neighbors as different as possible; text on them is black."""
_GOLDEN_ANGLE = 137.508


@dataclass(frozen=True, slots=True)
class Cell:
    """A card as it is drawn.

    `marks` are the signs before the letters, the most important first. `letters` = those of the two largest holders, or
    of the largest and `*` for the rest, each with the number of its model's color; None = gray.
    """

    card: MapCard
    dead: bool
    marks: str
    letters: tuple[tuple[str, int | None], ...]

    @property
    def label(self) -> str:
        """Signs and letters; "" for a free card."""
        return SIGNS["dead"] if self.dead else self.marks + "".join(code for code, _ in self.letters)

    @property
    def title(self) -> str:
        """The card in words: `card 3 H100, 80Gi; org/a/7 0.5 (live); 0.5 free`."""
        card = self.card
        kind = f" {card.hardware}" if card.hardware else ""
        parts = [f"card {card.index}{kind}{f', {format_bytes(card.memory)}' if card.memory else ''}"]
        for piece in card.pieces:
            share = "" if piece.share == SHARE else f" {format_share(piece.share)}"
            holder = MEANINGS[piece.holder] if piece.holder in ("foreign", "unknown") else piece.holder
            holder += "" if piece.certain or piece.holder in ("new", "unknown") else ", card inferred"
            parts.append(f"{piece.replica or SIGNS['unknown']}{as_variant(piece.variant)}{share} ({holder})")
        if self.dead:
            parts.append(MEANINGS["dead"])
        elif card.free_share:
            parts.append("free" if card.free_share == SHARE else f"{format_share(card.free_share)} free")
        return "; ".join([*parts, *([f"dirty: {MEANINGS['dirty']}"] if card.dirty else [])])


@dataclass(frozen=True, slots=True)
class Row:
    """A node as it is drawn; `state` = whatever is unusual: new, dead, draining, cordoned; "" for nothing."""

    node: MapNode
    state: str
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        """The node's hardware, its state, and its replicas without a card."""
        node = self.node
        cordon = f" by {node.cordoned_by}" if node.cordoned_by else ""
        names = ", ".join(f"{one.replica}{as_variant(one.variant)}" for one in node.beside)
        beside = f"; without a card: {names}" if names else ""
        return f"{node.name}, {node.hardware}" + (f", {self.state}{cordon}" if self.state else "") + beside


Key = tuple[str, str]
"""A model and the name of one of its variants; "" for a model without any."""


class Drawing:
    """A map as every medium draws it.

    `codes` = the letters of each model, or of each of its variants; `numbers` = the numbers of the models' colors,
    which variants share; `entries` = the lines of the legend.
    """

    def __init__(self, picture: PlacementMap) -> None:
        self.scope = scope_text(picture.fleet, picture.inventory)
        self.nodes = picture.nodes
        self.legend = picture.legend
        self.entries: dict[Key, LegendEntry | LegendVariant] = {
            key: counts for entry in picture.legend for key, counts in _lines_of(entry)}
        self.codes = letters([*self.entries])
        self.numbers = {entry.model: number for number, entry in enumerate(picture.legend)}
        self.is_wide = any(len(code) > 1 for code in self.codes.values())

    def code(self, held: Piece | Beside) -> str:
        """Return the letters of what holds a card, or runs without one; `?` for an unknown holder."""
        return SIGNS["unknown"] if held.model is None else self.codes.get((held.model, held.variant or ""), OTHER)

    def color(self, holder: Holder, model: str | None) -> int | None:
        """Return the number of a holder's color; None = gray, for all that is not a model of this fleet."""
        return None if model is None or holder in ("foreign", "unknown") else self.numbers.get(model)

    def row(self, node: MapNode) -> Row:
        """Return a node as it is drawn."""
        words = ["new"] if node.new else [] if node.state == "ALIVE" else [node.state.lower()]
        state = ", ".join([*words, *(["cordoned"] if node.cordoned_by else [])])
        return Row(node, state, tuple(self._cell(card, dead=node.state == "DEAD") for card in node.cards))

    def _cell(self, card: MapCard, *, dead: bool) -> Cell:
        holders = {piece.holder for piece in card.pieces}
        marks = (SIGNS["dirty"] if card.dirty else "") + "".join(MARKS[one] for one in MARKS if one in holders)
        colors: dict[str, int | None] = {}
        for piece in sorted(card.pieces, key=lambda piece: (-piece.share, piece.model or "~")):
            colors.setdefault(self.code(piece), self.color(piece.holder, piece.model))
        codes = list(colors.items())
        return Cell(card, dead, marks, tuple(codes if len(codes) <= 2 else [codes[0], (OTHER, None)]))

    def signs(self) -> list[State]:
        """Return the states on the map that have a sign."""
        cards = [card for node in self.nodes for card in node.cards]
        used: set[str] = {piece.holder for card in cards for piece in card.pieces}
        used |= {one.holder for node in self.nodes for one in node.beside}
        used |= {"dirty"} if any(card.dirty for card in cards) else set()
        used |= {"dead"} if any(node.state == "DEAD" for node in self.nodes) else set()
        return [state for state in SIGNS if state in used]

    def totals(self) -> str:
        """Return one line for the nodes that are alive: their number, their cards, and how many of these are free."""
        alive = [node for node in self.nodes if node.state == "ALIVE" and not node.new]
        cards = [card for node in alive for card in node.cards]
        free = sum(card.free_share for card in cards) / SHARE
        whole = sum(card.free_share == SHARE and not card.dirty for card in cards)
        new_replicas = sum(entry.new for entry in self.legend)
        new_nodes = sum(node.new for node in self.nodes)
        planned = f", {count_of(new_replicas, 'new replica')} shown" if new_replicas else ""
        planned += f", {count_of(new_nodes, 'new node')}" if new_nodes else ""
        return (f"{count_of(len(alive), 'node')} alive, {count_of(len(cards), 'card')}, "
                f"{free:g} free ({whole} of them whole){planned}")


def _lines_of(entry: LegendEntry) -> Iterator[tuple[Key, LegendEntry | LegendVariant]]:
    """Yield the lines of a model in the legend: one, or one for each of its variants."""
    for one in entry.variants:
        yield (entry.model, one.name), one
    if not entry.variants:
        yield (entry.model, ""), entry


def letters(keys: Sequence[Key]) -> dict[Key, str]:
    """Return a code for each: one letter for up to 26, else two letters, then `*` for all the rest."""
    if len(keys) <= len(ascii_uppercase):
        return dict(zip(keys, ascii_uppercase, strict=False))
    pairs = [first + second for first in ascii_uppercase for second in ascii_uppercase.lower()]
    codes = dict(zip(keys, pairs, strict=False))
    return {key: codes.get(key, OTHER) for key in keys}


def as_variant(name: str | None) -> str:
    """Return the end of a name that says of which variant a replica is: ` as a100`; "" if of none."""
    return f" as {name}" if name else ""


def color_of(number: int) -> str:
    """Return the color of the model with a number in the legend: neighbors differ, and dark text is legible on it."""
    if number < len(_PALETTE):
        return _PALETTE[number]
    return f"hsl({number * _GOLDEN_ANGLE % 360:.0f},60%,{68 + number % 3 * 6}%)"


def counts_of(entry: LegendEntry | LegendVariant) -> str:
    """Return the numbers of live, new and foreign replicas of a model or a variant."""
    parts = [(entry.live, "live"), (entry.new, "new"), (entry.foreign, MEANINGS["foreign"])]
    return ", ".join(f"{number} {word}" for number, word in parts if number)


def warm_text(member: Beside) -> str:
    """Return the memory of a WARM replica as ` (WARM, 15Gi)`; "" for others."""
    return "" if member.warm is None else f" (WARM, {format_bytes(member.warm)})"


WIDEST_NAME = 36
BLOCKS = "▁▂▃▄▅▆▇█"
TERMINAL_PALETTE = (
    "color(75)", "color(215)", "color(114)", "color(211)", "color(222)", "color(147)", "color(80)", "color(180)",
    "color(150)", "color(174)", "color(110)", "color(187)",
)
"""The same colors of the 256-color palette, chosen so that terminals with 16 colors still tell neighbors apart."""
GRAY = "black on color(250)"
MARK_STYLES = {SIGNS["dirty"]: "bold red", SIGNS["new"]: "bold green"}


def render_placement_map(answer: PlacementMap, console: Console, *, rows: int | None) -> None:
    """Print the map in at most `rows` rows; None = every node in its own row.

    If there are more nodes than rows, nodes that look the same share a row.
    """
    drawing = Drawing(answer)
    shared = rows is not None and len(answer.nodes) > rows
    groups = list(grouped((_look(node) if shared else (node.id,), node) for node in answer.nodes).values())
    shown = groups if rows is None else groups[:rows]
    omitted = sum(len(nodes) for nodes in groups[len(shown):])
    print_trimmed(Text(visible(f"Map: {drawing.scope}")), console)
    console.print()
    for line in _rows(drawing, shown, console.width, blocks="utf" in console.encoding.lower()):
        print_trimmed(line, console)
    if omitted:
        print_trimmed(Text(f"and {omitted} more nodes (--all shows every node)", "dim"), console)
    console.print()
    for line in _legend(drawing, [node for node, *_ in shown] if omitted else None):
        print_trimmed(line, console)
    print_trimmed(Text(drawing.totals(), "bold"), console)


def _look(node: MapNode) -> tuple[object, ...]:
    """Return what the row of a node shows but for its name."""
    cards = tuple((card.free_share, card.dirty, tuple((p.holder, p.model, p.variant, p.share) for p in card.pieces))
                  for card in node.cards)
    beside = tuple((one.holder, one.model, one.variant, one.warm) for one in node.beside)
    return node.hardware, node.state, node.new, bool(node.cordoned_by), cards, beside


def _rows(drawing: Drawing, groups: Sequence[Sequence[MapNode]], width: int, *, blocks: bool) -> Iterator[Text]:
    """Yield the lines of the rows; cards that do not fit on one line continue on the next, aligned.

    `blocks` = the terminal can show block characters.
    """
    heads = []
    for node, *others in groups:
        row = drawing.row(node)  # its state comes before the hardware: in a narrow terminal the end is cut off
        heads.append((row, visible(node.name) + (f" and {len(others)} more" if others else ""),
                      (f"{row.state} " if row.state else "") + visible(node.hardware)))
    name_width = min(WIDEST_NAME, max(4, width // 3), max((len(name) for _, name, _ in heads), default=0))
    kind_width = min(max(4, width // 4), max((len(kind) for _, _, kind in heads), default=0))
    indent = name_width + kind_width + 4
    cell_width = 5 if drawing.is_wide else 4  # a sign, two letters, or two and `*`, and the fill level
    per_line = max(1, (width - indent) // (cell_width + 1))
    for row, name, kind in heads:
        cells = [_cell_text(drawing, cell, cell_width, blocks=blocks) for cell in row.cells]
        head = Text(f"{_fit(name, name_width)}  {_fit(kind, kind_width)}  ")
        for start in range(0, max(1, len(cells)), per_line):
            yield (Text(" " * indent) if start else head) + Text(" ").join(cells[start:start + per_line])
        beside = Counter(f"{MARKS.get(one.holder, '')}{drawing.code(one)}{warm_text(one)}"
                         for one in row.node.beside)
        if beside:
            names = (name if number == 1 else f"{name} x{number}" for name, number in sorted(beside.items()))
            yield Text(f"{' ' * indent}no card: {' '.join(names)}", overflow="fold")


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[:max(0, width - 2)]}.."


def _cell_text(drawing: Drawing, cell: Cell, width: int, *, blocks: bool) -> Text:
    """Return a card in `width` columns: a mark, the letters, and the fill level as a block or as a digit for tenths."""
    if cell.dead:
        return Text(SIGNS["dead"].center(width), "dim")
    mark = cell.marks[:1]
    text = Text(mark or " ", MARK_STYLES.get(mark, "dim"))
    if not cell.letters:
        return text.append((FREE if blocks else ".").ljust(width - 1), "dim")
    shown = [cell.letters[0], (OTHER, None)] if drawing.is_wide and len(cell.letters) > 1 else cell.letters
    for code, number in shown:
        text.append(code, _style(number))
    text.append(" " * (width - 1 - len(text)))
    used = SHARE - cell.card.free_share
    if blocks:
        return text.append(BLOCKS[min(len(BLOCKS), max(1, -(-used * len(BLOCKS) // SHARE))) - 1])
    return text.append("#" if used >= SHARE else str(used * 10 // SHARE))


def _style(number: int | None) -> str:
    return GRAY if number is None else f"black on {TERMINAL_PALETTE[number % len(TERMINAL_PALETTE)]}"


def _legend(drawing: Drawing, rows: Sequence[MapNode] | None) -> Iterator[Text]:
    """Yield the lines of every model in the `rows`, the number of other models, and the signs; None = all rows."""
    drawn = {entry.model for entry in drawing.legend}
    if rows is not None:
        drawn = {piece.model or "" for node in rows for card in node.cards for piece in card.pieces}
        drawn |= {one.model for node in rows for one in node.beside}
    for (model, variant), entry in drawing.entries.items():
        if model in drawn:
            code = drawing.codes[model, variant].ljust(1 + drawing.is_wide)
            holder: Holder = "live" if entry.live or entry.new else "foreign"
            yield Text.assemble((code, _style(drawing.color(holder, model))),
                                f" {visible(model + as_variant(variant))}: {counts_of(entry)}")
    if omitted := sum(entry.model not in drawn for entry in drawing.legend):
        yield Text(f"and {count_of(omitted, 'model')} not in these rows (--all shows every node)", "dim")
    if signs := "; ".join(f"{SIGNS[state]} {MEANINGS[state]}" for state in drawing.signs()):
        yield Text(signs, "dim")


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
    ".cell,.swatch.dirty,.swatch.dead{fill:none}.swatch.new{fill:#6ea8fe}.dirty{stroke-width:2.5px}.piece{stroke-width:.5px}"
    ".stripe{opacity:.55}.hatched{fill:url(#hatch)}.cross{stroke-width:2px;fill:none}.closed .card{opacity:.55}"
    + _themed("#fff", "#1f2328", "#59636e", "#8c959f", "#c8ced4", "#cf222e")
    + "@media (prefers-color-scheme:dark){"
    + _themed("#0d1117", "#e6edf3", "#9198a1", "#6e7681", "#7d8590", "#ff7b72")
    + "}"
)


def render_placement_svg(answer: PlacementMap) -> str:
    """Return the SVG document."""
    return "\n".join(_svg(Drawing(answer))) + "\n"


def _svg(drawing: Drawing) -> Iterator[str]:
    rows = [drawing.row(node) for node in drawing.nodes]
    labels = [_label(row) for row in rows]
    left = MARGIN + round(LETTER * max(12, *map(len, labels), 0)) + 12
    heights = [LINE * max(1, -(-len(row.cells) // CARDS_PER_LINE)) for row in rows]
    columns = max(8, *(min(CARDS_PER_LINE, len(row.cells)) for row in rows), 0)
    top = 64
    legend_top = top + sum(heights) + 24
    heading, totals = f"Placement map: {drawing.scope}", drawing.totals()
    lines = []
    for (model, variant), entry in drawing.entries.items():
        color = f' fill="{color_of(drawing.numbers[model])}"'
        classes, fill = ("swatch", color) if entry.live or entry.new else ("swatch foreign", "")
        name = visible(model + as_variant(variant))
        lines.append((classes, fill, f"{drawing.codes[model, variant]}  {name}: {counts_of(entry)}"))
    lines += [(f"swatch {state}", "", f"{SIGNS[state]}  {MEANINGS[state]}") for state in drawing.signs()]
    longest = max(len(totals), *(len(text) for *_, text in lines), 0)
    width = max(left + columns * (CELL + GAP) + MARGIN, round(longest * LETTER) + 60,
                round(len(visible(heading)) * HEAD_LETTER) + 2 * MARGIN)
    height = legend_top + 22 * len(lines) + MARGIN
    models = "; ".join(f"{model}{as_variant(variant)}: {counts_of(entry)}"
                       for (model, variant), entry in drawing.entries.items())
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc">')
    yield f'<title id="title">{_safe(heading)}</title>'
    yield f'<desc id="desc">{_safe(f"{totals}. A row per node, a cell per card. {models}")}</desc>'
    yield f"<style>{STYLE}</style>"
    yield ('<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
           '<rect class="stripe" width="2" height="6"/></pattern></defs>')
    yield f'<rect class="page" width="{width}" height="{height}"/>'
    yield f'<text class="head" x="{MARGIN}" y="26">{_safe(heading)}</text>'
    yield f'<text class="small" x="{MARGIN}" y="46">{_safe(totals)}</text>'
    y = top
    for row, label, row_height in zip(rows, labels, heights, strict=True):
        closed = "" if row.node.state == "ALIVE" and not row.node.cordoned_by else " closed"
        yield f'<g class="node{closed}"><title>{_safe(row.title)}</title>'
        yield f'<text class="name" x="{MARGIN}" y="{y + 18}">{_safe(label)}</text>'
        for number, cell in enumerate(row.cells):
            line, column = divmod(number, CARDS_PER_LINE)
            yield f'<g class="card"><title>{_safe(f"{row.node.name} {cell.title}")}</title>'
            yield from _svg_cell(drawing, cell, left + column * (CELL + GAP), y + line * LINE)
        yield "</g>"
        y += row_height
    for number, (classes, fill, text) in enumerate(lines):
        at = legend_top + 22 * number
        frame = f'x="{MARGIN}" y="{at}" width="14" height="14" rx="3"'
        yield f'<rect class="{classes}" {frame}{fill}/>'
        if classes in ("swatch new", "swatch unknown"):
            yield f'<rect class="hatched" {frame}/>'
        elif classes == "swatch dead":
            yield f'<path class="cross" d="M{MARGIN + 3} {at + 3}l8 8m0 -8l-8 8"/>'
        yield f'<text class="small" x="{MARGIN + 22}" y="{at + 12}">{_safe(text)}</text>'
    yield "</svg>"


def _label(row: Row) -> str:
    text = f"{visible(row.node.name)} {visible(row.node.hardware)}" + (f" ({row.state})" if row.state else "")
    return text if len(text) <= LONGEST else f"{text[:LONGEST - 2]}.."


def _svg_cell(drawing: Drawing, cell: Cell, x: int, y: int) -> Iterator[str]:
    """Yield the rest of a card: its frame, its pieces from the bottom by their share, its label; or a cross if dead."""
    dirty = " dirty" if cell.card.dirty else ""
    yield f'<rect class="cell{dirty}" x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="2"/>'
    if cell.dead:
        yield f'<path class="cross" d="M{x + 6} {y + 6}l14 14m0 -14l-14 14"/></g>'
        return
    bottom = float(y + CELL)
    for piece in cell.card.pieces:
        tall = CELL * piece.share / SHARE
        bottom -= tall
        frame = f'x="{x}" y="{bottom:.2f}" width="{CELL}" height="{tall:.2f}"'
        number = drawing.color(piece.holder, piece.model)
        fill = "" if number is None else f' fill="{color_of(number)}"'
        yield f'<rect class="piece {piece.holder}" {frame}{fill}/>'
        if piece.holder in ("new", "unknown"):
            yield f'<rect class="hatched" {frame}/>'
    yield f'<text class="code" x="{x + CELL // 2}" y="{y + 17}">{_safe(cell.label)}</text></g>'


def _safe(text: str) -> str:
    return escape(visible(text), quote=False).replace('"', "&quot;")
