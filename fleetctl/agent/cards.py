"""The member's own look at its cards before it starts an engine: is somebody else's memory on them?

Ray picks the card and knows nothing of memory, so the last word is the driver's. What the driver does not tell is not
refused; that it could not be checked is said.
"""

from __future__ import annotations

import time
from typing import List, Mapping, NamedTuple, Optional, Sequence

from .driver import MIB, Answer, Card, ask

SETTLE_S = 20.0
"""A card may still be giving memory back when its last engine has just ended."""


class Look(NamedTuple):
    """What was seen of each card that Ray granted, what is wrong with one, and what could not be checked."""

    cards: Sequence[Optional[Card]] = ()
    objection: Optional[str] = None
    unchecked: Optional[str] = None


def find(cards: Sequence[Card], granted: str) -> Optional[Card]:
    """Return the card that CUDA takes an id for: a number, a UUID, or the beginning of one UUID alone."""
    if granted.isdigit():
        return next((card for card in cards if card.number == granted and not card.is_part), None)
    named = [card for card in cards if granted == card.uuid]
    named = named or [card for card in cards if granted[:4] in ("GPU-", "MIG-") and card.uuid.startswith(granted)]
    return named[0] if len(named) == 1 else None


def look(answer: Answer, granted: Sequence[str], gpu_share: int, vram_bytes: int) -> Look:
    """Judge the granted cards by what the driver says of all."""
    found = [find(answer.cards, one) for one in granted]
    checked = [card for card in found if card and not card.is_divided]
    return Look(found, objection(checked, gpu_share, vram_bytes), answer.trouble or _unchecked(answer, granted, found))


def _unchecked(answer: Answer, granted: Sequence[str], found: Sequence[Optional[Card]]) -> Optional[str]:
    unknown = [] if not answer.cards else [one for one, card in zip(granted, found) if card is None]
    if unknown:
        return f"the NVIDIA driver tells no memory of {', '.join(unknown)}"
    divided = [card for card in found if card and card.is_divided]
    return f"{divided[0]} is divided (MIG), and was granted by its number" if divided else None


def objection(cards: Sequence[Card], gpu_share: int, vram_bytes: int) -> Optional[str]:
    """Say what is wrong with starting on `cards`, with the arithmetic, or None.

    A whole card must be clean: not more in use than max(1Gi, 2 % of it). A shared one must have `vram_bytes` free.
    """
    for card in cards:
        if card.free < vram_bytes:
            need = vram_bytes // MIB
            return f"{card} has {card.free // MIB}Mi of {card.total // MIB}Mi free, {need}Mi are needed"
        if gpu_share >= 10_000 and card.used > max(1 << 30, card.total // 50):
            return f"{card} was granted whole but {card.used // MIB}Mi of it are in use by somebody else"
    return None


def numbers(granted: Sequence[str], seen: Look) -> List[int]:
    """Return the numbers of the granted cards, each once: the driver's, or else Ray's where it grants by number."""
    found = seen.cards or [None] * len(granted)
    texts = [card.number if card else one for one, card in zip(granted, found)]
    return [int(text) for text in dict.fromkeys(texts) if text.isdigit()]


def uuids(seen: Look) -> List[str]:
    """Return the UUIDs of the granted cards, as far as the driver tells them."""
    return [card.uuid for card in seen.cards if card]


def wait_for_clean_cards(granted: Sequence[str], gpu_share: int, vram_bytes: int, env: Mapping[str, str]) -> Look:
    """Return what is seen once the granted cards are fit to use, or after SETTLE_S; without a claim nobody is asked."""
    if gpu_share == 0:
        return Look()
    deadline = time.monotonic() + SETTLE_S
    while True:
        seen = look(ask(env), granted, gpu_share, vram_bytes)
        if seen.objection is None or time.monotonic() >= deadline:
            return seen
        time.sleep(2)
