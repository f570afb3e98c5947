"""Bid prices: what one more member of each kind is worth to a fleet, beyond the room that it takes.

A linear programme lays the expected members on groups of equal nodes: CPU, memory and GPU by volume, shares of a card
by whole patterns of one card (0.81 and 0.47 do not share one, whatever the volume says). The price of a kind's demand
row is what the fleet gains from one more of it; its worth to a node is the rest of its GPU share: what the room it
takes would have brought elsewhere. Bid prices: Talluri and van Ryzin 1998; patterns: Gilmore and Gomory 1961.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Floats, Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.exact.card_packings import Piece, TooManyError, maximal_packings
from fleetctl.planner.placement.worth.central_path import Programme, balanced_prices

MICRO = 1_000_000
"""Worth is counted in millionths of a card."""
GAP = 0.05
"""How far from the best the prices are taken, as a part of it: the nearer, the less a nearly scarce thing costs.

On the trace default, 100 tasks a plan, seed 42: 96.17 % so, 95.60 with the prices of a corner (HiGHS), 93.01 with none.
"""
MOST_PATTERNS = 300
MOST_SIZES = 8


def bid_prices(claims: Sequence[Claim], counts: Floats, room: Floats, shares: Ints) -> Ints:
    """Return what one member of each kind is worth to the room it takes, in millionths of a card, shape (kinds,).

    Between 0 and the member's own GPU share, 0 for what no node can host; rounded, so that the last bits of the
    arithmetic do not matter. `counts` = how many of each kind are expected; `room` = CPUs, bytes and cards of each
    group of alike nodes together, shape (groups, 3); `shares` = GPU share by group and kind in 1/10000, whole cards
    included, 0 = takes no card, -1 = no node of the group can host it.
    """
    need = np.array([(claim.cpus / SHARE, claim.memory) for claim in claims]).reshape(-1, 2)
    cpus, memory, cards = room.sum(axis=0)
    if not cards or (shares < 0).all():
        return np.zeros(len(claims), np.int64)
    # CPU and memory are counted in cards' worth: all CPUs together are as many as all cards together
    scale = cards / np.array([cpus or np.inf, memory or np.inf, cards])
    sizes, packings = _packings(_weighty_sizes(counts, shares))
    programme = _programme(counts, room * scale, need * scale[:2], shares, sizes, packings)
    x, price = _inside(programme, len(claims), len(sizes), len(programme.gain) - len(packings))
    prices = balanced_prices(programme, x, price, GAP)[: len(claims)]
    most = shares.max(axis=0)
    own = np.where(most == 0, (need * scale[:2]).max(axis=1), np.maximum(most, 0) / SHARE)
    worth: Ints = np.rint(np.clip(own - prices, 0, own) * MICRO).astype(np.int64)
    return worth


def _programme(counts: Floats, room: Floats, need: Floats, shares: Ints, sizes: Ints, packings: Ints) -> Programme:
    """Write the programme; rows: demand of each kind, CPU, memory and GPU of each group, sizes, cards.

    A member without a card gains what it needs most of, so that the programme does not leave it out.
    """
    kinds, cards = len(counts), float(room[:, 2].sum())
    first_size = kinds + room.size
    rows, values, gain, width = list[Ints](), list[Floats](), list[Floats](), list[int]()
    for place, here in enumerate(shares):
        hosted = np.flatnonzero(here >= 0)
        share, known = here[hosted] / SHARE, np.isin(here[hosted], sizes)
        own = np.tile(kinds + 3 * place + np.arange(3), (len(hosted), 1))
        of_cards = first_size + np.where(known, np.searchsorted(sizes, here[hosted]), len(sizes))
        rows.append(np.column_stack([hosted, own, of_cards]).ravel())
        values.append(np.column_stack([share >= 0, need[hosted], share, np.where(known, 1.0, share)]).ravel())
        gain.append(np.where(share > 0, share, need[hosted].max(axis=1)))
        width += [5] * len(hosted)
    rows.append(np.tile(first_size + np.arange(len(sizes) + 1), len(packings)))
    values.append(np.column_stack([-packings, np.ones(len(packings))]).ravel())
    gain.append(np.zeros(len(packings)))
    width += [len(sizes) + 1] * len(packings)
    limit = np.concatenate([np.concatenate([counts, room.ravel()]).clip(min=1e-6 * cards), 0.0 * sizes, [cards]])
    row, column, value = np.concatenate(rows), np.repeat(np.arange(len(width)), width), np.concatenate(values)
    used = value != 0
    return Programme(row[used], column[used], value[used], limit, np.concatenate(gain))


def _inside(programme: Programme, kinds: int, sizes: int, demand_columns: int) -> tuple[Floats, Floats]:
    """Return a point strictly inside: few members everywhere, more patterns than they need, prices too high.

    The constants only have to leave some slack everywhere; where the path ends does not depend on them.
    """
    entry = programme.columns < demand_columns
    ways = np.bincount(programme.rows[programme.rows < kinds], minlength=kinds)
    cover = -np.bincount(programme.rows[~entry], programme.values[~entry], len(programme.limit))
    sized = slice(len(programme.limit) - 1 - sizes, len(programme.limit) - 1)
    x = np.zeros(len(programme.gain))
    first = entry & (programme.rows < kinds)
    x[programme.columns[first]] = (0.5 * programme.limit[:kinds] / np.maximum(ways, 1))[programme.rows[first]]
    for _ in range(200):
        if sizes:
            x[demand_columns:] = 0.0
            need = float((programme.times(x)[sized] / cover[sized]).max())
            x[demand_columns:] = 1.5 * max(need, 1e-9 * programme.limit[-1])
        slack = programme.limit - programme.times(x)
        if (slack[: sized.start] > 0.2 * programme.limit[: sized.start]).all() and \
                slack[-1] > 0.1 * programme.limit[-1] and (slack > 0).all():
            break
        x *= 0.8
    price = np.full(len(programme.limit), 0.3)
    if sizes:
        per_pattern = -np.bincount(programme.columns[~entry], np.where(
            programme.rows[~entry] < sized.stop, programme.values[~entry], 0.0), len(programme.gain))
        price[-1] = 1 + 0.3 * float(per_pattern.max())
    excess = programme.cost(price) - programme.gain
    np.maximum.at(price, programme.rows[first], 0.6 - excess[programme.columns[first]])
    return x, price


def _weighty_sizes(counts: Floats, shares: Ints) -> list[int]:
    """Return the shares below one card that most of the demand has, heaviest first."""
    weight: dict[int, float] = {}
    for here in shares.tolist():
        for count, share in zip(counts.tolist(), here, strict=True):
            if 0 < share < SHARE:
                weight[share] = weight.get(share, 0.0) + count * share
    return sorted(weight, key=lambda size: (-weight[size], size))[:MOST_SIZES]


def _packings(sizes: Sequence[int]) -> tuple[Ints, Ints]:
    """Return the heaviest sizes whose packings are not too many, and these: how many of each size one card carries."""
    for count in range(len(sizes), 0, -2):
        kept = sorted(sizes[:count])
        with suppress(TooManyError):
            packings = maximal_packings([Piece(size, 0) for size in kept], SHARE, 0, MOST_PATTERNS)
            return np.array(kept, np.int64), np.array(packings, np.int64)
    return np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
