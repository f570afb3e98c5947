"""Turns a layout into replicas: assigns the members of each class to gangs and models, and takes them on the ledger.

The ledger decides: a replica it refuses is left out. Replicas of one member are created node by node in the layout's
order, since Ray's choice of cards depends on it; among the nodes, higher priorities go first.

Members are split into gangs with at most the allowed number of members of one gang on a node. Nodes with most members
go first, and each member joins the gang that still needs most. For members of one kind this succeeds whenever a split
exists (Gale and Ryser 1957). With several kinds it may fail; then a bounded search follows.

Also the order in which to create members on one node so that Ray's own choice of cards takes them all. Large ones first
nearly always works. If it does not, orders are searched depth first with Ray's rule: any packing of shares on cards is
reached by some order, unless memory on cards interferes.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.ledger.cards import Offer, take
from fleetctl.planner.placement.ledger.replica import Placer, SeatNodes
from fleetctl.planner.placement.problem import DemandClass, Gang, Problem, group_of

GangNodes = dict[int, list[int]]
"""One gang: nodes by kind number, one entry per member."""
Members = Counter[tuple[int, int]]
"""The number of members by (node, kind)."""
SEARCH_STEPS = 4_000
SEARCH_PIECES = 400
"""The search recurses once per member. Without it two of 752 fleets with gangs lose a replica."""
ANY = -1
"""A member that may belong to any replica of its class."""
Member = tuple[int, Claim]
"""(item, claim of one member)."""
ORDER_STEPS = 3_000
"""The most states of the search for an order on one node."""


def split_into_gangs(gang: Gang, members: Members, together: int) -> list[GangNodes]:
    """Return the whole gangs found; up to `together` members are given to one gang on one node at a time."""
    split = _Split(gang, members, together)
    split.assign_greedily()
    if len(split.whole()) < split.count and len(gang.parts) > 1 and len(split.pieces) <= SEARCH_PIECES:
        searched = _Split(gang, members, together)
        if searched.search(0):
            return searched.whole()
    return split.whole()


class _Split:
    """Members being assigned to as many gangs as they are enough for."""

    def __init__(self, gang: Gang, members: Members, together: int) -> None:
        self.members, self.together = members, together
        self.alone, self.per_node = gang.size == 1, gang.per_node
        needs = dict(gang.parts)
        counts = Counter[int]()
        on_node = Counter[int]()
        for (node, kind), count in members.items():
            counts[kind] += count
            on_node[node] += count
        self.count = min((counts[kind] // need for kind, need in needs.items()), default=0)
        self.nodes: list[GangNodes] = [{kind: [] for kind in needs} for _ in range(self.count)]
        self.assigned = [Counter[int]() for _ in range(self.count)]
        self.left = [Counter(needs) for _ in range(self.count)]
        self.order = sorted(members, key=lambda item: (-on_node[item[0]], item))
        self.pieces = [item for item in self.order for _ in range(members[item])]
        self.steps = SEARCH_STEPS

    def whole(self) -> list[GangNodes]:
        """Return the gangs that have all their members."""
        return [members for gang, members in enumerate(self.nodes) if not self.left[gang].total()]

    def assign_greedily(self) -> None:
        """Assign node by node, each member to the gang that still needs most."""
        needy = [(-self.left[gang].total(), gang) for gang in range(self.count)]
        for node, kind in self.order:
            count, full = self.members[node, kind], []
            while count and needy:
                gang = needy[0][1]
                given = min(count, self.together, self._room(gang, node, kind))
                if given:
                    self._assign(gang, node, kind, given)
                    heapreplace(needy, (-self.left[gang].total(), gang))
                    count -= given
                else:
                    full.append(heappop(needy))
            for entry in full:
                heappush(needy, entry)

    def search(self, index: int) -> bool:
        """Assign all pieces from number `index` on, backtracking if one finds no gang; False if that fails."""
        if index == len(self.pieces):
            return True
        node, kind = self.pieces[index]
        tried = set[tuple[object, ...]]()
        for gang in sorted(range(self.count), key=lambda gang: (-self.left[gang].total(), gang)):
            state = (tuple(sorted(self.left[gang].items())), tuple(sorted(self.assigned[gang].items())))
            if not self._room(gang, node, kind) or state in tried:
                continue
            tried.add(state)
            self.steps -= 1
            if self.steps < 0:
                return False
            self._assign(gang, node, kind, 1)
            if self.search(index + 1):
                return True
            self._assign(gang, node, kind, -1)
        return False

    def _assign(self, gang: int, node: int, kind: int, count: int) -> None:
        if count > 0:
            self.nodes[gang][kind] += [node] * count
        else:
            self.nodes[gang][kind].pop()
        self.assigned[gang][node] += count
        self.left[gang][kind] -= count

    def _room(self, gang: int, node: int, kind: int) -> int:
        """Return how many more members of a kind one gang may have on a node."""
        per_node = 1 if self.alone else self.per_node - self.assigned[gang][node]
        return max(0, min(per_node, self.left[gang][kind]))


class PlacedMember(NamedTuple):
    """One member on a node: the numbers of its class of demand, its gang in that class, and its kind."""

    demand: int
    gang: int
    kind: int
    replica: int = ANY
    """The replica of the class it belongs to; ANY if replicas need not be distinguished."""


@dataclass(frozen=True, slots=True)
class PackingLayout:
    """The number of replicas of each class of demand, and the members on each node."""

    replicas: tuple[int, ...]
    """By number of the demand class."""
    assignments: Mapping[int, tuple[PlacedMember, ...]]
    """By number of the node in the ledger, in an order in which Ray's choice of cards takes all members."""


def realize(problem: Problem, layout: PackingLayout, placer: Placer) -> list[Placed]:
    """Take the replicas of a layout on the ledger; the result is in order of creation.

    Variants without cards come first: beside replicas of their model with cards they may find no slot.
    """
    singles = [demand.shape.size == 1 for demand in problem.demands]
    members_of = _gang_members(layout, singles)
    demands_of = [demand.in_turn(count) for demand, count in zip(problem.demands, layout.replicas, strict=True)]
    early = [demand.is_variant and not demand.shape.wants_cards for demand in problem.demands]
    placed: list[Placed] = []
    for chosen in (*((early,) if any(early) else ()), [not one for one in early]):
        for number, demand in enumerate(problem.demands):
            if chosen[number] and not singles[number]:
                gangs = [[found for members in members_of.get((number, index), {}).values()
                          for found in _split(demand, gang, members, problem)]
                         for index, gang in enumerate(demand.gangs)]
                together = _in_one_domain(demand, gangs, problem) if demand.shape.as_one else gangs
                placed += _place_whole(problem, demand, together, demands_of[number], placer)
        alone = [single and one for single, one in zip(singles, chosen, strict=True)]
        for piece, node in _in_turn(layout, alone):
            model = next(demands_of[piece.demand], None)
            if model is None:
                continue
            assignments = placer.take_at(model.shape, {model.shape.seats[0].position: node})
            if assignments is not None:
                placed.append(Placed(model, assignments))
    return placed


def layout_of(problem: Problem, placed: Sequence[Placed]) -> PackingLayout:
    """Return the layout of a packing of replicas of one member: the inverse of `realize`."""
    class_of = {demand.option: number for number, alike in enumerate(problem.demands) for demand in alike.demands}
    replicas = [0] * len(problem.demands)
    assignments: dict[int, list[PlacedMember]] = defaultdict(list)
    for demand, (assigned,) in placed:
        number = class_of[demand.option]
        replicas[number] += 1
        assignments[assigned.node].append(PlacedMember(number, 0, problem.demands[number].gangs[0].parts[0][0]))
    return PackingLayout(tuple(replicas), {node: tuple(pieces) for node, pieces in assignments.items()})


def _in_turn(layout: PackingLayout, singles: Sequence[bool]) -> Iterator[tuple[PlacedMember, int]]:
    """Yield the pieces of one-member replicas: per node in the layout's order, among nodes by class of demand."""
    queues = {node: [piece for piece in reversed(pieces) if singles[piece.demand]]
              for node, pieces in sorted(layout.assignments.items())}
    heap = [(queue[-1].demand, node) for node, queue in queues.items() if queue]
    heapq.heapify(heap)
    while heap:
        _, node = heap[0]
        yield queues[node].pop(), node
        if queues[node]:
            heapq.heapreplace(heap, (queues[node][-1].demand, node))
        else:
            heapq.heappop(heap)


def _gang_members(layout: PackingLayout, singles: Sequence[bool]) -> dict[tuple[int, int], dict[int, Members]]:
    """Count the members of replicas with several members, by (class, gang) and then by replica."""
    members: dict[tuple[int, int], dict[int, Members]] = defaultdict(lambda: defaultdict(Counter))
    for node, pieces in layout.assignments.items():
        for piece in pieces:
            if not singles[piece.demand]:
                members[piece.demand, piece.gang][piece.replica][node, piece.kind] += 1
    return {key: dict(sorted(by_replica.items())) for key, by_replica in members.items()}


def _in_one_domain(
    demand: DemandClass, gangs: Sequence[Sequence[GangNodes]], problem: Problem
) -> list[list[GangNodes]]:
    """Order gangs so that the gangs of each replica are in one domain; gangs that complete no replica are left out."""
    by_domain: dict[str, list[list[GangNodes]]] = {}
    for index, found in enumerate(gangs):
        for members in found:
            node = next(iter(members.values()))[0]
            value = problem.ledger.nodes[node].labels[demand.shape.same_label or ""]
            by_domain.setdefault(value, [[] for _ in gangs])[index].append(members)
    together: list[list[GangNodes]] = [[] for _ in gangs]
    for inside in by_domain.values():
        whole = min(len(found) // gang.copies for found, gang in zip(inside, demand.gangs, strict=True))
        for index, gang in enumerate(demand.gangs):
            together[index] += inside[index][:whole * gang.copies]
    return together


def _place_whole(
    problem: Problem, demand: DemandClass, gangs: Sequence[Sequence[GangNodes]], models: Iterator[Demand],
    placer: Placer,
) -> Iterator[Placed]:
    """Combine the gangs of one class into replicas and take each, whole or not at all."""
    for turn, model in enumerate(models):
        nodes: SeatNodes = {}
        for index, gang in enumerate(demand.gangs):
            mine = gangs[index][turn * gang.copies:(turn + 1) * gang.copies]
            if len(mine) < gang.copies:
                return
            group = group_of(model.shape, index, problem)
            for copy, members in enumerate(mine):
                left = {kind: list(nodes_of_kind) for kind, nodes_of_kind in members.items()}
                nodes |= {seat.position: left[problem.number_of[seat.kind]].pop(0) for seat in group.seats(copy)}
        assignments = placer.take_at(model.shape, nodes)
        if assignments is not None:
            yield Placed(model, assignments)


def _split(demand: DemandClass, gang: Gang, members: Members, problem: Problem) -> list[GangNodes]:
    """Split members into gangs, each on distinct nodes and inside one domain.

    If slots are capped, members of one gang share a node when allowed.
    """
    together = gang.per_node if demand.capped else 1
    label = gang.domain_label
    if not label:
        return split_into_gangs(gang, members, together)
    by_domain: dict[str, Members] = defaultdict(Counter)
    for (node, kind), count in members.items():
        by_domain[problem.ledger.nodes[node].labels.get(label, "")][node, kind] += count
    return [gangs for value in sorted(by_domain) for gangs in split_into_gangs(gang, by_domain[value], together)]


def creation_order(offer: Offer, pattern: Sequence[tuple[int, int]], claims: Mapping[int, Claim]) -> list[int]:
    """Return items in an order in which an offer takes them; items that find no card are left out.

    `pattern` = (item, count) pairs; `claims` = by item.
    """
    members = sorted(((item, claims[item]) for item, count in pattern for _ in range(count)), key=_large_first)
    taken = _taken(offer, members)
    searched = _OrderSearch(members).order(offer) if len(taken) < len(members) else None
    return taken if searched is None else [item for item, _ in searched]


def _large_first(member: Member) -> tuple[int, ...]:
    item, claim = member
    return -claim.whole_cards, -claim.gpus, -claim.vram, -claim.cpus, item


def _taken(offer: Offer, order: Sequence[Member]) -> list[int]:
    items = []
    for item, claim in order:
        taken = take(offer, claim)
        if taken is not None:
            offer = taken.left
            items.append(item)
    return items


class _OrderSearch:
    """A depth-first search for an order with Ray's rule; states without a solution are not tried again."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = sorted(set(members), key=_large_first)
        self.counts = Counter(members)
        self.steps = ORDER_STEPS
        self.failed: set[tuple[Offer, tuple[int, ...]]] = set()

    def order(self, offer: Offer) -> list[Member] | None:
        """Return an order in which `offer` takes all members that are left; None if none was found."""
        if not self.counts.total():
            return []
        state = offer, tuple(self.counts[member] for member in self.members)
        self.steps -= 1
        if self.steps < 0 or state in self.failed or self._lacks_share(offer):
            return None
        for member in self.members:
            taken = take(offer, member[1]) if self.counts[member] else None
            if taken is None:
                continue
            self.counts[member] -= 1
            later = self.order(taken.left)
            self.counts[member] += 1
            if later is not None:
                return [member, *later]
        self.failed.add(state)
        return None

    def _lacks_share(self, offer: Offer) -> bool:
        """Return whether the cards that hold at least one of the members have less share than all of them take."""
        shares = [(claim.gpus, count) for (_, claim), count in self.counts.items() if count]
        smallest = min(share for share, _ in shares)
        free = sum(card.free_share for card in offer.cards if card.free_share >= smallest)
        return free < sum(share * count for share, count in shares)
