"""Shares and whole cards of one node as rows of a CP-SAT model: any layout of shares is allowed, and whole clean cards.

That is the truth where cards are alike and clean. Where cards differ in free memory, or some are in foreign use, Ray's
blind choice makes the truth smaller.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

from simulated import WHOLE, SimNode

MAX_PATTERNS = 3000


class CardClass(NamedTuple):
    """Cards that are equal: free share in 1/10000, free bytes (-1 = unknown), bytes in all (0 = unknown)."""

    free: int
    free_vram: int
    memory: int
    clean: bool = True

    @property
    def whole(self) -> bool:
        return self.clean and self.free == WHOLE

    def holds(self, vram: int) -> bool:
        return vram == 0 or self.free_vram >= vram


CardWant = tuple[int, int]
"""(gpus in 1/10000, vram in bytes) of a member."""


def card_classes(node: SimNode, *, vram_matters: bool) -> Counter[CardClass]:
    """Count the cards with something free by what they have; without a known memory only clean ones."""
    found: Counter[CardClass] = Counter()
    for card in node.cards:
        if card.share >= WHOLE or (card.dirty and not card.memory):
            continue
        free = -1 if card.memory is None else card.memory - max(card.measured, card.vram + card.residents) - card.reserve
        vram = (free, card.memory or 0) if vram_matters else (0, 0)
        found[CardClass(WHOLE - card.share, *vram, not card.dirty)] += 1
    return found


def share_on(want: CardWant, card: CardClass) -> int | None:
    """Return the share `want` takes of such a card; None if it does not fit."""
    gpus, vram = want
    if not card.holds(vram):
        return None
    share = gpus or (-(-vram * WHOLE // card.memory) if card.memory else WHOLE + 1)
    return share if share <= card.free else None


def most_on(want: CardWant, classes: Counter[CardClass]) -> int:
    """Return how many members of one kind a node's cards can hold at most."""
    gpus, vram = want
    if gpus >= WHOLE:
        return sum(n for card, n in classes.items() if card.whole and card.holds(vram)) // (gpus // WHOLE)
    return sum(n * next((times for times in range(1 + WHOLE // share, 0, -1) if _has_room(card, {want: times})), 0)
               for card, n in classes.items() if (share := share_on(want, card)))


@lru_cache(maxsize=10_000)
def maximal_patterns(card: CardClass, wants: tuple[CardWant, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the maximal ways to fill one card with shares: counts by index in `wants`."""
    return tuple(_extend(card, wants, 0, (0, ) * len(wants)))


def _extend(card: CardClass, wants: tuple[CardWant, ...], place: int, counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    if place == len(wants):
        return [counts] if _is_maximal(card, wants, counts) else []
    while _has_room(card, dict(zip(wants, counts, strict=True))):
        found += _extend(card, wants, place + 1, counts)
        counts = (*counts[:place], counts[place] + 1, *counts[place + 1:])
    if len(found) > MAX_PATTERNS:
        raise ValueError("too many ways to fill one card: keep the shares of a family coarser")
    return found


def _is_maximal(card: CardClass, wants: tuple[CardWant, ...], counts: tuple[int, ...]) -> bool:
    if not any(counts) or not _has_room(card, dict(zip(wants, counts, strict=True))):
        return False
    return not any(_has_room(card, {w: n + (place == p) for p, (w, n) in enumerate(zip(wants, counts, strict=True))})
                   for place in range(len(wants)))


def _has_room(card: CardClass, counts: dict[CardWant, int]) -> bool:
    share = vram = 0
    for want, count in counts.items():
        if count:
            one = share_on(want, card)
            if one is None:
                return False
            share += one * count
            vram += want[1] * count
    return share <= card.free and (vram == 0 or vram <= card.free_vram)


def add_card_rows(model: Any, classes: Counter[CardClass], on_node: dict[CardWant, list[Any]]) -> None:
    """Require that the members `on_node` (lists of terms by claim) fit the cards of one node together."""
    whole = {want: terms for want, terms in on_node.items() if want[0] >= WHOLE}
    shares = {want: terms for want, terms in on_node.items() if want[0] < WHOLE}
    used: dict[CardClass, list[Any]] = {card: [] for card in classes}
    _add_whole(model, classes, whole, used)
    _add_shares(model, classes, shares, used)
    for card, count in classes.items():
        if used[card]:
            model.add(sum(used[card]) <= count)


def _add_whole(
    model: Any, classes: Counter[CardClass], whole: dict[CardWant, list[Any]], used: dict[CardClass, list[Any]]
) -> None:
    for vram in {want[1] for want in whole}:
        fitting = [card for card in classes if card.whole and card.holds(vram)]
        taken = [gpus // WHOLE * term for (gpus, need), terms in whole.items() if need == vram for term in terms]
        if len(fitting) == 1:
            used[fitting[0]] += taken
            continue
        given = [model.new_int_var(0, classes[card], "") for card in fitting]
        model.add(sum(taken) <= sum(given))
        for card, cards in zip(fitting, given, strict=True):
            used[card].append(cards)
    sizes = {gpus // WHOLE for gpus, _ in whole}
    free = sum(count for card, count in classes.items() if card.whole)
    for size in sizes - {1}:  # implied, but cuts off fractional solutions
        model.add(sum((gpus // WHOLE // size) * term for (gpus, _), terms in whole.items() for term in terms
                      if gpus // WHOLE >= size) <= free // size)


def _add_shares(
    model: Any, classes: Counter[CardClass], shares: dict[CardWant, list[Any]], used: dict[CardClass, list[Any]]
) -> None:
    if not shares:
        return
    wants = tuple(sorted(shares))
    room: dict[CardWant, list[Any]] = {want: [] for want in wants}
    for card, count in classes.items():
        for pattern in maximal_patterns(card, wants):
            cards = model.new_int_var(0, count, "")
            used[card].append(cards)
            for want, times in zip(wants, pattern, strict=True):
                if times:
                    room[want].append(times * cards)
    for want in wants:
        model.add(sum(shares[want]) <= sum(room[want]))
