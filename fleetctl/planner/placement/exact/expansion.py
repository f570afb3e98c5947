"""From counts on pools to members on nodes: the exact tier's way back from the relaxation.

Whole cards go largest first to the node they fill best, then packings of shares as if they were members of one card,
then members without cards. For sizes that divide one another any node with room will do, so nothing is lost by
preferring full nodes over empty ones. O(members + nodes), but for nodes on which a gang already stands.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Floats
from fleetctl.planner.placement.exact.card_rows import Packed
from fleetctl.planner.placement.exact.relaxation import EVERYBODY, Member, Owner, Relaxation
from fleetctl.planner.placement.exact.yard import Yard
from fleetctl.planner.placement.layout import Layout, Piece
from fleetctl.planner.placement.policies import NO_CAP
from fleetctl.planner.placement.problem import Gang

Share = tuple[int, int]
"""(gpus in 1/10000, vram in bytes) of a claim below one card."""


@dataclass(slots=True)
class _Lot:
    """Equal members that still need a node: of one gang of one class of demand, and of one kind."""

    piece: Piece
    item: int
    left: int
    owner: Owner
    """Under whose name the relaxation counts them."""
    per_node: dict[str | None, int]
    """Members of the gang one node may hold, by domain; under None where domains do not matter."""


class Expanded(NamedTuple):
    """A layout, and how many members found no node in it: gangs in want of distinct nodes, or of CPU or memory."""

    layout: Layout
    left_over: int


def expand(relaxation: Relaxation, values: Floats) -> Expanded:
    """Put the members a point of the relaxation counts on nodes."""
    counts = np.rint(values).astype(np.int64).tolist()
    return _Expansion(relaxation, counts).expanded()


@dataclass
class _Expansion:
    """A layout in the making."""

    into: Relaxation
    counts: list[int]
    stands: dict[int, list[tuple[tuple[int, ...], Piece]]] = field(default_factory=lambda: defaultdict(list))
    """By node; the key sorts pieces into an order that Ray's choice of cards follows."""

    def __post_init__(self) -> None:
        self.quota: Counter[Member] = Counter(
            {member: self.counts[column] for member, column in self.into.members.items() if self.counts[column]})
        self.yards = [Yard(self.into.tally, pool) for pool in self.into.pools]
        self.own = {member.owner for member in self.into.members}
        self.lots: list[list[_Lot]] = [[] for _ in self.into.items]
        for lot in self._all_lots():
            self.lots[lot.item].append(lot)
        self.pools_of: dict[tuple[Owner, int], list[int]] = defaultdict(list)
        for member in self.quota:
            self.pools_of[member.owner, member.item].append(member.pool)

    def expanded(self) -> Expanded:
        items = self.into.items
        order = sorted(range(len(items)), key=lambda item: (-items[item].claim.whole_cards, -items[item].claim.vram))
        for item in order:
            if items[item].claim.whole_cards:
                self._stand_all(item)
        self._pack_shares()
        for item in order:
            if not items[item].claim.wants_card:
                self._stand_all(item)
        replicas = tuple(self.counts[column] for column in self.into.replicas)
        stands = {node: tuple(piece for _, piece in sorted(self.stands[node])) for node in sorted(self.stands)}
        return Expanded(Layout(replicas, stands), sum(lot.left for lots in self.lots for lot in lots))

    def _all_lots(self) -> Iterator[_Lot]:
        """Yield what is to stand: gangs before single members, larger gangs first."""
        item_of = {kind: number for number, item in enumerate(self.into.items) for kind in item.kinds}
        gangs = [(-gang.size, number, place) for number, demand in enumerate(self.into.problem.demands)
                 for place, gang in enumerate(demand.gangs) if self.counts[self.into.replicas[number]]]
        for _, number, place in sorted(gangs):
            gang = self.into.problem.demands[number].gangs[place]
            made = self.counts[self.into.replicas[number]] * gang.copies
            for kind, count in gang.parts:
                owner = Owner(number, place) if (number, place) in self.own else EVERYBODY
                per_node = self._per_node(gang, Owner(number, place), made)
                yield _Lot(Piece(number, place, kind), item_of[kind], made * count, owner, per_node)

    def _per_node(self, gang: Gang, owner: Owner, made: int) -> dict[str | None, int]:
        if gang.size == 1:
            return {None: made}
        if gang.domain_label is None:
            return {None: gang.per_node * made}
        members: Counter[str | None] = Counter()
        for member, count in self.quota.items():
            if member.owner == owner:
                members[self.into.pools[member.pool].domain(gang.domain_label)] += count
        return {value: gang.per_node * (count // gang.size) for value, count in members.items()}

    def _room_for(self, lot: _Lot, yard: Yard, node: int) -> int:
        """Return how many more of a lot may stand on a node, cards left aside."""
        demand = self.into.problem.demands[lot.piece.demand]
        gang = demand.gangs[lot.piece.gang]
        domain = None if gang.size == 1 or gang.domain_label is None else yard.pool.domain(gang.domain_label)
        room = lot.per_node.get(domain, 0)
        slots = yard.free_slots(node, demand) if demand.capped else NO_CAP
        if slots < NO_CAP:
            room = min(room, slots * gang.size * gang.copies)
        room -= yard.standing[node, lot.piece.demand, lot.piece.gang]
        return min(room, yard.most(node, self.into.problem.kinds[lot.piece.kind][0], lot.piece.kind))

    def _stand_all(self, item: int) -> None:
        size = self.into.items[item].claim.whole_cards
        for lot in self.lots[item]:
            for pool in self.pools_of[lot.owner, item]:
                member = Member(lot.owner, item, pool)
                want = min(lot.left, self.quota[member])
                if not want:
                    continue
                yard = self.yards[pool]
                for node, count in yard.take(size, want, partial(self._room_for, lot, yard)):
                    self._stand(lot, node, count, yard, (0, -size) if size else (3, 0))
                    self.quota[member] -= count

    def _stand(self, lot: _Lot, node: int, count: int, yard: Yard, key: tuple[int, ...]) -> None:
        lot.left -= count
        yard.stand(node, lot.piece.demand, lot.piece.gang, self.into.problem.kinds[lot.piece.kind][0], count)
        self.stands[node] += [(key, lot.piece)] * count

    def _pack_shares(self) -> None:
        for number, packed in enumerate(self.into.packed):
            wanted = self._shares_on(number)
            for one in sorted(packed or (), key=lambda one: one.whole):
                for _ in range(self.counts[one.column]):
                    if not any(share in wanted for share, _ in one.shares):
                        break
                    self._fill(one, number, wanted)

    def _shares_on(self, pool: int) -> dict[Share, list[_Lot]]:
        """Return the lots with members to stand on a pool, by share; the next one last."""
        wanted: dict[Share, list[_Lot]] = defaultdict(list)
        for item in self.into.pools[pool].items:
            claim = self.into.items[item].claim
            if claim.wants_card and not claim.whole_cards:
                wanted[claim.gpus, claim.vram] += [
                    lot for lot in self.lots[item] if lot.left and self.quota[Member(lot.owner, item, pool)]]
        return {share: lots[::-1] for share, lots in wanted.items() if lots}

    def _fill(self, packed: Packed, pool: int, wanted: dict[Share, list[_Lot]]) -> None:
        """Put one packing on the next card of its class, as far as its shares are still wanted."""
        yard = self.yards[pool]
        if packed.whole:
            found = list(yard.take(1, 1, lambda _: 1))
            node, share = (found[0][0], SHARE) if found else (None, 0)
        else:
            node, share = yard.next_card(packed.card_class, packed.cards) or (None, 0)
        if node is not None:
            key = (2 if packed.whole else 1, share, len(self.stands[node]))
            for claim, times in packed.shares:
                self._fill_with(claim, times, pool, node, wanted, key)

    def _fill_with(
        self, share: Share, times: int, pool: int, node: int, wanted: dict[Share, list[_Lot]], key: tuple[int, ...]
    ) -> None:
        lots = wanted.get(share, [])
        for lot in reversed(lots):
            member = Member(lot.owner, lot.item, pool)
            count = min(times, lot.left, self.quota[member], self._room_for(lot, self.yards[pool], node))
            if count > 0:
                self._stand(lot, node, count, self.yards[pool], key)
                self.quota[member] -= count
                times -= count
            if not times:
                break
        while lots and not (lots[-1].left and self.quota[Member(lots[-1].owner, lots[-1].item, pool)]):
            lots.pop()
        if not lots:
            wanted.pop(share, None)
