"""The style rules of one map, and the classes they are for: a colour per model, a height per share of a card."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.documents.placement_map import Piece, PlacementMap
from fleetctl.documents.quantity import SHARE
from fleetctl.render.map_legend import Legend, color_of


def model_class(model: str | None, legend: Legend) -> str:
    """Return the class of a model's colour; "" where it has none."""
    number = legend.numbers.get(model or "")
    return "" if number is None else f"m{number}"


def piece_class(piece: Piece, legend: Legend) -> str:
    """Return the classes of a piece: its model's colour, and whose it is."""
    return f"{model_class(piece.model, legend)} {piece.holder}".strip()


def share_class(share: int) -> str:
    """Return the class that is as tall as a share of a card."""
    return f"s{share}"


def map_rules(picture: PlacementMap) -> str:
    """Return the style rules of a map."""
    return "".join(_rules(picture))


def _rules(picture: PlacementMap) -> Iterator[str]:
    for number in range(len(picture.legend)):
        yield f".m{number}{{--m:{color_of(number)}}}"
    for share in sorted({piece.share for node in picture.nodes for card in node.cards for piece in card.pieces}):
        if share != SHARE:
            yield f".{share_class(share)}{{height:{share / 100:g}%}}"
