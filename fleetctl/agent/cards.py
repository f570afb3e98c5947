"""The member's check of its cards before it starts an engine: do other processes use memory on them?

Ray picks a card without knowing its memory, so the check asks the driver. A card that the driver counts and cannot open
is refused. A card of which the driver says nothing is accepted, and the replica reports it as unchecked.
"""

from __future__ import annotations

import operator
import time
from typing import List, Mapping, NamedTuple, Optional, Sequence

from .driver import MIB, Answer, Card, query_driver
from .messages import Resident
from .processes import is_called, users_text

CLEAN_S = 20.0
"""A card may still be freeing memory for a while after its last engine has ended."""
SAMPLE_S = 0.5

CARD_FAILURES = ("CARD_LOST", "CARD_FAULTY")
"""Codes of a card that has failed itself, whatever runs on it."""
REFUSED = ("CARD_IN_USE", "CARD_COOLING", *CARD_FAILURES)
"""Codes of a member that refuses its granted cards; other cards of the node may be usable."""


class CardCheck(NamedTuple):
    """The granted cards as the driver reports them, the objection to one with its code, and why one was not checked.

    `failed` = the number and UUID of a card that has failed itself, as far as known. `use_uuids` = not every card of
    the host can be opened, so CUDA may number the others anew.
    """

    cards: Sequence[Optional[Card]] = ()
    objection: Optional[str] = None
    unchecked: Optional[str] = None
    code: str = "CARD_IN_USE"
    failed: Sequence[str] = ()
    use_uuids: bool = False

    @property
    def is_final(self) -> bool:
        """Whether there is an objection that waiting does not remove."""
        return self.objection is not None and self.code != "CARD_IN_USE"


def find(cards: Sequence[Card], granted: str) -> Optional[Card]:
    """Return the card that CUDA uses for an id: a number, a UUID, or a prefix of exactly one UUID."""
    if granted.isdigit():
        return next((card for card in cards if card.number == granted and not card.is_part), None)
    named = [card for card in cards if granted == card.uuid]
    named = named or [card for card in cards if granted[:4] in ("GPU-", "MIG-") and card.uuid.startswith(granted)]
    return named[0] if len(named) == 1 else None


def check_granted(
    answer: Answer, granted: Sequence[str], gpu_share: int, vram_bytes: int, cooling: Sequence[str] = (),
    residents: Sequence[Resident] = (), *, restarted: bool = False,
) -> CardCheck:
    """Check the granted cards against the driver's report; `cooling` = the UUIDs of cards that take nothing new.

    `restarted` = the replica was on these cards before: faults of their memory do not end it for good.
    """
    found = [find(answer.cards, card_id) for card_id in granted]
    lost = [_lost(answer, card_id) for card_id, card in zip(granted, found) if card is None]
    check = CardCheck(found, None, _unchecked(answer, granted, found), use_uuids=bool(answer.lost))
    for card_id in filter(None, lost):
        why = answer.lost.get(card_id) or "; ".join(f"card {number}: {text}" for number, text in answer.lost.items())
        text = f"{_named(card_id)} is lost: the driver counts it and cannot open it ({why})"
        return check._replace(objection=text, code="CARD_LOST", failed=[card_id])
    for card in found:
        if card and card.fault and not restarted:
            text = f"{card} ({card.uuid}) has {card.fault}"
            return check._replace(objection=text, code="CARD_FAULTY", failed=[card.number, card.uuid])
        if card and card.uuid and card.uuid in cooling:
            text = f"{card} ({card.uuid}) is cooling: several models failed on it recently"
            return check._replace(objection=text, code="CARD_COOLING")
    checked = [card for card in found if card and not card.is_divided]
    return check._replace(objection=objection(checked, gpu_share, vram_bytes, residents))


def _lost(answer: Answer, granted: str) -> Optional[str]:
    """Return the id if it is that of a card which cannot be opened: by its number, or since no card has this UUID."""
    by_uuid = granted[:4] in ("GPU-", "MIG-") and bool(answer.lost) and not answer.trouble
    return granted if granted in answer.lost or by_uuid else None


def _named(card_id: str) -> str:
    return f"card {card_id}" if card_id.isdigit() else card_id


def _unchecked(answer: Answer, granted: Sequence[str], found: Sequence[Optional[Card]]) -> Optional[str]:
    reported = answer.cards or answer.lost
    unknown = [card_id for card_id, card in zip(granted, found) if card is None] if reported else list(granted)
    if unknown and answer.trouble:
        return answer.trouble
    if unknown and reported:
        return f"the NVIDIA driver reports no memory for {', '.join(unknown)}"
    divided = [card for card in found if card and card.is_divided]
    return f"{divided[0]} is divided (MIG), but was granted by its number" if divided else None


def objection(
    cards: Sequence[Card], gpu_share: int, vram_bytes: int, residents: Sequence[Resident] = ()
) -> Optional[str]:
    """Return why no engine may start on `cards`, with the arithmetic, or None.

    Every card must have `vram_bytes` free. A whole card must also be clean: beside its known `residents`, at most
    max(1Gi, 2 % of it) in use, unless its memory is the host's.
    """
    for card in cards:
        if card.free < vram_bytes:
            need = vram_bytes // MIB
            return f"{card} has {card.free // MIB}Mi of {card.total // MIB}Mi free, {need}Mi needed"
        if gpu_share < 10_000 or card.is_unified:
            continue
        known = sum(one.memory for one in residents if _is_there(one, card))
        if card.used > known + max(1 << 30, card.total // 50):
            by = users_text(card.pids) or " by another process"
            beside = f", {known // MIB}Mi belong to its residents" if known else ""
            return f"{card} was granted whole, but {card.used // MIB}Mi of it are in use{by}{beside}"
    return None


def _is_there(resident: Resident, card: Card) -> bool:
    """Return whether a resident's memory belongs on a card; one with a name only while such a process uses the card.

    If the processes of the card are not known, any use counts as the resident's.
    """
    called = [is_called(pid, resident.process) for pid in card.pids] if resident.process else [True]
    return any(called) or all(one is None for one in called)


def names_for_engine(granted: Sequence[str], check: CardCheck) -> List[str]:
    """Return the ids by which an engine finds its cards: those granted, or UUIDs where numbers may mean other cards."""
    found = check.cards if check.use_uuids else [None] * len(granted)
    return [card.uuid if card and card.uuid else card_id for card_id, card in zip(granted, found)]


def numbers(granted: Sequence[str], check: CardCheck) -> List[int]:
    """Return the numbers of the granted cards, each once: the driver's, or else Ray's if it grants by number."""
    found = check.cards or [None] * len(granted)
    texts = [card.number if card else card_id for card_id, card in zip(granted, found)]
    return [int(text) for text in dict.fromkeys(texts) if text.isdigit()]


def uuids(check: CardCheck) -> List[str]:
    """Return the UUIDs of the granted cards that the driver reports."""
    return [card.uuid for card in check.cards if card and card.uuid]


def wait_for_clean_cards(granted: Sequence[str], gpu_share: int, vram_bytes: int, env: Mapping[str, str], *,
                         cooling: Sequence[str] = (), residents: Sequence[Resident] = (), restarted: bool = False,
                         stable: bool = False) -> CardCheck:
    """Return the check once the granted cards are clean, or after CLEAN_S; without a claim the driver is not asked.

    `stable` = also wait until memory in use has stopped falling: two equal samples in a row, or a higher one.
    """
    if gpu_share == 0:
        return CardCheck()
    deadline = time.monotonic() + CLEAN_S
    before: Optional[List[int]] = None
    while True:
        check = check_granted(query_driver(env), granted, gpu_share, vram_bytes, cooling, residents,
                              restarted=restarted)
        used = [card.used for card in check.cards if card]
        is_stable = not (stable and used) or (before is not None and all(map(operator.ge, used, before)))
        if (check.objection is None and is_stable) or check.is_final or time.monotonic() >= deadline:
            return check
        before = used
        time.sleep(2 if check.objection else SAMPLE_S)
