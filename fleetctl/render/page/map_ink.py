"""How the map shows who holds what: letters, marks, and for each model a class that is its colour.

Letters and patterns carry all there is to know; colours only repeat it. The letters are those of `fleetctl map`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fleetctl.documents.placement_map import Holder, MapCard, Piece, PlacementMap
from fleetctl.documents.quantity import SHARE
from fleetctl.render.map_signs import DIRTY, FOREIGN, NEW, OTHER, code_of, letters
from fleetctl.render.svg_style import color_of

FREE = "·"
MARKS: Mapping[Holder, str] = {"new": NEW, "foreign": FOREIGN, "live": "", "unknown": ""}


@dataclass(frozen=True, slots=True)
class Ink:
    """The letters and the class of every model, by key."""

    codes: Mapping[str, str]
    classes: Mapping[str, str]

    @classmethod
    def of(cls, picture: PlacementMap) -> Ink:
        """Take both from the map's legend."""
        return cls(letters(picture.legend), {entry.model: f"m{place}" for place, entry in enumerate(picture.legend)})

    def look(self, piece: Piece) -> str:
        """Return the classes of a piece: its model's colour, and whose it is."""
        return f"{self.classes.get(piece.model or '', '')} {piece.holder}".strip()

    def sign(self, model: str | None, holder: Holder) -> str:
        """Return `+A`: a mark and the letters of one model."""
        return MARKS[holder] + code_of(model, self.codes)

    def label(self, card: MapCard) -> str:
        """Return what stands on a card: the letters of at most two models, and marks for new, foreign and dirty."""
        holders = {piece.holder for piece in card.pieces}
        marks = "".join(MARKS[holder] for holder in ("new", "foreign") if holder in holders)
        codes = list(dict.fromkeys(code_of(piece.model, self.codes) for piece in card.pieces))
        shown = "".join(codes) if len(codes) <= 2 else f"{codes[0]}{OTHER}"
        return f"{DIRTY if card.dirty else ''}{marks}{shown}" or FREE


def share_class(share: int) -> str:
    """Return the class that is as tall as a share of a card."""
    return f"s{share}"


def map_rules(picture: PlacementMap) -> str:
    """Return the style rules of one map: a colour per model, a height per share."""
    shares = {piece.share for node in picture.nodes for card in node.cards for piece in card.pieces}
    return "".join(_rules(len(picture.legend), sorted(shares - {SHARE})))


def _rules(models: int, shares: list[int]) -> Iterator[str]:
    for number in range(models):
        yield f".m{number}{{--m:{color_of(number)}}}"
    for share in shares:
        yield f".{share_class(share)}{{height:{share / 100:g}%}}"
