"""The member's check of its cards before it starts an engine: is foreign memory in use on them?

Ray picks the card and does not know its memory, so the driver decides. A card that the driver does not report is not
refused; the replica says that it was not checked.
"""

from __future__ import annotations

import operator
import time
from typing import List, Mapping, NamedTuple, Optional, Sequence

from .driver import MIB, Answer, Card, ask
from .processes import users_text

CLEAN_S = 20.0
"""A card may give memory back for a while after its last engine has ended."""
SAMPLE_S = 0.5


REFUSED = ("CARD_IN_USE", "CARD_COOLING")
"""Codes of a member that refuses the cards it was granted: others of the node may do."""


class Look(NamedTuple):
    """Each card that Ray granted as the driver reports it, the objection to one, and why one was not checked.

    `cools` = the objection is that a card cools, which no waiting ends.
    """

    cards: Sequence[Optional[Card]] = ()
    objection: Optional[str] = None
    unchecked: Optional[str] = None
    cools: bool = False

    @property
    def code(self) -> str:
        """Return the code of the objection."""
        return REFUSED[self.cools]


def find(cards: Sequence[Card], granted: str) -> Optional[Card]:
    """Return the card that CUDA uses for an id: a number, a UUID, or the beginning of exactly one UUID."""
    if granted.isdigit():
        return next((card for card in cards if card.number == granted and not card.is_part), None)
    named = [card for card in cards if granted == card.uuid]
    named = named or [card for card in cards if granted[:4] in ("GPU-", "MIG-") and card.uuid.startswith(granted)]
    return named[0] if len(named) == 1 else None


def look(answer: Answer, granted: Sequence[str], gpu_share: int, vram_bytes: int, cooling: Sequence[str] = ()) -> Look:
    """Check the granted cards against the driver's report; `cooling` = the UUIDs of cards that take nothing new."""
    found = [find(answer.cards, one) for one in granted]
    checked = [card for card in found if card and not card.is_divided]
    unchecked = answer.trouble or _unchecked(answer, granted, found)
    cools = next((card for card in found if card and card.uuid in cooling), None)
    if cools:
        return Look(found, f"{cools} ({cools.uuid}) cools: several models failed on it lately", unchecked, cools=True)
    return Look(found, objection(checked, gpu_share, vram_bytes), unchecked)


def _unchecked(answer: Answer, granted: Sequence[str], found: Sequence[Optional[Card]]) -> Optional[str]:
    unknown = [] if not answer.cards else [one for one, card in zip(granted, found) if card is None]
    if unknown:
        return f"the NVIDIA driver reports no memory of {', '.join(unknown)}"
    divided = [card for card in found if card and card.is_divided]
    return f"{divided[0]} is divided (MIG), and was granted by its number" if divided else None


def objection(cards: Sequence[Card], gpu_share: int, vram_bytes: int) -> Optional[str]:
    """Return why no engine may start on `cards`, with the arithmetic, or None.

    A whole card must be clean: not more in use than max(1Gi, 2 % of it), but for one whose memory is the host's. A
    shared one must have `vram_bytes` free.
    """
    for card in cards:
        if card.free < vram_bytes:
            need = vram_bytes // MIB
            return f"{card} has {card.free // MIB}Mi of {card.total // MIB}Mi free, {need}Mi are needed"
        if gpu_share >= 10_000 and not card.is_unified and card.used > max(1 << 30, card.total // 50):
            by = users_text(card.pids) or " by another process"
            return f"{card} was granted whole but {card.used // MIB}Mi of it are in use{by}"
    return None


def numbers(granted: Sequence[str], seen: Look) -> List[int]:
    """Return the numbers of the granted cards, each once: the driver's, or else Ray's where it grants by number."""
    found = seen.cards or [None] * len(granted)
    texts = [card.number if card else one for one, card in zip(granted, found)]
    return [int(text) for text in dict.fromkeys(texts) if text.isdigit()]


def uuids(seen: Look) -> List[str]:
    """Return the UUIDs of the granted cards that the driver reports."""
    return [card.uuid for card in seen.cards if card]


def wait_for_clean_cards(granted: Sequence[str], gpu_share: int, vram_bytes: int, env: Mapping[str, str], *,
                         cooling: Sequence[str] = (), settled: bool = False) -> Look:
    """Return the check once the granted cards are clean, or after CLEAN_S; without a claim the driver is not asked.

    `settled` = and when two samples in a row are equal, or the second is higher: nothing is being given back any more.
    """
    if gpu_share == 0:
        return Look()
    deadline = time.monotonic() + CLEAN_S
    before: Optional[List[int]] = None
    while True:
        seen = look(ask(env), granted, gpu_share, vram_bytes, cooling)
        used = [card.used for card in seen.cards if card]
        at_rest = not (settled and used) or (before is not None and all(map(operator.ge, used, before)))
        if (seen.objection is None and at_rest) or seen.cools or time.monotonic() >= deadline:
            return seen
        before = used
        time.sleep(2 if seen.objection else SAMPLE_S)
