"""Why offers cannot take a claim: for each the first rule that stops it, with what was needed and what was there.

Follows the rule by which cards are handed out (`cards.py`), for all rows of a table at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, share_of
from fleetctl.planner.placement.reasons.codes import (
    CARD_IN_USE,
    CARD_UNKNOWN,
    CLOSEST_FIRST,
    CPU,
    FITS,
    GPU,
    MEMORY,
    VRAM,
)
from fleetctl.planner.placement.reasons.offer_table import OfferTable
from fleetctl.planner.placement.reasons.words import amount, need_text

NOBODY = -1
"""In `card`: no single card is to blame."""

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Per row: the code that stops it (FITS = none), the amounts, and the card Ray would hand out if that matters."""

    code: Ints
    need: Ints
    have: Ints
    card: Ints

    @classmethod
    def open(cls, rows: int) -> Verdicts:
        """Return verdicts that let everything pass."""
        code, need, have, card = np.zeros((4, rows), dtype=np.int64)
        code[:], card[:] = FITS, NOBODY
        return cls(code, need, have, card)

    @classmethod
    def stopped(cls, code: Ints) -> Verdicts:
        """Return verdicts of these codes, with nothing measured."""
        need, have, card = np.zeros((3, len(code)), dtype=np.int64)
        return cls(code, need, have, card)

    def put(self, rows: Ints, other: Verdicts) -> None:
        """Put other verdicts in place of some rows, in the order of `rows`."""
        self.code[rows], self.need[rows], self.have[rows], self.card[rows] = (
            other.code, other.need, other.have, other.card)

    def overrule(self, rows: Ints, code: int, need: int = 0) -> None:
        """Stop some rows whatever they said before."""
        self.code[rows], self.need[rows], self.have[rows] = code, need, 0

    def refuse(self, where: Flags, code: int, need: int | Ints, have: int | Ints, card: Ints | None = None) -> None:
        """Refuse the rows in `where` that nothing has refused yet."""
        rows = where & (self.code == FITS)
        self.code[rows] = code
        self.need[rows] = need if isinstance(need, int) else need[rows]
        self.have[rows] = have if isinstance(have, int) else have[rows]
        if card is not None:
            self.card[rows] = card[rows]

    def at(self, rows: Ints) -> Verdicts:
        """Return the verdicts of some rows, also one row many times."""
        return Verdicts(self.code[rows], self.need[rows], self.have[rows], self.card[rows])


def judge_offers(table: OfferTable, claim: Claim) -> Verdicts:
    """Judge every row of `table` for one more `claim`; a row fits exactly where `cards.take` would take it."""
    found = Verdicts.open(len(table))
    if claim.whole_cards:
        _judge_whole(table, claim, found)
    elif claim.gpus:
        _judge_share(table, claim, found)
    elif claim.vram:
        _judge_vram(table, claim, found)
    found.refuse(table.free_cpus < claim.cpus, CPU, claim.cpus, table.free_cpus)
    found.refuse(table.free_memory < claim.memory, MEMORY, claim.memory, table.free_memory)
    return found


def _judge_size(table: OfferTable, claim: Claim, found: Verdicts) -> None:
    """Cards that are too small even when nobody uses them: that comes before what is free of them."""
    wanted = max(1, claim.whole_cards)
    if not claim.vram or wanted > table.memory.shape[1]:
        return
    nth = np.sort(table.memory, axis=1)[:, ::-1][:, wanted - 1]
    known = np.logical_not((table.real & (table.memory <= 0)).any(axis=1))
    found.refuse(known & (nth > 0) & (nth < claim.vram), VRAM, claim.vram, nth)


def _judge_whole(table: OfferTable, claim: Claim, found: Verdicts) -> None:
    wanted = claim.whole_cards
    _judge_size(table, claim, found)
    count = np.minimum(table.whole.sum(axis=1), table.free_gpus // SHARE)
    found.refuse(count < wanted, GPU, wanted, count)
    clean = table.clean.sum(axis=1)
    found.refuse(clean < wanted, CARD_IN_USE, wanted, clean)
    if claim.vram:
        free = np.sort(np.where(table.clean, table.vram, -2), axis=1)[:, ::-1]
        nth = free[:, wanted - 1] if wanted <= free.shape[1] else np.full(len(table), -2)
        found.refuse(nth < 0, CARD_UNKNOWN, claim.vram, 0)
        found.refuse(nth < claim.vram, VRAM, claim.vram, nth)


def _judge_share(table: OfferTable, claim: Claim, found: Verdicts) -> None:
    _judge_size(table, claim, found)
    pick = _blind_pick(table, claim.gpus)
    found.refuse(pick < 0, GPU, claim.gpus, table.most_share)
    _judge_pick(table, claim, pick, pick >= 0, found)


def _judge_vram(table: OfferTable, claim: Claim, found: Verdicts) -> None:
    """VRAM alone: speak of memory, not of shares, where no card has it; the share depends on the card."""
    known = table.vram >= 0
    found.refuse(_none(table.real), GPU, SHARE, 0)
    found.refuse(_none(known), CARD_UNKNOWN, claim.vram, 0)
    clean = known & ~table.dirty
    found.refuse(_none(clean), CARD_IN_USE, 1, 0)
    most = np.where(clean, table.vram, 0).max(axis=1)
    found.refuse(most < claim.vram, VRAM, claim.vram, most)
    fits, pick, least = _picks_by_size(table, claim.vram)
    found.refuse(~fits & (pick < 0), GPU, least, table.most_share)
    _judge_pick(table, claim, pick, ~fits, found)
    # What is left has its memory, but on a card where it would mean another share than the one Ray was asked for.
    found.refuse(~fits, VRAM, claim.vram, 0, table.index[np.arange(len(table)), pick])


def _none(cards: Flags) -> Flags:
    """Return the rows in which there is none of these cards."""
    none: Flags = np.logical_not(cards.any(axis=1))
    return none


def _judge_pick(table: OfferTable, claim: Claim, pick: Ints, where: Flags, found: Verdicts) -> None:
    """Blame the card Ray would hand out (a column per row): somebody uses it, or its memory will not do."""
    rows = np.arange(len(table))
    index, vram = table.index[rows, pick], table.vram[rows, pick]
    found.refuse(where & table.dirty[rows, pick], CARD_IN_USE, 1, 0, index)
    if claim.vram:
        found.refuse(where & (vram < 0), CARD_UNKNOWN, claim.vram, 0)
        best = np.maximum(table.vram.max(axis=1), 0)
        found.refuse(where & (best < claim.vram), VRAM, claim.vram, best)
        found.refuse(where & (vram < claim.vram), VRAM, claim.vram, vram, index)


def _blind_pick(table: OfferTable, share: int) -> Ints:
    """Return the column of the card Ray gives to a share: the least that holds it, lowest index first; -1 = none."""
    left = np.where((table.share >= share) & (table.free_gpus >= share)[:, None], table.share, _NEVER)
    pick = left.argmin(axis=1)
    return np.where(left[np.arange(len(table)), pick] == _NEVER, -1, pick)


def _picks_by_size(table: OfferTable, vram: int) -> tuple[Flags, Ints, Ints]:
    """Try the share that `vram` means on each size of card: who fits, the first card picked, the least share asked."""
    rows = np.arange(len(table))
    fits, first = np.zeros(len(table), dtype=bool), np.full(len(table), -1)
    least = np.full(len(table), SHARE)
    sizes = [int(size) for size in np.unique(table.memory) if size >= vram]
    for share in sorted({share_of(vram, size) for size in sizes}, reverse=True):
        of_share = np.isin(table.memory, [size for size in sizes if share_of(vram, size) == share])
        asked = of_share.any(axis=1)
        pick = np.where(asked, _blind_pick(table, share), -1)
        fits |= (pick >= 0) & of_share[rows, pick] & ~table.dirty[rows, pick] & (table.vram[rows, pick] >= vram)
        first = np.where(first < 0, pick, first)
        least = np.where(asked, np.minimum(least, share), least)
    return fits, first, least


def refusal(offer: Offer, claim: Claim) -> tuple[str, str] | None:
    """Return what one offer would need for `claim` and what it has, in words; None when the claim fits."""
    found = judge_offers(OfferTable.of([offer]), claim)
    number, need, have, card = (int(array[0]) for array in (found.code, found.need, found.have, found.card))
    if number == FITS:
        return None
    code = CLOSEST_FIRST[number]
    return need_text(code, need, claim, card), amount(code, have, claim)
