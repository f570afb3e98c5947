"""Pricing: the most valuable ways to fill one node of a class, at given prices of the items.

First one card is filled with shares, then cards are put together by doubling (two cards, four, eight), with the items
that take several whole cards coming in where so many cards are joined, and last the members without a card. The answer
is good, not proven best: sets of partial fillings are cut down on the way (see fills.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Floats, Ints
from fleetctl.planner.placement.ledger.cards import Offer, share_of
from fleetctl.planner.placement.patterns.fills import Fills, Frame, joined, merged, nothing, state_limits, trimmed
from fleetctl.planner.placement.problem import NodeClass, Problem

KEEP_ON_CARD, KEEP_ON_NODE = 300, 160
CELLS_ON_CARD, CELLS_ON_NODE = (2, 2, 100, 4), (8, 8)
"""Partial fillings kept on a card and on a node, and into how many cells each resource is cut; one is kept of a cell.

On the trace gpushare100 60 on a card lose 0.063 points; half the cells there, or 40 on a node, change less than 0.002.
"""
PRICES_LAST = 3
"""Pricings for which the prices of CPU, memory and share of a class hold: with one, the same trace takes 1 s longer."""

CardState = tuple[int, int | None, int | None]
"""Free share, free VRAM and memory of a card; cards in one state are alike."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What the items ask for, as columns: `gpus`, `cpus` in 1/10000, `vram`, `memory` in bytes."""

    gpus: Ints
    vram: Ints
    cpus: Ints
    memory: Ints

    @classmethod
    def of(cls, problem: Problem) -> Claims:
        """Return the claims of all items: the one member of each class of demand."""
        claims = [problem.kinds[demand.gangs[0].parts[0][0]][0] for demand in problem.demands]
        return cls(*(np.array([getattr(claim, name) for claim in claims], dtype=np.int64)
                     for name in ("gpus", "vram", "cpus", "memory")))


@dataclass(frozen=True, slots=True)
class NodeView:
    """One class of nodes as pricing sees it. `items` are the items that fit there; `limits` (items,) how many."""

    items: NDArray[np.intp]
    limits: Ints
    room: Ints
    """Free CPU and memory."""
    cards: tuple[tuple[CardState, int], ...]
    gpu_units: int


def node_view(problem: Problem, claims: Claims, node: NodeClass) -> NodeView:
    """Return a class of nodes as pricing sees it."""
    offer = node.offer
    states = _card_states(offer)
    items = np.array([item for item, demand in enumerate(problem.demands) if demand.gangs[0].parts[0][0] in node.allowed
                      and _fits_alone(claims, item, offer, states)], np.intp)
    limits = np.array([node.free_slots(problem.demands[item]) for item in items.tolist()], np.int64)
    units = min(offer.free_gpus, sum(state[0] * count for state, count in states))
    return NodeView(items, limits, np.array([offer.free_cpus, offer.free_memory], np.int64), states, units)


def _card_states(offer: Offer) -> tuple[tuple[CardState, int], ...]:
    clean = [card for card in offer.cards if not card.dirty and card.free_share > 0]
    states = Counter((card.free_share, card.free_vram, card.memory) for card in clean)
    return tuple(sorted(states.items(), key=lambda one: (one[0][0], one[0][1] or 0, one[0][2] or 0)))


def _fits_alone(claims: Claims, item: int, offer: Offer, states: tuple[tuple[CardState, int], ...]) -> bool:
    if claims.cpus[item] > offer.free_cpus or claims.memory[item] > offer.free_memory:
        return False
    if not claims.gpus[item] and not claims.vram[item]:
        return True
    whole = int(claims.gpus[item]) // SHARE
    vram = int(claims.vram[item])
    if whole:
        free = sum(count for state, count in states if state[0] == SHARE and _has_vram(state, vram))
        return free >= whole and offer.free_gpus >= whole * SHARE
    return any(_share_on(state, int(claims.gpus[item]), vram) <= state[0] and _has_vram(state, vram)
               for state, _ in states)


def _has_vram(state: CardState, vram: int) -> bool:
    return not vram or (state[1] is not None and state[1] >= vram)


def _share_on(state: CardState, gpus: int, vram: int) -> int:
    return gpus or share_of(vram, state[2])


class Pricer:
    """Prices one class of nodes; `worth` below are values by place in `node.items`."""

    def __init__(self, node: NodeView, claims: Claims) -> None:
        self.node = node
        self.gpus, self.vram = claims.gpus[node.items], claims.vram[node.items]
        self.use = np.stack([claims.cpus[node.items], claims.memory[node.items]])
        self.whole = self.gpus // SHARE
        self.cardless = (self.gpus == 0) & (self.vram == 0)
        largest = max((state[2] or 1 for state, _ in node.cards), default=1)
        self.units = np.where(self.gpus > 0, self.gpus, -(-self.vram * SHARE // largest))
        self.most = _most(self, node)
        self._prices: Floats = np.zeros(3)
        self._age = 0

    def resource_prices(self, worth: Floats, limits: Ints, live: NDArray[np.intp]) -> Floats:
        """Return what a unit of CPU, memory and GPU share is worth; they only rank, so old ones do for a while."""
        if self._age % PRICES_LAST == 0:
            self._prices = _resource_prices(self, worth, limits, live)
        self._age += 1
        return self._prices

    def best(self, worth: Floats, wanted: Ints, count: int) -> list[NDArray[np.int32]]:
        """Return up to `count` fillings, most valuable first, as numbers by place in `node.items`.

        `wanted` = how many of each item are still asked for; an item that is not worth anything is left out.
        """
        limits = np.minimum(self.node.limits, wanted)
        live = np.flatnonzero((worth > 1e-9) & (limits > 0))
        if not len(live):
            return []
        fills = _task(self, worth, limits, live).node()
        order = np.argsort(-fills.value, kind="stable")
        return [fills.counts[place] for place in order[:count] if fills.value[place] > 1e-9]


def _task(pricer: Pricer, worth: Floats, limits: Ints, live: NDArray[np.intp]) -> _Task:
    prices = pricer.resource_prices(worth, limits, live)
    net = worth - prices[:2] @ pricer.use - pricer.units * prices[2]
    ranked = live[np.argsort(-net[live], kind="stable")]
    counters = state_limits(ranked, limits, pricer.most)
    frame = Frame(pricer.node.room, prices[:2], CELLS_ON_NODE, KEEP_ON_NODE, counters)
    return _Task(pricer, worth, live[counters.counted[live]], prices, frame)


@dataclass(frozen=True, slots=True)
class _Task:
    """One pricing: `live` = places of the items worth having, `prices` of CPU, memory and GPU share."""

    pricer: Pricer
    worth: Floats
    live: NDArray[np.intp]
    prices: Floats
    frame: Frame

    def node(self) -> Fills:
        """Return fillings of the whole node."""
        fills = self._nothing(2)
        for state, count in self.pricer.node.cards:
            fills = merged(fills, self._cards(state, count), self.frame)
        return self._with_cardless(fills)

    def _nothing(self, resources: int) -> Fills:
        return nothing(resources, len(self.worth), len(self.frame.counters.guard))

    def _leaves(self, places: NDArray[np.intp], use: Ints) -> Fills:
        counts = np.zeros((len(places), len(self.worth)), np.int32)
        counts[np.arange(len(places)), places] = 1
        return Fills(self.worth[places], use, self.frame.counters.unit[:, places], counts)

    def _cards(self, state: CardState, count: int) -> Fills:
        """Return fillings of `count` cards in one state."""
        one = self._one_card(state)
        if state[0] < SHARE:
            return _power(one, count, self.frame)
        groups: dict[int, Fills] = {}
        for places in _by_number(self.live, self.pricer.whole):
            size = int(self.pricer.whole[places[0]])
            fitting = places[[_has_vram(state, int(vram)) for vram in self.pricer.vram[places]]]
            if 0 < size <= count and len(fitting):
                groups[size] = self._leaves(fitting, self.pricer.use[:, fitting])
        return _Cards(one, groups, self.frame).fill(count)

    def _one_card(self, state: CardState) -> Fills:
        """Return fillings of one card by shares."""
        pricer, places, shares = self.pricer, [], []
        for place in self.live:
            if pricer.whole[place] or pricer.cardless[place] or not _has_vram(state, int(pricer.vram[place])):
                continue
            share = _share_on(state, int(pricer.gpus[place]), int(pricer.vram[place]))
            if share <= state[0]:
                places.append(place)
                shares.append(share)
        empty = self._nothing(2)
        if not places:
            return empty
        chosen = np.array(places, np.intp)
        use = np.vstack([pricer.use[:, chosen], np.array(shares, np.int64), pricer.vram[chosen]])
        room = np.array([*self.pricer.node.room, state[0], state[1] or 0], np.int64)
        cells = (*CELLS_ON_CARD[:3], CELLS_ON_CARD[3] if use[3].any() else 0)
        frame = Frame(room, np.array([*self.prices, 0.0]), cells, KEEP_ON_CARD, self.frame.counters)
        fills = trimmed(joined(self._nothing(4), self._leaves(chosen, use)), frame)
        most = state[0] // min(shares)
        step = 1
        while step < most:
            fills = merged(fills, fills, frame)
            step *= 2
        return trimmed(fills.with_use([0, 1]), self.frame)

    def _with_cardless(self, fills: Fills) -> Fills:
        places = self.live[self.pricer.cardless[self.live]]
        if not len(places):
            return fills
        free = joined(self._nothing(2), self._leaves(places, self.pricer.use[:, places]))
        most = int(np.clip(self.pricer.most[places].max(), 1, 32))
        return merged(fills, _power(trimmed(free, self.frame), most, self.frame), self.frame)


def _most(pricer: Pricer, node: NodeView) -> Ints:
    """Return how many of each item could ever be on one node (each resource by itself)."""
    room = np.array([*node.room, node.gpu_units], np.int64)
    use = np.vstack([pricer.use, pricer.units])
    most: Ints = np.where(use > 0, room[:, None] // np.maximum(use, 1), 1 << 30).min(axis=0)
    return most


def _power(one: Fills, count: int, frame: Frame) -> Fills:
    """Return `count` fillings of a set put together."""
    if count == 1:
        return one
    half = _power(one, count // 2, frame)
    both = merged(half, half, frame)
    return merged(both, one, frame) if count % 2 else both


@dataclass(slots=True)
class _Cards:
    """Fills several free cards of one state; `groups` = items by the number of whole cards they take."""

    one: Fills
    groups: dict[int, Fills]
    frame: Frame
    done: dict[int, Fills] | None = None

    def fill(self, count: int) -> Fills:
        """Return fillings of `count` cards."""
        self.done = self.done or {}
        if count in self.done:
            return self.done[count]
        halves = (count // 2, count - count // 2)
        parts = [self.one if count == 1 else merged(self.fill(halves[0]), self.fill(halves[1]), self.frame)]
        for size, leaves in self.groups.items():
            if size == count:
                parts.append(leaves)
            elif size < count and (size > count // 2 or size & (size - 1)):
                parts.append(merged(leaves, self.fill(count - size), self.frame))
        self.done[count] = trimmed(joined(*parts), self.frame) if len(parts) > 1 else parts[0]
        return self.done[count]


def _by_number(places: NDArray[np.intp], number: Ints) -> list[NDArray[np.intp]]:
    return [places[number[places] == one] for one in np.unique(number[places])]


def _resource_prices(pricer: Pricer, worth: Floats, limits: Ints, live: NDArray[np.intp]) -> Floats:
    """Return what a unit of CPU, memory and GPU share is worth on such a node: duals of the fractional knapsack."""
    from scipy.optimize import linprog

    room = np.array([*pricer.node.room, pricer.node.gpu_units], np.float64)
    use = np.vstack([pricer.use[:, live], pricer.units[live]]).astype(np.float64)
    scale = np.maximum(room, 1.0)
    bounds = np.column_stack([np.zeros(len(live)), np.minimum(limits[live], 1 << 20)])
    solved = linprog(-worth[live], A_ub=use / scale[:, None], b_ub=room / scale, bounds=bounds, method="highs-ds")
    if solved.status != 0:
        return np.zeros(3)
    return -np.asarray(solved.ineqlin.marginals, np.float64) / scale

