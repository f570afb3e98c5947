"""One card as a few characters: a mark, up to two letters of models, and how full it is. Readable without colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from fleetctl.documents.placement_map import Beside, MapCard, Piece
from fleetctl.documents.quantity import SHARE
from fleetctl.render.map_legend import DIRTY, FOREIGN, MARKS, NEW, OTHER, UNKNOWN, Legend, warm_text

BLOCKS = "▁▂▃▄▅▆▇█"
PALETTE = (
    "color(75)", "color(215)", "color(114)", "color(211)", "color(222)", "color(147)", "color(80)", "color(180)",
    "color(150)", "color(174)", "color(110)", "color(187)",
)
"""Light colours of the 256, neighbours as different as possible; letters are black on them."""

GREY = "black on color(250)"
GONE = "-"


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
        counts = Counter(f"{MARKS[one.holder]}{self.legend.code(one.model)}{warm_text(one)}" for one in members)
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
