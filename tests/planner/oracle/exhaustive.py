"""The optimum of a very small fleet, by trying every order and every choice of nodes.

Ray's blind choice of cards is followed exactly, so this may be below what the oracle finds; where cards are all alike
the two must agree, which is how the oracle itself is tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from simulated import SimNode

from oracle.optimum import Level, Optimum
from oracle.question import Ask, Gang, Question, Want, allowed, labels_of, slots_left

MAX_STATES, MAX_MEMBERS = 3_000, 4

Nodes = tuple[SimNode, ...]
Vector = tuple[int, ...]
Missing = tuple[tuple[int, int], ...]
"""By ask: (replicas missing, models unserved)."""


class TooLarge(Exception):
    """Too many packings to try them all."""


def try_everything(question: Question) -> Optimum:
    """Return the best vector of any sequence of placements; raises TooLarge."""
    if any(ask.size > MAX_MEMBERS for ask in question.asks):
        raise TooLarge
    search = _Search(question)
    missing = tuple((ask.missing, ask.unserved) for ask in question.asks)
    vector = search.best(tuple(_copy(node) for node in question.nodes), missing)
    levels = {priority: Level(*vector[3 * place: 3 * place + 3]) for place, priority in enumerate(question.priorities)}
    return Optimum(levels, proven=True)


class _Search:
    def __init__(self, question: Question) -> None:
        self.asks = question.asks
        self.level = {priority: place for place, priority in enumerate(question.priorities)}
        self.known: dict[tuple[object, ...], Vector] = {}

    def best(self, nodes: Nodes, missing: Missing) -> Vector:
        """Return the best possible additions by priority: served, GPU share, replicas."""
        state = (tuple(_state_of(node) for node in nodes), missing)
        if state not in self.known:
            if len(self.known) >= MAX_STATES:
                raise TooLarge
            self.known[state] = max(self._additions(nodes, missing), default=(0,) * 3 * len(self.level))
        return self.known[state]

    def _additions(self, nodes: Nodes, missing: Missing) -> Iterator[Vector]:
        for place, ask in enumerate(self.asks):
            if not missing[place][0]:
                continue
            left = _less(missing, place)
            first = left[place][1] < missing[place][1]
            for after in _with_one_more(nodes, ask):
                yield self._plus(self.best(after, left), ask, first)

    def _plus(self, rest: Vector, ask: Ask, first: bool) -> Vector:
        start = 3 * self.level[ask.priority]
        served, units, replicas = rest[start: start + 3]
        return (*rest[:start], served + first, units + ask.units, replicas + 1, *rest[start + 3:])


def _less(missing: Missing, place: int) -> Missing:
    """Subtract one replica; it is a model's first as long as some model has none."""
    replicas, unserved = missing[place]
    return (*missing[:place], (replicas - 1, max(0, unserved - 1)), *missing[place + 1:])


def _with_one_more(nodes: Nodes, ask: Ask) -> Iterator[Nodes]:
    """Yield the nodes after one more replica, for every way to place it."""
    seats = [(gang, copy, want) for gang in ask.gangs for copy in range(gang.copies)
             for want, count in gang.parts for _ in range(count)]
    free = {place for place, node in enumerate(nodes)
            if slots_left(node, ask.keys[0], wants_cards=ask.wants_cards) != 0 and _has_room(node, ask)}
    visited = set()
    for after, chosen in _seated(nodes, seats, free, (), ask.as_one):
        state = tuple(_state_of(node) for node in after), frozenset(chosen)
        if state not in visited:
            visited.add(state)
            held = (_with_slot(node, ask.keys[0]) if ask.capped and place in chosen else node
                    for place, node in enumerate(after))
            values = {labels_of(after[place]).get(ask.label) for place in chosen} if ask.label else set()
            yield tuple(_with_slot(node, _crowd(ask)) if labels_of(node).get(ask.label) in values else node
                        for node in held)


def _crowd(ask: Ask) -> str:
    """The key under which every node of a value counts the new replicas that touch it."""
    return f"{ask.keys[0]} by {ask.label}"


def _has_room(node: SimNode, ask: Ask) -> bool:
    value = labels_of(node).get(ask.label)
    return not ask.label or (value is not None and node.slots.get(_crowd(ask), 0) < dict(ask.room)[value])


def _seated(
    nodes: Nodes, seats: list[tuple[Gang, int, Want]], free: set[int], chosen: tuple[int, ...], as_one: str
) -> Iterator[tuple[Nodes, tuple[int, ...]]]:
    if len(chosen) == len(seats):
        yield nodes, chosen
        return
    gang, copy, want = seats[len(chosen)]
    mates = [place for (other, number, _), place in zip(seats, chosen, strict=False) if (other, number) == (gang, copy)]
    tried = set()
    for place in free:
        if not _may_join(nodes, gang, mates, place) or not allowed(want, nodes[place]):
            continue
        if as_one and not _in_one_value(nodes, as_one, [*chosen, place]):
            continue
        node = nodes[place]
        alike = _state_of(node), tuple(sorted(node.node.labels.items()))
        if len(seats) == 1 and alike in tried:
            continue
        tried.add(alike)
        copied = _copy(node)
        if _take(copied, want) is not None:
            yield from _seated((*nodes[:place], copied, *nodes[place + 1:]), seats, free, (*chosen, place),
                               as_one)


def _may_join(nodes: Nodes, gang: Gang, mates: list[int], place: int) -> bool:
    if gang.size == 1:
        return True
    together = not gang.label or _in_one_value(nodes, gang.label, [*mates, place])
    return Counter(mates)[place] < gang.per_node and together


def _in_one_value(nodes: Nodes, label: str, places: list[int]) -> bool:
    values = {nodes[place].node.labels.get(label) for place in places}
    return len(values) == 1 and None not in values


def _with_slot(node: SimNode, key: str) -> SimNode:
    return replace(node, slots={**node.slots, key: node.slots.get(key, 0) + 1})


def _take(node: SimNode, want: Want) -> list[int] | None:
    if want.gpus or not want.vram:
        return node.take(want.gpus, want.vram, want.cpus, want.memory)
    for share in {node.share_for(0, want.vram, card) for card in node.cards} - {None}:
        chosen = node.choose(share or 0, want.vram)
        if chosen and node.share_for(0, want.vram, node.cards[chosen[0]]) == share:
            return node.take(share or 0, want.vram, want.cpus, want.memory)
    return None


def _copy(node: SimNode) -> SimNode:
    return replace(node, cards=[replace(card) for card in node.cards], slots=dict(node.slots))


def _state_of(node: SimNode) -> tuple[object, ...]:
    cards = tuple((card.share, card.vram, card.measured, card.memory) for card in node.cards)
    return cards, node.gpus, node.cpus, node.memory, tuple(sorted(node.slots.items()))
