"""The optimum over all plans, by CP-SAT: all hard rules and the order of priorities as one integer program.

Members are counted per node and kind, not named: gangs with at most r ranks on a node can be put together from such
counts whenever no node has more than r members per gang (de Werra's equitable edge colouring of a bipartite multigraph:
nodes on one side, kinds of member on the other, a colour per gang).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod
from typing import Any, NamedTuple

from simulated import SimNode

from oracle.cards import CardClass, add_card_rows, card_classes, most_on
from oracle.question import Ask, Question, Want, allowed, labels_of, slots_left

LARGEST_WEIGHT = 1 << 40


class Level(NamedTuple):
    """The result at one priority: models newly served, GPU share in 1/10000, new replicas."""

    served: int
    units: int
    replicas: int


@dataclass(frozen=True)
class Optimum:
    """The best levels found, by priority from high to low; `proven` = none better exist."""

    levels: dict[int, Level]
    proven: bool
    cost: tuple[int, ...] = ()
    """Of the choice of variants, if there is one: the GPU share taken, the price of replicas of models with a choice,
    and the sum of places in order of preference."""

    @property
    def vector(self) -> tuple[int, ...]:
        return *(value for level in self.levels.values() for value in level), *(-value for value in self.cost)

    @property
    def replicas(self) -> int:
        return sum(level.replicas for level in self.levels.values())


@dataclass
class _Counted:
    """The variables of one ask: new replicas, models newly served."""

    ask: Ask
    replicas: Any
    served: Any
    least: Any
    """Its replicas that are among the least of its variant."""
    where: dict[int, list[Any]]
    """The replicas by node, and by value of its spread's label, if its model has variants and either is limited."""
    values: dict[str, list[Any]]


@dataclass
class _Standing:
    """The variables of members on each node, and of those whose prices count: price, number of members, its limit."""

    on_node: list[dict[Want, list[Any]]]
    priced: list[tuple[int, Any, int]]

    def add(self, question: Question, ask: Ask, want: Want, place: int, members: Any, room: int) -> None:
        self.on_node[place].setdefault(want, []).append(members)
        price = question.price.get((want, question.nodes[place].node.id), 0) if ask.priced else 0
        if price:
            self.priced.append((price, members, room))


def best_possible(question: Question, *, deterministic_time: float) -> Optimum:
    """Return the lexicographic optimum, or the best found within CP-SAT's deterministic time."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    counted, standing = _state(model, question)
    stages = _stages(counted, standing, question.priorities)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = deterministic_time
    proven, values = True, [0] * len(model.proto.variables)  # placing nothing is always a solution
    for group in _together(stages):
        weights = [prod(most + 1 for _, most in group[place + 1:]) for place in range(len(group))]
        model.maximize(sum(weight * value for weight, (value, _) in zip(weights, group, strict=True)))
        _hint(model, values)
        status = solver.solve(model)
        proven = proven and status == cp_model.OPTIMAL
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            break
        values = list(solver.response_proto.solution)
        for value, _ in group:
            model.add(value >= solver.value(value))
    made = [(one.ask, values[one.replicas.index]) for one in counted]
    varied = any(ask.variant for ask, _ in made)
    cost = (sum(ask.units * count for ask, count in made),
            sum(price * values[members.index] for price, members, _ in standing.priced),
            sum(ask.variant * count for ask, count in made))
    return Optimum({priority: level_of(made, priority) for priority in question.priorities}, proven,
                   cost if varied else ())


def _hint(model: Any, values: list[int]) -> None:
    model.clear_hints()
    for number, value in enumerate(values):
        model.add_hint(model.get_int_var_from_proto_index(number), value)


def level_of(made: list[tuple[Ask, int]], priority: int) -> Level:
    """Return the level reached with some replicas of each ask."""
    level = [(ask, replicas) for ask, replicas in made if ask.priority == priority]
    varied = {ask.keys for ask, replicas in level if ask.together is not None and ask.unserved and replicas}
    return Level(sum(min(replicas, ask.unserved) for ask, replicas in level if ask.together is None) + len(varied)
                 + sum(min(replicas, ask.least) for ask, replicas in level),
                 sum(ask.counts * replicas for ask, replicas in level), sum(replicas for _, replicas in level))


def _stages(counted: list[_Counted], standing: _Standing, priorities: list[int]) -> list[tuple[Any, int]]:
    """Return the objectives in order, each with an upper bound."""
    stages: list[tuple[Any, int]] = []
    for priority in priorities:
        level = [one for one in counted if one.ask.priority == priority]
        unit = gcd(*(one.ask.counts for one in level)) or 1
        stages += [
            (sum(one.served + one.least for one in level), sum(one.ask.unserved + one.ask.least for one in level)),
            (sum(one.ask.counts // unit * one.replicas for one in level),
             sum(one.ask.counts // unit * one.ask.missing for one in level)),
            (sum(one.replicas for one in level), sum(one.ask.missing for one in level)),
        ]
    if any(one.ask.variant for one in counted):  # how many replicas there are is known by now
        unit = gcd(*(price for price, _, _ in standing.priced)) or 1
        dearest = sum(price // unit * room for price, _, room in standing.priced)
        stages += [_saved(counted, {one.ask: one.ask.units for one in counted}),
                   (dearest - sum(price // unit * members for price, members, _ in standing.priced), dearest),
                   _saved(counted, {one.ask: one.ask.variant for one in counted})]
    return [(value, most) for value, most in stages if most]


def _saved(counted: list[_Counted], cost: dict[Ask, int]) -> tuple[Any, int]:
    """Return what the choice of variants saves against the worst one, and an upper bound."""
    unit, most = gcd(*cost.values()) or 1, max(cost.values())
    return (sum((most - cost[one.ask]) // unit * one.replicas for one in counted),
            sum((most - cost[one.ask]) // unit * one.ask.missing for one in counted))


def _together(stages: list[tuple[Any, int]]) -> list[list[tuple[Any, int]]]:
    """Combine stages into one weighted objective while the weights are small enough to be exact."""
    groups: list[list[tuple[Any, int]]] = []
    size = LARGEST_WEIGHT
    for value, most in stages:
        if size * (most + 1) > LARGEST_WEIGHT:
            groups.append([])
            size = 1
        groups[-1].append((value, most))
        size *= most + 1
    return groups


def _state(model: Any, question: Question) -> tuple[list[_Counted], _Standing]:
    vram = any(want.vram for ask in question.asks for gang in ask.gangs for want, _ in gang.parts)
    cards = [card_classes(node, vram_matters=vram) for node in question.nodes]
    standing = _Standing([{} for _ in question.nodes], [])
    counted = []
    for ask in question.asks:
        replicas = model.new_int_var(0, ask.missing, "")
        served, least = model.new_int_var(0, ask.unserved, ""), model.new_int_var(0, ask.least, "")
        model.add(served <= replicas)
        model.add(least <= replicas)
        counted.append(one := _Counted(ask, replicas, served, least, {}, {}))
        if (ask.capped or ask.label) and ask.size > 1:
            one.where, one.values = _one_by_one(model, question, ask, replicas, standing, cards)
        else:
            where = _place(model, question, ask, ask.missing, replicas, standing, cards)
            if ask.capped:
                _cap(model, question, ask, where)
                one.where = where
            for value, room in ask.room:
                one.values[value] = [term for place in _on(question, ask, value) for term in where.get(place, ())]
                model.add(sum(one.values[value]) <= room)
    for key in {one.ask.keys for one in counted if one.ask.together is not None}:
        _share(model, question, [one for one in counted if one.ask.keys == key])
    for node, members, classes in zip(question.nodes, standing.on_node, cards, strict=True):
        _node_rows(model, node, members, classes)
    return counted, standing


def _share(model: Any, question: Question, variants: list[_Counted]) -> None:
    """Limit what all variants of a model share: missing replicas, its first replica, slots, and values of a spread."""
    ask = variants[0].ask
    model.add(sum(one.replicas for one in variants) <= ask.together)
    if ask.together > ask.target:
        only_minimums = model.new_bool_var("")
        model.add(sum(one.replicas for one in variants) <= ask.target).only_enforce_if(~only_minimums)
        for one in variants:
            model.add(one.replicas <= one.ask.least).only_enforce_if(only_minimums)
    model.add(sum(one.served for one in variants) <= variants[0].ask.unserved)
    for place, node in enumerate(question.nodes):
        left = {one.ask: slots_left(node, one.ask.keys[0], wants_cards=one.ask.wants_cards) for one in variants}
        for most in {room for room in left.values() if room is not None}:  # those with fewer slots are created first
            model.add(sum(term for one in variants if (room := left[one.ask]) is not None and room <= most
                          for term in one.where.get(place, ())) <= most)
    for value, room in {value_room for one in variants for value_room in one.ask.room}:
        model.add(sum(term for one in variants for term in one.values.get(value, ())) <= room)


def _place(
    model: Any, question: Question, ask: Ask, most: int, replicas: Any, standing: _Standing,
    cards: list[Counter[CardClass]],
) -> dict[int, list[Any]]:
    """Add the members of up to `most` replicas; returns the terms that count the members on each node."""
    where: dict[int, list[Any]] = {}
    together = [model.new_int_var(0, most, "") for _ in _domains(question, ask.as_one)] if ask.as_one else []
    if ask.as_one:
        model.add(sum(together) == replicas)
    for gang in ask.gangs:
        domains = _domains(question, ask.as_one or gang.label)
        gangs = ([gang.copies * number for number in together] if ask.as_one else
                 [model.new_int_var(0, most * gang.copies, "") for _ in domains])
        model.add(sum(gangs) == gang.copies * replicas)
        for nodes, number in zip(domains, gangs, strict=True):
            here: dict[int, list[Any]] = {}
            for want, count in gang.parts:
                members = []
                for place in nodes:
                    if ask.label and ask.label not in labels_of(question.nodes[place]):
                        continue
                    room = _room(want, question.nodes[place], cards[place], most * gang.copies * count)
                    if room > 0:
                        members.append(model.new_int_var(0, room, ""))
                        standing.add(question, ask, want, place, members[-1], room)
                        here.setdefault(place, []).append(members[-1])
                model.add(sum(members) == count * number)
            for place, members in here.items():
                if gang.size > 1:
                    model.add(sum(members) <= gang.per_node * number)
                where.setdefault(place, []).extend(members)
    return where


def _domains(question: Question, label: str) -> list[list[int]]:
    if not label:
        return [list(range(len(question.nodes)))]
    values: dict[str, list[int]] = {}
    for place, node in enumerate(question.nodes):
        if label in node.node.labels:
            values.setdefault(node.node.labels[label], []).append(place)
    return list(values.values())


def _on(question: Question, ask: Ask, value: str) -> list[int]:
    """The nodes with one value of the ask's spread label."""
    return [place for place, node in enumerate(question.nodes) if labels_of(node).get(ask.label) == value]


def _room(want: Want, node: SimNode, classes: Counter[CardClass], most: int) -> int:
    if not allowed(want, node):
        return 0
    limits = [most, *([node.cpus // want.cpus] if want.cpus else []),
              *([node.memory // want.memory] if want.memory else [])]
    if want.gpus:
        limits.append(node.gpus // want.gpus)
    if want.gpus or want.vram:
        limits.append(most_on((want.gpus, want.vram), classes))
    return min(limits)


def _cap(model: Any, question: Question, ask: Ask, where: dict[int, list[Any]]) -> None:
    for place, members in where.items():
        left = slots_left(question.nodes[place], ask.keys[0], wants_cards=ask.wants_cards)
        if left is not None:
            model.add(sum(members) <= left)


def _one_by_one(
    model: Any, question: Question, ask: Ask, replicas: Any, standing: _Standing,
    cards: list[Counter[CardClass]],
) -> tuple[dict[int, list[Any]], dict[str, list[Any]]]:
    """Place replica by replica: a replica takes one slot per node, whatever its number of members there."""
    exists = [model.new_int_var(0, 1, "") for _ in range(ask.missing)]
    model.add(sum(exists) == replicas)
    for earlier, later in pairwise(exists):
        model.add(later <= earlier)
    touched: dict[int, list[Any]] = {}
    crowded: dict[str, list[Any]] = {value: [] for value, _ in ask.room}
    for one in exists:
        here = _place(model, question, ask, 1, one, standing, cards)
        for place, members in here.items():
            touch = model.new_int_var(0, 1, "")
            model.add(sum(members) <= ask.size * touch)
            touched.setdefault(place, []).append(touch)
        for value, touches in crowded.items():
            touch = model.new_int_var(0, 1, "")
            there = sum(term for place in _on(question, ask, value) for term in here.get(place, ()))
            model.add(there <= ask.size * touch)
            touches.append(touch)
    if ask.capped:
        _cap(model, question, ask, touched)
    for value, room in ask.room:
        model.add(sum(crowded[value]) <= room)
    return touched, crowded


def _node_rows(model: Any, node: SimNode, members: dict[Want, list[Any]], classes: Counter[CardClass]) -> None:
    def total(amount: str) -> Any:
        return sum(getattr(want, amount) * term for want, terms in members.items() for term in terms)

    if any(want.cpus for want in members):
        model.add(total("cpus") <= node.cpus)
    if any(want.memory for want in members):
        model.add(total("memory") <= node.memory)
    on_cards: dict[tuple[int, int], list[Any]] = {}
    for want, terms in members.items():
        if want.gpus or want.vram:
            on_cards.setdefault((want.gpus, want.vram), []).extend(terms)
    if on_cards:
        model.add(total("gpus") <= node.gpus)
        add_card_rows(model, classes, on_cards)
