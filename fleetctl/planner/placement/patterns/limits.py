"""Counters of what a node may hold few of, packed into machine words, so that adding two fillings checks them all.

A field of a word counts one item up to its limit L: with the bias 2^(w-1) - 1 - L a sum above L sets the field's top
bit. Items for which no word has room are left out of the pricing in question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetctl.planner.placement.arrays import Flags, Ints

WORDS = 4
WORD_BITS = 62


@dataclass(frozen=True, slots=True)
class Counters:
    """`unit` (words, items): what one member adds; `bias`, `guard` (words,); `counted` (items,) = has its field."""

    unit: Ints
    bias: Ints
    guard: Ints
    counted: Flags


@dataclass(slots=True)
class _Word:
    used: int = 0
    bias: int = 0
    guard: int = 0

    def field(self, limit: int) -> int | None:
        """Take a field that counts up to `limit` and return its lowest bit; None when the word is full."""
        width = limit.bit_length() + 1
        if self.used + width > WORD_BITS:
            return None
        low = 1 << self.used
        self.bias += low * ((1 << (width - 1)) - 1 - limit)
        self.guard |= low << (width - 1)
        self.used += width
        return low


def state_limits(ranked: NDArray[np.intp], limits: Ints, most: Ints) -> Counters:
    """Give fields to the items in `ranked` order of which more would fit (`most`) than a node may hold (`limits`)."""
    unit = np.zeros((WORDS, len(limits)), np.int64)
    counted = np.zeros(len(limits), dtype=bool)
    words = [_Word() for _ in range(WORDS)]
    for place in ranked.tolist():
        counted[place] = limits[place] >= most[place] or _take_field(words, int(limits[place]), unit[:, place])
    used = max([place + 1 for place, word in enumerate(words) if word.used], default=0)
    return Counters(unit[:used], np.array([word.bias for word in words[:used]], np.int64),
                    np.array([word.guard for word in words[:used]], np.int64), counted)


def _take_field(words: Sequence[_Word], limit: int, unit: Ints) -> bool:
    """Write into `unit` (words,) what one member adds to the field it gets; False where no word has room for it."""
    for number, word in enumerate(words):
        low = word.field(limit)
        if low is not None:
            unit[number] = low
            return True
    return False
