"""Rows on a pool of nodes: whole cards in groups, shares of cards in packings, both together, and CPU and memory.

Amounts that add up are bounded as sums, and with floor(amount / t) for each demanded amount t: 3 + 3 free CPUs do not
hold a member of 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import gcd
from typing import NamedTuple

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.exact.card_packings import Piece, TooManyError, maximal_packings
from fleetctl.planner.placement.exact.columns import Holdings, Pool, picks_blindly
from fleetctl.planner.placement.exact.linear import LinearModel
from fleetctl.planner.placement.ledger.cards import share_of
from fleetctl.planner.placement.tally import Tally

FINEST = 1_000_000
MAX_PACKINGS = 2_000
MAX_PACKING_COLUMNS = 6_000


class Term(NamedTuple):
    """A column that counts members of one claim on a pool."""

    claim: Claim
    column: int


class CardClass(NamedTuple):
    """Cards of a pool that take the same packings of the demanded shares."""

    whole: bool
    vram: int
    """Only distinguished for whole cards, if members that take whole cards compete for it."""
    packings: tuple[tuple[int, ...], ...]


class _Used(NamedTuple):
    """A column that counts whole cards with this much memory that are used up by shares."""

    column: int
    vram: int


def add_card_rows(model: LinearModel, tally: Tally, pool: Pool, terms: Sequence[Term], holdings: Holdings) -> None:
    """Bound the members with cards on a pool; for a single node on which Ray's choice matters, by Ray's rule."""
    asked = [term for term in terms if term.claim.wants_card]
    whole = [term for term in asked if term.claim.whole_cards]
    shares = [term for term in asked if not term.claim.whole_cards]
    if pool.node is not None and shares and _holding_rows(model, tally, pool, asked, holdings):
        return
    used: list[_Used] = []
    if shares:
        with suppress(TooManyError):  # then only the sums below bound them
            used = _packing_rows(model, tally, pool, shares, whole)
    if asked:
        _group_rows(model, tally, pool, whole, used)
        _total_row(model, tally, pool, asked)


def _holding_rows(model: LinearModel, tally: Tally, pool: Pool, asked: Sequence[Term], holdings: Holdings) -> bool:
    """Make a node hold one of the multisets that Ray's rule allows; False if not needed, or if there are too many."""
    offer = tally.problem.nodes[int(pool.rows[0])].offer
    claims = sorted({term.claim.on_cards for term in asked})
    if not picks_blindly(offer, claims):
        return False
    of_claim = [[term.column for term in asked if term.claim.on_cards == claim] for claim in claims]
    most = [int(sum(model.highs[column] for column in columns)) for columns in of_claim]
    found = holdings.of(offer, claims, most)
    if found is None:
        return False
    chosen = [model.column(1) for _ in found]
    model.at_most([(column, 1) for column in chosen], 1)
    for place, columns in enumerate(of_claim):
        held = [(column, -float(counts[place])) for column, counts in zip(chosen, found, strict=True) if counts[place]]
        model.row([*((column, 1.0) for column in columns), *held], -np.inf, 0)
    return True


def _group_rows(model: LinearModel, tally: Tally, pool: Pool, whole: Sequence[Term], used: Sequence[_Used]) -> None:
    """Bound the groups of s whole cards with at least v bytes each by what the nodes hold."""
    nodes = pool.counts
    sizes = sorted({term.claim.whole_cards for term in whole})
    for vram in sorted({term.claim.vram for term in whole} | {0}):
        having = [term for term in whole if term.claim.vram >= vram]
        for size in sizes:
            room = int(nodes @ (tally.whole_cards(vram)[pool.rows] // size))
            terms = _in_groups(having, size)
            if terms:
                model.at_most([*terms], room)
        taken = tuple((one.column, 1.0) for one in used if one.vram >= vram)
        if taken:
            model.at_most([*_in_groups(having, 1), *taken], int(nodes @ tally.free_cards(vram)[pool.rows]))


def _in_groups(terms: Sequence[Term], size: int) -> tuple[tuple[int, float], ...]:
    """Return (column, number of groups of `size` cards that one member takes) pairs."""
    groups = [(term.column, term.claim.whole_cards // size) for term in terms]
    return tuple((column, float(count)) for column, count in groups if count)


def _total_row(model: LinearModel, tally: Tally, pool: Pool, asked: Sequence[Term]) -> None:
    """Bound the GPU share by what Ray has free, which may be less than what the cards have."""
    amounts = [(term.column, term.claim.gpus) for term in asked if term.claim.gpus]
    if amounts:
        unit = gcd(*(amount for _, amount in amounts))
        model.at_most([(column, float(amount // unit)) for column, amount in amounts],
                      float(pool.counts @ (tally.free_share[pool.rows] // unit)))


def _packing_rows(
    model: LinearModel, tally: Tally, pool: Pool, shares: Sequence[Term], whole: Sequence[Term],
) -> list[_Used]:
    """Bound shares by packings of cards; returns the columns that count the whole cards used up by packings."""
    claims = sorted({term.claim[:2] for term in shares})
    classes = _card_classes(tally, claims, pool, tell_vram=any(term.claim.vram for term in whole))
    covering: dict[tuple[int, int], list[tuple[int, float]]] = {claim: [] for claim in claims}
    used: list[_Used] = []
    weights = dict(zip(pool.rows.tolist(), pool.counts.tolist(), strict=True))
    for kind, rows in sorted(classes.items()):
        count = sum(weights[row] for row in rows)
        columns = [model.column(count) for _ in kind.packings]
        model.at_most([(column, 1.0) for column in columns], count)
        used += [_Used(column, kind.vram) for column in columns if kind.whole]
        for column, packing in zip(columns, kind.packings, strict=True):
            for claim, times in zip(claims, packing, strict=True):
                if times:
                    covering[claim].append((column, -float(times)))
    for claim, columns_of in covering.items():
        members = [(term.column, 1.0) for term in shares if term.claim[:2] == claim]
        model.row([*members, *columns_of], -np.inf, 0)
    return used


def _card_classes(
    tally: Tally, claims: Sequence[tuple[int, int]], pool: Pool, *, tell_vram: bool
) -> dict[CardClass, list[int]]:
    """Sort the cards of a pool into classes, each with the rows of its cards. Raises TooManyError."""
    classes: dict[CardClass, list[int]] = {}
    known: dict[tuple[int, int, int], CardClass] = {}
    entries, cards, columns = tally.cards_on(pool.rows), tally.cards, 0
    tell = any(vram for _, vram in claims) or tell_vram
    for row, share, vram, memory in zip(
        cards.node[entries].tolist(), cards.share[entries].tolist(), cards.vram[entries].tolist(),
        cards.memory[entries].tolist(), strict=True,
    ):
        seen = (share, vram, memory) if tell else (share, 0, 0)
        if seen not in known:
            pieces = [Piece(gpus or share_of(asked, memory), asked) for gpus, asked in claims]
            packings = maximal_packings(pieces, share, vram, MAX_PACKINGS)
            known[seen] = CardClass(share == SHARE, max(0, vram) if share == SHARE and tell_vram else 0, packings)
            columns += len(packings)
        classes.setdefault(known[seen], []).append(row)
        if columns > MAX_PACKING_COLUMNS:
            raise TooManyError
    return {kind: found for kind, found in classes.items() if any(any(packing) for packing in kind.packings)}


def add_sum_rows(model: LinearModel, tally: Tally, pool: Pool, terms: Sequence[Term]) -> None:
    """Bound the CPU and the memory that members can take on a pool."""
    cpus = [(term.column, term.claim.cpus) for term in terms if term.claim.cpus]
    memory = [(term.column, term.claim.memory) for term in terms if term.claim.memory]
    add_floor_rows(model, cpus, tally.cpus[pool.rows], pool.counts)
    add_floor_rows(model, memory, tally.memory[pool.rows], pool.counts)


def add_floor_rows(model: LinearModel, asked: Sequence[tuple[int, int]], free: Ints, nodes: Ints) -> None:
    """Add sum(floor(amount / t) * members) <= sum(floor(free / t)) for each t; `asked` = (column, amount)."""
    sizes = sorted({amount for _, amount in asked})
    # first the unit of which all amounts are multiples, or a coarser one if numbers would become too large
    for step in {max(gcd(*sizes), sizes[-1] // FINEST), *sizes} if sizes else ():
        terms = [(column, float(amount // step)) for column, amount in asked if amount >= step]
        model.at_most(terms, float(nodes @ (free.clip(min=0) // step)))
