"""The placement map in a terminal: a row per node, a cell per card; in a large fleet equal nodes share a row.

A cell is a few characters, readable without color: a mark, up to two letters for models, and how full the card is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fleetctl.documents.answers import Beside, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.quantity import SHARE, count_of, grouped
from fleetctl.render import map_legend
from fleetctl.render.map_legend import DIRTY, FOREIGN, MARKS, MEANINGS, NEW, OTHER, UNKNOWN, Legend
from fleetctl.render.place_text import scope_text
from fleetctl.render.visible import print_trimmed, visible

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
    print_trimmed(Text(map_legend.totals(answer), "bold"), console)


def _appearance(node: MapNode) -> tuple[object, ...]:
    cards = tuple((card.free_share, card.dirty, tuple((p.holder, p.model, p.share) for p in card.pieces))
                  for card in node.cards)
    beside = tuple((one.holder, one.model, one.warm) for one in node.beside)
    return node.hardware, map_legend.node_state(node), cards, beside


def _lines(rows: Sequence[Sequence[MapNode]], cells: Cells, width: int) -> Iterator[Text]:
    """Yield the lines of the rows; cards that do not fit on one line continue on the next, aligned."""
    heads = []
    for node, *others in rows:
        state = map_legend.node_state(node)  # before the hardware: in a narrow terminal the end is cut off
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
        counts = map_legend.counts_of(entry)
        yield Text.assemble((code, cells.style_of(entry.model)), f" {visible(entry.model)}: {counts}")
    omitted = len(answer.legend) - len(shown)
    if omitted:
        yield Text(f"and {count_of(omitted, 'model')} not in these rows (--all shows every node)", "dim")
    meanings = "; ".join(f"{sign} {MEANINGS[sign]}" for sign, _ in map_legend.signs_used(answer))
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
            f"{MARKS[one.holder]}{self.legend.code(one.model)}{map_legend.warm_text(one)}" for one in members)
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
