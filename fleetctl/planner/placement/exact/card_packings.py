"""All maximal packings of shares on one card: the columns that bound shared cards.

Counting shares alone, 0.5 + 0.5 free would hold 0.8; packings of single cards avoid that (Gilmore and Gomory, "A linear
programming approach to the cutting-stock problem", 1961).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

STEP_LIMIT = 20_000


class Piece(NamedTuple):
    """A share of one card (1/10000) with its memory (bytes; 0 = none claimed)."""

    share: int
    vram: int


class TooManyError(Exception):
    """More packings than the limit."""


def maximal_packings(pieces: Sequence[Piece], share: int, vram: int, limit: int) -> tuple[tuple[int, ...], ...]:
    """Return the maximal packings of a card with `share` and `vram` free, as counts by piece.

    Each packing of the card is contained in one of them. Raises TooManyError beyond `limit` packings.
    """
    steps = iter(range(STEP_LIMIT))
    found: list[tuple[int, ...]] = []
    order = sorted((index for index, piece in enumerate(pieces) if _most(piece, share, vram)),
                   key=lambda index: (-pieces[index].share, -pieces[index].vram, index))
    ordered = [pieces[index] for index in order]
    for counts in _packings(ordered, 0, share, vram, steps):
        if len(found) == limit:
            raise TooManyError
        by_piece = dict(zip(order, counts, strict=True))
        found.append(tuple(by_piece.get(index, 0) for index in range(len(pieces))))
    return tuple(sorted(found))


def _packings(
    pieces: Sequence[Piece], start: int, share: int, vram: int, steps: Iterator[int]
) -> Iterator[tuple[int, ...]]:
    if next(steps, None) is None:
        raise TooManyError
    if start == len(pieces):
        if not any(_most(piece, share, vram) for piece in pieces):
            yield ()
        return
    piece = pieces[start]
    for count in range(_most(piece, share, vram), -1, -1):
        for rest in _packings(pieces, start + 1, share - count * piece.share, vram - count * piece.vram, steps):
            yield (count, *rest)


def _most(piece: Piece, share: int, vram: int) -> int:
    count = share // piece.share
    return min(count, max(vram, 0) // piece.vram) if piece.vram else count
