"""The member's check of its cards before it starts an engine: do other processes use memory on them?

Ray picks a card without knowing its memory, so the check asks the driver. A card that the driver does not report is
accepted, and the replica reports it as unchecked.
"""

from __future__ import annotations

import operator
import time
from typing import List, Mapping, NamedTuple, Optional, Sequence

from .driver import MIB, Answer, Card, query_driver
from .processes import users_text

CLEAN_S = 20.0
"""A card may still be freeing memory for a while after its last engine has ended."""
SAMPLE_S = 0.5

REFUSED = ("CARD_IN_USE", "CARD_COOLING")
"""Codes of a member that refuses its granted cards; other cards of the node may be usable."""


class CardCheck(NamedTuple):
    """The granted cards as the driver reports them, the objection to one, and why one was not checked.

    `is_cooling` = the objection is a cooling card, so waiting does not help.
    """

    cards: Sequence[Optional[Card]] = ()
    objection: Optional[str] = None
    unchecked: Optional[str] = None
    is_cooling: bool = False

    @property
    def code(self) -> str:
        """Return the code of the objection."""
        return REFUSED[self.is_cooling]


def find(cards: Sequence[Card], granted: str) -> Optional[Card]:
    """Return the card that CUDA uses for an id: a number, a UUID, or a prefix of exactly one UUID."""
    if granted.isdigit():
        return next((card for card in cards if card.number == granted and not card.is_part), None)
    named = [card for card in cards if granted == card.uuid]
    named = named or [card for card in cards if granted[:4] in ("GPU-", "MIG-") and card.uuid.startswith(granted)]
    return named[0] if len(named) == 1 else None


def check_granted(
    answer: Answer, granted: Sequence[str], gpu_share: int, vram_bytes: int, cooling: Sequence[str] = ()
) -> CardCheck:
    """Check the granted cards against the driver's report; `cooling` = the UUIDs of cards that take nothing new."""
    found = [find(answer.cards, card_id) for card_id in granted]
    checked = [card for card in found if card and not card.is_divided]
    unchecked = answer.trouble or _unchecked(answer, granted, found)
    for card in found:
        if card and card.uuid in cooling:
            text = f"{card} ({card.uuid}) is cooling: several models failed on it recently"
            return CardCheck(found, text, unchecked, is_cooling=True)
    return CardCheck(found, objection(checked, gpu_share, vram_bytes), unchecked)


def _unchecked(answer: Answer, granted: Sequence[str], found: Sequence[Optional[Card]]) -> Optional[str]:
    unknown = [card_id for card_id, card in zip(granted, found) if card is None] if answer.cards else []
    if unknown:
        return f"the NVIDIA driver reports no memory for {', '.join(unknown)}"
    divided = [card for card in found if card and card.is_divided]
    return f"{divided[0]} is divided (MIG), but was granted by its number" if divided else None


def objection(cards: Sequence[Card], gpu_share: int, vram_bytes: int) -> Optional[str]:
    """Return why no engine may start on `cards`, with the arithmetic, or None.

    Every card must have `vram_bytes` free. A whole card must also be clean: at most max(1Gi, 2 % of it) in use, unless
    its memory is the host's.
    """
    for card in cards:
        if card.free < vram_bytes:
            need = vram_bytes // MIB
            return f"{card} has {card.free // MIB}Mi of {card.total // MIB}Mi free, {need}Mi needed"
        if gpu_share >= 10_000 and not card.is_unified and card.used > max(1 << 30, card.total // 50):
            by = users_text(card.pids) or " by another process"
            return f"{card} was granted whole, but {card.used // MIB}Mi of it are in use{by}"
    return None


def numbers(granted: Sequence[str], check: CardCheck) -> List[int]:
    """Return the numbers of the granted cards, each once: the driver's, or else Ray's if it grants by number."""
    found = check.cards or [None] * len(granted)
    texts = [card.number if card else card_id for card_id, card in zip(granted, found)]
    return [int(text) for text in dict.fromkeys(texts) if text.isdigit()]


def uuids(check: CardCheck) -> List[str]:
    """Return the UUIDs of the granted cards that the driver reports."""
    return [card.uuid for card in check.cards if card]


def wait_for_clean_cards(granted: Sequence[str], gpu_share: int, vram_bytes: int, env: Mapping[str, str], *,
                         cooling: Sequence[str] = (), stable: bool = False) -> CardCheck:
    """Return the check once the granted cards are clean, or after CLEAN_S; without a claim the driver is not asked.

    `stable` = also wait until memory in use has stopped falling: two equal samples in a row, or a higher one.
    """
    if gpu_share == 0:
        return CardCheck()
    deadline = time.monotonic() + CLEAN_S
    before: Optional[List[int]] = None
    while True:
        check = check_granted(query_driver(env), granted, gpu_share, vram_bytes, cooling)
        used = [card.used for card in check.cards if card]
        is_stable = not (stable and used) or (before is not None and all(map(operator.ge, used, before)))
        if (check.objection is None and is_stable) or check.is_cooling or time.monotonic() >= deadline:
            return check
        before = used
        time.sleep(2 if check.objection else SAMPLE_S)
