"""One card as a few characters: a mark, up to two letters of models, and how full it is. Readable without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.placement_map import Beside, MapCard, Piece
from fleetctl.documents.quantity import SHARE
from fleetctl.render.map_signs import FOREIGN, NEW, OTHER, UNKNOWN, code_of, mark_of

if TYPE_CHECKING:
    from rich.text import Text

BLOCKS = "▁▂▃▄▅▆▇█"
PALETTE = (
    "color(75)", "color(215)", "color(114)", "color(211)", "color(222)", "color(147)", "color(80)", "color(180)",
    "color(150)", "color(174)", "color(110)", "color(187)",
)
"""Light colours of the 256, told apart best by those next to each other; letters are black on them."""

GREY = "black on color(250)"
GONE = "-"


class Pen:
    """Draws cells: the letters of models, their colours, and whether blocks can be shown."""

    def __init__(self, codes: Mapping[str, str], *, blocks: bool) -> None:
        self.codes = codes
        self.colors = {model: f"black on {PALETTE[place % len(PALETTE)]}" for place, model in enumerate(codes)}
        self.code_width = max((len(code) for code in codes.values()), default=1)
        self.blocks = blocks

    @property
    def width(self) -> int:
        """Columns of one cell: the mark, two codes (or one and `*`), how full."""
        return 2 + max(2, self.code_width + 1)

    def cell(self, card: MapCard, *, gone: bool) -> Text:
        """Return one card as `width` columns."""
        from rich.text import Text

        if gone:
            return Text(GONE.center(self.width), "dim")
        pieces = sorted(card.pieces, key=lambda piece: (-piece.share, piece.model or "~"))
        text = Text(mark_of(card), _mark_style(card))
        if not pieces:
            return text.append(("·" if self.blocks else ".").ljust(self.width - 1), "dim")
        for code, style in self._letters(pieces):
            text.append(code, style)
        text.append(" " * (self.width - 1 - len(text)))
        return text.append(self._fill(card))

    def beside(self, sitters: Sequence[Beside]) -> str:
        """Return the members on a node that hold no card: `A x2 +B`."""
        counts: dict[str, int] = {}
        for sitter in sitters:
            mark = {"new": NEW, "foreign": FOREIGN}.get(sitter.holder, "")
            name = f"{mark}{code_of(sitter.model, self.codes)}"
            counts[name] = counts.get(name, 0) + 1
        return " ".join(name if number == 1 else f"{name} x{number}" for name, number in sorted(counts.items()))

    def style_of(self, model: str | None) -> str:
        """Return the colour of a model; grey for nobody's."""
        return self.colors.get(model or "", GREY)

    def _letters(self, pieces: Sequence[Piece]) -> list[tuple[str, str]]:
        """Return the codes to show, with their styles: of the two largest holders, or of one and `*` for the rest."""
        holders = list(dict.fromkeys((piece.model, piece.holder == "unknown") for piece in pieces))
        shown = [(UNKNOWN if unknown else code_of(model, self.codes), self.style_of(model))
                 for model, unknown in holders]
        if len(shown) == 1 or (len(shown) == 2 and self.code_width == 1):
            return shown
        return [shown[0], (OTHER, GREY)]

    def _fill(self, card: MapCard) -> str:
        """Return how full a card is: an eighth block, or a digit for tenths; a full one shows the full block or `#`."""
        used = SHARE - card.free_share
        if not self.blocks:
            return "#" if used >= SHARE else str(used * 10 // SHARE)
        return BLOCKS[min(len(BLOCKS), max(1, -(-used * len(BLOCKS) // SHARE))) - 1]


def _mark_style(card: MapCard) -> str:
    return "bold red" if card.dirty else "bold green" if mark_of(card) == NEW else "dim"
