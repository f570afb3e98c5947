"""From patterns on classes of nodes to a layout: members on single nodes, whole replicas, and gaps filled up.

What no whole replica needs is taken off again, and one-member replicas that are still open go where they fit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.creation_order import creation_order
from fleetctl.planner.placement.layout import Layout, Piece
from fleetctl.planner.placement.ledger.cards import Offer, take
from fleetctl.planner.placement.patterns.covering import Covering
from fleetctl.planner.placement.patterns.crews import Crews
from fleetctl.planner.placement.patterns.master import Pattern
from fleetctl.planner.placement.problem import Problem

Held = dict[int, list[int]]
"""Items by node, in an order that fits."""


def settle(problem: Problem, covering: Covering, settled: Mapping[tuple[int, Pattern], int]) -> Layout:
    """Make a layout of `settled` uses of patterns, by (class of nodes, pattern)."""
    held = _on_nodes(problem, covering, settled)
    replicas = _whole_replicas(problem, covering, held)
    _fill(problem, covering, held, replicas)
    return _layout(problem, covering, held, replicas)


def _on_nodes(problem: Problem, covering: Covering, settled: Mapping[tuple[int, Pattern], int]) -> Held:
    claims = {number: problem.kinds[item.kind][0] for number, item in enumerate(covering.items)}
    by_class: dict[int, list[tuple[Pattern, int]]] = defaultdict(list)
    for (number, pattern), count in sorted(settled.items()):
        by_class[number].append((pattern, count))
    held: Held = {}
    for number, uses in by_class.items():
        nodes = iter(problem.nodes[number].nodes)
        for pattern, count in uses:
            items, _ = creation_order(problem.nodes[number].offer, pattern, claims)
            for _ in range(count):
                held[next(nodes)] = list(items)
    return held


def _whole_replicas(problem: Problem, covering: Covering, held: Held) -> list[int]:
    """Return how many whole replicas of each class the members held make, and take the others off.

    Every class gets the first replicas of its models before any gets more.
    """
    supply = Counter(item for items in held.values() for item in items)
    crews = Crews(problem, covering, held)
    replicas = [0] * len(problem.demands)
    for firsts in (True, False):
        for number, demand in enumerate(problem.demands):
            most = min([demand.unserved if firsts else demand.missing, crews.replicas(number)])
            needs = covering.needs[number]
            more = min([most - replicas[number], *(supply[item] // needed for item, needed in needs)])
            for item, needed in needs:
                supply[item] -= max(0, more) * needed
            replicas[number] += max(0, more)
    _take_off(covering, held, replicas, crews)
    return replicas


def _take_off(covering: Covering, held: Held, replicas: Sequence[int], crews: Crews) -> None:
    needed = Counter[int]()
    for number, count in enumerate(replicas):
        for item, each in covering.needs[number]:
            needed[item] += each * count
    kept_of_crews = crews.kept(replicas)
    for node in sorted(held):
        kept = []
        for item in held[node]:
            left = kept_of_crews[node] if item in crews.items else needed
            if left[item] > 0:
                left[item] -= 1
                kept.append(item)
        held[node] = kept


def _fill(problem: Problem, covering: Covering, held: Held, replicas: list[int]) -> None:
    """Put open replicas of one member where they fit: the highest priority first, then the largest."""
    claims = {number: problem.kinds[item.kind][0] for number, item in enumerate(covering.items)}
    class_of = {node: number for number, one in enumerate(problem.nodes) for node in one.nodes}
    nodes = sorted(class_of)
    offers = [_after(problem.nodes[class_of[node]].offer, held.get(node, ()), claims) for node in nodes]
    room = np.array([_room(offer) for offer in offers], np.int64).reshape(len(nodes), 4)
    allowed = {number: np.array([item_class in one.allowed for one in problem.nodes])
               for number, item_class in ((n, covering.items[n].kind) for n in claims)}
    classes = np.array([class_of[node] for node in nodes], np.intp)
    order = sorted(range(len(replicas)), key=lambda number: (
        -problem.demands[number].priority, replicas[number] > 0, -problem.demands[number].gpu_units, number))
    for number in order:
        demand, needs = problem.demands[number], covering.needs[number]
        if replicas[number] >= demand.missing or len(needs) != 1 or needs[0][1] != 1 \
                or covering.items[needs[0][0]].rule >= 0:
            continue
        item = needs[0][0]
        claim = claims[item]
        need = np.array([claim.cpus, claim.memory, claim.whole_cards,
                         0 if claim.whole_cards else claim.gpus], np.int64)
        fits = (room >= need).all(axis=1) & allowed[item][classes]
        for place in np.flatnonzero(fits):
            while replicas[number] < demand.missing:
                taken = take(offers[place], claim)
                if taken is None:
                    break
                offers[place] = taken.left
                held.setdefault(nodes[place], []).append(item)
                replicas[number] += 1
            room[place] = _room(offers[place])
            if replicas[number] >= demand.missing:
                break


def _room(offer: Offer) -> tuple[int, int, int, int]:
    return (offer.free_cpus, offer.free_memory, sum(card.fully_free for card in offer.cards),
            max((card.free_share for card in offer.cards), default=0))


def _after(offer: Offer, items: list[int] | tuple[()], claims: Mapping[int, Claim]) -> Offer:
    for item in items:
        taken = take(offer, claims[item])
        if taken is not None:
            offer = taken.left
    return offer


def _layout(problem: Problem, covering: Covering, held: Held, replicas: list[int]) -> Layout:
    """Say for each member whose it is: items shared by several classes go to them in their order."""
    owners: dict[int, list[tuple[Piece, int]]] = defaultdict(list)
    for (number, gang_number, kind, domain), item in reversed(covering.item_of.items()):
        gang = problem.demands[number].gangs[gang_number]
        count = dict(gang.parts)[kind] * gang.copies * replicas[number]
        if count:
            owners[item].append((Piece(number, gang_number, kind), len(held) * count if domain else count))
    stands: dict[int, tuple[Piece, ...]] = {}
    for node in sorted(held):
        pieces = []
        for item in held[node]:
            piece, count = owners[item].pop()
            pieces.append(piece)
            if count > 1:
                owners[item].append((piece, count - 1))
        if pieces:
            stands[node] = tuple(pieces)
    return Layout(tuple(replicas), stands)
