"""Place one replica, whole or not at all: gangs on distinct nodes, inside one label value, within slots.

First a greedy pass, members with the fewest fitting nodes first; where that ends in a dead end, a bounded search. The
members are then taken once more in the order in which they will be created: Ray's choice of cards depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetctl.planner.placement.claims import Claim, GroupShape, Kind, ReplicaShape, Seat, Selector
from fleetctl.planner.placement.ledger.candidates import Candidates, DomainCandidates, Fits, FleetCandidates
from fleetctl.planner.placement.ledger.cells import Cells
from fleetctl.planner.placement.ledger.domains import Domain, Domains
from fleetctl.planner.placement.ledger.ledger import NO_SLOTS, Ledger
from fleetctl.planner.placement.policies import NO_CAP

NODE_ID_LABEL = "ray.io/node-id"
SEARCH_STEPS = 300
SEARCH_SEATS = 64

SeatNodes = dict[tuple[str, int, int], int]
"""Node number by (group, copy, rank)."""


class Stand(NamedTuple):
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
    domain: Domain | None
    has_slot: Callable[[int], bool] | None
    spread: Callable[[int], int]
    steps: int = SEARCH_STEPS
    nodes: list[int] = field(default_factory=list)
    ranks: Counter[int] = field(default_factory=Counter)

    def accepts(self, node: int) -> bool:
        return self.ranks[node] < self.ranks_per_node and (self.has_slot is None or self.has_slot(node))

    def stand(self, node: int) -> None:
        self.nodes.append(node)
        self.ranks[node] += 1

    def leave(self) -> None:
        self.ranks[self.nodes.pop()] -= 1


@dataclass(slots=True)
class Placer:
    """Places replicas on one ledger, and keeps what is known about fitting nodes between them."""

    ledger: Ledger
    prices: Sequence[int] | None = None
    """By node: how contested it is; the cheap ones are taken first."""
    _cells: Cells | None = None
    _candidates: dict[tuple[Kind, Domain | None], Candidates] = field(default_factory=dict)
    _fits: dict[Claim, Fits] = field(default_factory=dict)
    _domains: dict[str, Domains] = field(default_factory=dict)
    _capped: dict[bool, bool] = field(default_factory=dict)
    _refused: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(model, group, value of its domain label) -> version of the domain in which a gang found no place."""

    def candidates(self, kind: Kind, domain: Domain | None = None) -> Candidates:
        """Return the nodes, all or those of a domain, that can take one kind of member now."""
        found = self._candidates.get((kind, domain))
        if found is None:
            found = self._candidates[kind, domain] = self._look(*kind, domain)
        return found

    def expect(self, selectors: Sequence[Selector]) -> Cells:
        """Prepare for members with these selectors; saves telling the nodes apart anew for each."""
        if self._cells is None:
            self._cells = Cells(self.ledger, self.prices)
        self._cells.expect(selectors)
        return self._cells

    def _look(self, claim: Claim, selector: Selector, domain: Domain | None) -> Candidates:
        fits = self._fits.setdefault(claim, Fits(self.ledger, claim))
        if domain is not None:
            places = sorted(domain.nodes.intersection(self.ledger.selected(selector)))
            return DomainCandidates(self.ledger, places, fits, self.prices)
        return FleetCandidates(self.expect([selector]), claim, selector, fits)

    def place(self, shape: ReplicaShape) -> tuple[Stand, ...] | None:
        """Take one whole replica from the ledger; None, and no change, when it does not fit."""
        if shape.size == 1:
            return next(self.place_singles(shape, 1), None)
        if not all(self._may_fit(shape, group) for group in shape.groups):
            return None
        gangs = [list(group.seats(copy)) for group in shape.groups for copy in range(group.copies)]
        scarce_first = sorted(gangs, key=lambda seats: min(len(self.candidates(_kind(seat))) for seat in seats))
        for order in (scarce_first, gangs) if scarce_first != gangs else (gangs,):
            nodes = self._place_gangs(shape, order)
            stands = None if nodes is None else self.take_at(shape, nodes)
            if stands is not None:
                return stands
        return None

    def place_singles(self, shape: ReplicaShape, count: int) -> Iterator[tuple[Stand, ...]]:
        """Take up to `count` replicas of a shape with one member, one after the other, each at its best node."""
        seat, ledger = shape.seats[0], self.ledger
        candidates = self.candidates(_kind(seat))
        has_slot = self._has_slot(shape, frozenset())
        spread = self.spread_of(shape)
        left = count
        while left:
            node = candidates.best(has_slot, spread)
            while node is not None and left:
                fit = None if has_slot else candidates.fit(node)
                taken = ledger.take(node, seat.claim)
                if taken is None:
                    return
                yield (Stand(seat, node, taken.gpus, ledger.take_slot(node, shape.key)),)
                left -= 1
                again = None if fit is None else candidates.fit(node)
                if fit is None or again is None or again >= fit:
                    break  # another node may be as good now
            if node is None:
                return

    def retake(self, shape: ReplicaShape, stands: Sequence[Stand]) -> None:
        """Take a replica again where it was placed before, after an undo to the same state."""
        self.take_at(shape, {(s.seat.group, s.seat.copy, s.seat.rank): s.node for s in stands})

    def domains(self, label: str) -> Domains:
        """Return the nodes of each value of a label."""
        if label not in self._domains:
            self._domains[label] = Domains(self.ledger, label)
        return self._domains[label]

    def spread_of(self, shape: ReplicaShape) -> Callable[[int], int]:
        """Return how crowded a node is with replicas of this model, by its spread label first."""
        held = self.ledger.slots_of(shape.key)
        if shape.spread is None or shape.spread == NODE_ID_LABEL:
            return lambda node: len(held.get(node, NO_SLOTS))
        domain_of = self.domains(shape.spread).of
        crowd: Counter[Domain | None] = Counter()
        for node, slots in held.items():
            crowd[domain_of(node)] += len(slots)
        return lambda node: crowd[domain_of(node)] * 1_000_000 + len(held.get(node, NO_SLOTS))

    def _has_slot(self, shape: ReplicaShape, touched: frozenset[int]) -> Callable[[int], bool] | None:
        """Return which nodes a replica may touch; None where no policy caps anything."""
        cards = shape.wants_cards
        if cards not in self._capped:
            self._capped[cards] = any(node.policy.cap_for(cards).limit < NO_CAP for node in self.ledger.nodes)
        if not self._capped[cards]:
            return None
        return lambda node: node in touched or self.ledger.free_slots(node, shape.key, wants_cards=cards) > 0

    def _may_fit(self, shape: ReplicaShape, group: GroupShape) -> bool:
        for kind, count in group.classes().items():
            candidates = self.candidates(kind)
            most = group.copies * (shape.ranks_per_node if group.size > 1 else 1)
            short = count * group.copies
            if len(candidates) * most < short:
                return False
            for node in candidates:
                short -= min(most, self.ledger.most(node, kind[0]))
                if short <= 0:
                    break
            else:
                return False
        return True

    def place_gang(self, shape: ReplicaShape, seats: list[Seat], touched: frozenset[int]) -> SeatNodes | None:
        """Take one gang (or one Standalone) from the ledger; `touched` = nodes this replica already stands on."""
        has_slot, spread = self._has_slot(shape, touched), self.spread_of(shape)
        ordered = sorted(seats, key=lambda seat: (len(self.candidates(_kind(seat))), -seat.claim.gpus, seat.rank))
        per_node = shape.ranks_per_node if len(seats) > 1 else 1
        for domain in self._domains_for(shape, seats):
            gang = _Gang(ordered, per_node, domain, has_slot, spread)
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

    def _domains_for(self, shape: ReplicaShape, seats: list[Seat]) -> Iterable[Domain | None]:
        """Return the domains a gang may use, tightest first; one None where any node will do."""
        if shape.same_label is None or len(seats) == 1:
            return [None]
        return self._domains_with_room(shape, shape.same_label, seats)

    def _domains_with_room(self, shape: ReplicaShape, label: str, seats: list[Seat]) -> Iterator[Domain]:
        """Yield domains that may hold a gang; one that refused it and has not changed since is not asked again."""
        domains = self.domains(label)
        kinds = Counter(_kind(seat) for seat in seats)
        slots_matter = self._has_slot(shape, frozenset()) is not None
        fewest = -(-len(seats) // shape.ranks_per_node)
        for domain in domains.with_room(sum(seat.claim.gpus for seat in seats), fewest):
            memo, version = (shape.key, seats[0].group, domain.value), domains.versions[domain.value]
            if not slots_matter and self._refused.get(memo) == version:
                continue
            if all(len(self.candidates(kind, domain)) * shape.ranks_per_node >= count for kind, count in kinds.items()):
                yield domain
            self._refused[memo] = version

    def _greedy(self, gang: _Gang) -> bool:
        mark = self.ledger.mark()
        for seat in gang.seats:
            node = self.candidates(_kind(seat), gang.domain).best(gang.accepts, gang.spread)
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
        for node in self.candidates(_kind(seat), gang.domain).ranked(gang.accepts, gang.spread):
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

    def take_at(self, shape: ReplicaShape, nodes: SeatNodes) -> tuple[Stand, ...] | None:
        """Take one replica at given nodes, members in order of creation; None, and no change, when one does not fit."""
        mark, slots = self.ledger.mark(), dict[int, int]()
        has_slot = self._has_slot(shape, frozenset())
        stands: list[Stand] = []
        for seat in shape.seats:
            node = nodes[seat.group, seat.copy, seat.rank]
            full = has_slot is not None and node not in slots and not has_slot(node)
            taken = None if full else self.ledger.take(node, seat.claim)
            if taken is None:
                self.ledger.undo(mark)
                return None
            if node not in slots:
                slots[node] = self.ledger.take_slot(node, shape.key)
            stands.append(Stand(seat, node, taken.gpus, slots[node]))
        return tuple(stands)


def _kind(seat: Seat) -> Kind:
    return seat.claim, seat.selector
