"""The placement map in a terminal: a row per node, a cell per card; in a large fleet equal nodes share a row.

A cell is a few characters, readable without colour: a mark, up to two letters of models, and how full the card is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fleetctl.documents.placement_map import Beside, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.quantity import SHARE, count_of, grouped
from fleetctl.render import map_legend
from fleetctl.render.map_legend import DIRTY, FOREIGN, MARKS, MEANINGS, NEW, OTHER, UNKNOWN, Legend
from fleetctl.render.place_text import asked_about
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible

WIDEST_NAME = 36
BLOCKS = "▁▂▃▄▅▆▇█"
PALETTE = (
    "color(75)", "color(215)", "color(114)", "color(211)", "color(222)", "color(147)", "color(80)", "color(180)",
    "color(150)", "color(174)", "color(110)", "color(187)",
)
"""Light colours of the 256, neighbours as different as possible; letters are black on them."""
GREY = "black on color(250)"
GONE = "-"


def render_placement_map(answer: PlacementMap, console: Console, *, rows: int | None) -> None:
    """Print the map; `rows` = the most rows to show, None = every node in a row of its own.

    Where there are more nodes than rows, those that look the same share one.
    """
    print_trimmed(Text(visible(f"Map: {asked_about(answer.fleet, answer.inventory)}")), console)
    console.print()
    cells = Cells(Legend.of(answer), blocks="utf" in console.encoding.lower())
    alike = _alike(answer.nodes, folded=rows is not None and len(answer.nodes) > rows)
    shown = alike if rows is None else alike[:rows]
    for line in _lines(shown, cells, console.width):
        print_trimmed(line, console)
    left = sum(len(nodes) for nodes in alike[len(shown):])
    if left:
        print_trimmed(Text(f"and {left} more nodes (--all shows every node)", "dim"), console)
    console.print()
    for line in _legend(answer, cells, answer.nodes if not left else [node for node, *_ in shown]):
        print_trimmed(line, console)
    print_trimmed(Text(map_legend.totals(answer), "bold"), console)


def _alike(nodes: Sequence[MapNode], *, folded: bool) -> list[list[MapNode]]:
    """Return the nodes by row, in the order of the first of each row."""
    return list(grouped((_contents(node) if folded else (node.id,), node) for node in nodes).values())


def _contents(node: MapNode) -> tuple[object, ...]:
    cards = tuple((card.free_share, card.dirty, tuple((p.holder, p.model, p.share) for p in card.pieces))
                  for card in node.cards)
    beside = tuple((one.holder, one.model, one.warm) for one in node.beside)
    return node.hardware, map_legend.node_state(node), cards, beside


def _lines(rows: Sequence[Sequence[MapNode]], cells: Cells, width: int) -> Iterator[Text]:
    """Yield the rows; cards that do not fit beside the names go on below, under the first."""
    heads = [(_names(nodes), _kind(nodes[0])) for nodes in rows]
    name_width = min(WIDEST_NAME, max(4, width // 3), max((len(name) for name, _ in heads), default=0))
    kind_width = min(max(4, width // 4), max((len(kind) for _, kind in heads), default=0))
    indent = name_width + kind_width + 4
    per_line = max(1, (width - indent) // (cells.width + 1))
    for (node, *_), (name, kind) in zip(rows, heads, strict=True):
        drawn = [cells.cell(card, gone=node.state == "DEAD") for card in node.cards]
        chunks = [drawn[at:at + per_line] for at in range(0, len(drawn), per_line)] or [[]]
        for number, chunk in enumerate(chunks):
            head = Text(f"{_fit(name, name_width)}  {_fit(kind, kind_width)}  ") if number == 0 else Text(" " * indent)
            yield head + Text(" ").join(chunk)
        beside = cells.beside(node.beside)
        if beside:
            yield Text(" " * indent + f"no card: {beside}", overflow="fold")


def _names(nodes: Sequence[MapNode]) -> str:
    first = visible(nodes[0].name)
    return first if len(nodes) == 1 else f"{first} and {len(nodes) - 1} more"


def _kind(node: MapNode) -> str:
    """Say what a node is, what is unusual first: that must not be cut off where there is little room."""
    words = map_legend.node_state(node)
    return (f"{words} " if words else "") + visible(node.hardware)


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[:max(0, width - 2)]}.."


def _legend(answer: PlacementMap, cells: Cells, rows: Sequence[MapNode]) -> Iterator[Text]:
    """Yield a line for every model in the rows that are shown, and the number of the others."""
    drawn = {piece.model for node in rows for card in node.cards for piece in card.pieces}
    drawn |= {one.model for node in rows for one in node.beside}
    shown = [entry for entry in answer.legend if entry.model in drawn or len(rows) == len(answer.nodes)]
    for entry in shown:
        code = cells.legend.codes[entry.model].ljust(cells.code_width)
        counts = map_legend.counts_of(entry)
        yield Text.assemble((code, cells.style_of(entry.model)), f" {visible(entry.model)}: {counts}")
    left = len(answer.legend) - len(shown)
    if left:
        yield Text(f"and {count_of(left, 'model')} not in these rows (--all shows every node)", "dim")
    meanings = "; ".join(f"{sign} {MEANINGS[sign]}" for sign, _ in map_legend.signs_used(answer))
    if meanings:
        yield Text(meanings, "dim")


class Cells:
    """Draws cells: the letters of models, their colours, and whether blocks can be shown."""

    def __init__(self, legend: Legend, *, blocks: bool) -> None:
        self.legend = legend
        self.code_width = max(map(len, legend.codes.values()), default=1)
        self.blocks = blocks

    @property
    def width(self) -> int:
        """Columns of one cell: the mark, two codes (or one and `*`), how full."""
        return 2 + max(2, self.code_width + 1)

    def cell(self, card: MapCard, *, gone: bool) -> Text:
        """Return one card as `width` columns."""
        if gone:
            return Text(GONE.center(self.width), "dim")
        pieces = sorted(card.pieces, key=lambda piece: (-piece.share, piece.model or "~"))
        text = _mark(card)
        if not pieces:
            return text.append(("·" if self.blocks else ".").ljust(self.width - 1), "dim")
        for code, style in self._letters(pieces):
            text.append(code, style)
        text.append(" " * (self.width - 1 - len(text)))
        return text.append(self._fill(card))

    def beside(self, members: Sequence[Beside]) -> str:
        """Return the members on a node that hold no card: `A x2 +B C (WARM, 15Gi)`."""
        counts = Counter(
            f"{MARKS[one.holder]}{self.legend.code(one.model)}{map_legend.warm_text(one)}" for one in members)
        return " ".join(name if number == 1 else f"{name} x{number}" for name, number in sorted(counts.items()))

    def style_of(self, model: str | None) -> str:
        """Return the colour of a model; grey for what is no model of this fleet."""
        number = self.legend.numbers.get(model or "")
        return GREY if number is None else f"black on {PALETTE[number % len(PALETTE)]}"

    def _letters(self, pieces: Sequence[Piece]) -> list[tuple[str, str]]:
        """Return the codes to show, with their styles: of the two largest holders, or of one and `*` for the rest."""
        holders = list(dict.fromkeys((piece.model, piece.holder == "unknown") for piece in pieces))
        shown = [(UNKNOWN if unknown else self.legend.code(model), self.style_of(model)) for model, unknown in holders]
        if len(shown) == 1 or (len(shown) == 2 and self.code_width == 1):
            return shown
        return [shown[0], (OTHER, GREY)]

    def _fill(self, card: MapCard) -> str:
        """Return how full a card is: an eighth block, or a digit for tenths; a full one shows the full block or `#`."""
        used = SHARE - card.free_share
        if not self.blocks:
            return "#" if used >= SHARE else str(used * 10 // SHARE)
        return BLOCKS[min(len(BLOCKS), max(1, -(-used * len(BLOCKS) // SHARE))) - 1]


def _mark(card: MapCard) -> Text:
    """Return the gravest mark of a card: dirty, then new, then foreign; a blank for none."""
    holders = {piece.holder for piece in card.pieces}
    if card.dirty:
        return Text(DIRTY, "bold red")
    return Text(NEW, "bold green") if "new" in holders else Text(FOREIGN if "foreign" in holders else " ", "dim")
