"""Place one replica, whole or not at all: gangs on distinct nodes, inside one label value, within slots.

First a greedy pass, members with the fewest fitting nodes first; where that ends in a dead end, a bounded search. The
members are then taken once more in the order in which they will be created: Ray's choice of cards depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fleetctl.planner.placement.candidates import Candidates, Kind
from fleetctl.planner.placement.claims import GroupShape, ReplicaShape, Seat
from fleetctl.planner.placement.ledger import Ledger

NODE_ID_LABEL = "ray.io/node-id"
SEARCH_STEPS = 300
SEARCH_SEATS = 64

SeatNodes = dict[tuple[str, int, int], int]
"""Node number by (group, copy, rank)."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A member on its node: the GPU share really claimed there, and the replica's slot."""

    seat: Seat
    node: int
    gpus: int
    slot: int


@dataclass(slots=True)
class _Gang:
    """One gang being placed: where its ranks stand so far, and the rules that hold for it."""

    seats: list[Seat]
    ranks_per_node: int
    domain: frozenset[int] | None
    has_slot: Callable[[int], bool]
    spread: Callable[[int], int]
    steps: int = SEARCH_STEPS
    nodes: list[int] = field(default_factory=list)
    ranks: Counter[int] = field(default_factory=Counter)

    def accepts(self, node: int) -> bool:
        inside = self.domain is None or node in self.domain
        return inside and self.ranks[node] < self.ranks_per_node and self.has_slot(node)

    def stand(self, node: int) -> None:
        self.nodes.append(node)
        self.ranks[node] += 1

    def leave(self) -> None:
        self.ranks[self.nodes.pop()] -= 1


@dataclass(slots=True)
class Placer:
    """Places replicas on one ledger, and keeps what is known about fitting nodes between them."""

    ledger: Ledger
    _candidates: dict[Kind, Candidates] = field(default_factory=dict)
    _domains: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)

    def candidates(self, kind: Kind) -> Candidates:
        """Return the nodes that can take one kind of member now."""
        if kind not in self._candidates:
            self._candidates[kind] = Candidates(self.ledger, kind)
        return self._candidates[kind]

    def place(self, shape: ReplicaShape) -> tuple[Stand, ...] | None:
        """Take one whole replica from the ledger; None, and no change, when it does not fit."""
        if not all(self._may_fit(shape, group) for group in shape.groups):
            return None
        gangs = [list(group.seats(copy)) for group in shape.groups for copy in range(group.copies)]
        scarce_first = sorted(gangs, key=lambda seats: min(len(self.candidates(_kind(seat))) for seat in seats))
        for order in (scarce_first, gangs) if scarce_first != gangs else (gangs,):
            nodes = self._place_gangs(shape, order)
            stands = None if nodes is None else self._take_in_order(shape, nodes)
            if stands is not None:
                return stands
        return None

    def retake(self, shape: ReplicaShape, stands: Sequence[Stand]) -> None:
        """Take a replica again where it was placed before, after an undo to the same state."""
        self._take_in_order(shape, {(s.seat.group, s.seat.copy, s.seat.rank): s.node for s in stands})

    def domains(self, label: str) -> dict[str, frozenset[int]]:
        """Return the nodes of each value of a label."""
        if label not in self._domains:
            values: dict[str, set[int]] = {}
            for place, node in enumerate(self.ledger.nodes):
                if label in node.labels:
                    values.setdefault(node.labels[label], set()).add(place)
            self._domains[label] = {value: frozenset(nodes) for value, nodes in sorted(values.items())}
        return self._domains[label]

    def spread_of(self, shape: ReplicaShape) -> Callable[[int], int]:
        """Return how crowded a node is with replicas of this model, by its spread label first."""
        ledger, key = self.ledger, shape.key
        if shape.spread is None or shape.spread == NODE_ID_LABEL:
            return lambda node: len(ledger.slots(node, key))
        crowd = {node: sum(len(ledger.slots(other, key)) for other in nodes)
                 for nodes in self.domains(shape.spread).values() for node in nodes}
        return lambda node: crowd.get(node, 0) * 1_000_000 + len(ledger.slots(node, key))

    def _may_fit(self, shape: ReplicaShape, group: GroupShape) -> bool:
        for kind, count in group.classes().items():
            candidates = self.candidates(kind)
            if shape.size == 1 or not len(candidates):
                return len(candidates) > 0
            most = group.copies * (shape.ranks_per_node if group.size > 1 else 1)
            short = count * group.copies
            for node in candidates:
                short -= min(most, self.ledger.most(node, kind[0]))
                if short <= 0:
                    break
            else:
                return False
        return True

    def place_gang(self, shape: ReplicaShape, seats: list[Seat], touched: frozenset[int]) -> SeatNodes | None:
        """Take one gang (or one Standalone) from the ledger; `touched` = nodes this replica already stands on."""

        def has_slot(node: int) -> bool:
            return node in touched or self.ledger.free_slots(node, shape.key, wants_cards=shape.wants_cards) > 0

        spread = self.spread_of(shape)
        ordered = sorted(seats, key=lambda seat: (len(self.candidates(_kind(seat))), -seat.claim.gpus, seat.rank))
        for domain in self._domains_for(shape, seats):
            gang = _Gang(ordered, shape.ranks_per_node if len(seats) > 1 else 1, domain, has_slot, spread)
            if self._greedy(gang) or (1 < len(seats) <= SEARCH_SEATS and self._search(gang)):
                return {(seat.group, seat.copy, seat.rank): node
                        for seat, node in zip(ordered, gang.nodes, strict=True)}
        return None

    def _place_gangs(self, shape: ReplicaShape, gangs: list[list[Seat]]) -> SeatNodes | None:
        """Find nodes for all gangs of one replica; the ledger is left as it was."""
        mark = self.ledger.mark()
        nodes: SeatNodes = {}
        for seats in gangs:
            found = self.place_gang(shape, seats, frozenset(nodes.values()))
            if found is None:
                self.ledger.undo(mark)
                return None
            nodes.update(found)
        self.ledger.undo(mark)
        return nodes

    def _domains_for(self, shape: ReplicaShape, seats: list[Seat]) -> list[frozenset[int] | None]:
        """Return the domains a gang may use, tightest first; one None where any node will do."""
        if shape.same_label is None or len(seats) == 1:
            return [None]
        fewest = -(-len(seats) // shape.ranks_per_node)
        values = [(value, nodes) for value, nodes in self.domains(shape.same_label).items() if len(nodes) >= fewest]
        values.sort(key=lambda item: (sum(self.ledger.offer(node).free_gpus for node in item[1]), item[0]))
        return [nodes for _, nodes in values]

    def _greedy(self, gang: _Gang) -> bool:
        mark = self.ledger.mark()
        for seat in gang.seats:
            node = self.candidates(_kind(seat)).best(gang.accepts, gang.spread)
            if node is None or self.ledger.take(node, seat.claim) is None:
                self.ledger.undo(mark)
                while gang.nodes:
                    gang.leave()
                return False
            gang.stand(node)
        return True

    def _search(self, gang: _Gang) -> bool:
        if len(gang.nodes) == len(gang.seats):
            return True
        seat = gang.seats[len(gang.nodes)]
        for node in self.candidates(_kind(seat)).ranked(gang.accepts, gang.spread):
            gang.steps -= 1
            if gang.steps < 0:
                return False
            mark = self.ledger.mark()
            self.ledger.take(node, seat.claim)
            gang.stand(node)
            if self._search(gang):
                return True
            gang.leave()
            self.ledger.undo(mark)
        return False

    def _take_in_order(
        self, shape: ReplicaShape, nodes: SeatNodes
    ) -> tuple[Stand, ...] | None:
        mark, slots = self.ledger.mark(), dict[int, int]()
        stands: list[Stand] = []
        for seat in shape.seats:
            node = nodes[seat.group, seat.copy, seat.rank]
            taken = self.ledger.take(node, seat.claim)
            if taken is None:
                self.ledger.undo(mark)
                return None
            if node not in slots:
                slots[node] = self.ledger.take_slot(node, shape.key)
            stands.append(Stand(seat, node, taken.gpus, slots[node]))
        return tuple(stands)


def _kind(seat: Seat) -> Kind:
    return seat.claim, seat.selector
