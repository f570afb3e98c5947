"""Where a member does the least harm to what the fleet still expects: the online placement score.

In the line of Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023), which goes where the expected share of
GPU that no typical task could use grows least. Two things differ: a node's room is worth the best use that *all* of
the target could make of it together (`node_worth`), not what each task alone could use; and members count at their bid
price (`bid_prices`), so that room for what is plentiful is not kept at the cost of what is scarce. Among equals the
fuller node wins, which keeps empty ones whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.claims import Claim, Kind, Selector
from fleetctl.planner.placement.greedy.bid_prices import MICRO, Wanted, bid_prices
from fleetctl.planner.placement.greedy.card_field import CardField
from fleetctl.planner.placement.greedy.grounds import find_grounds, find_groups
from fleetctl.planner.placement.greedy.node_worth import MIB, Members, Room, node_worth
from fleetctl.planner.placement.ledger.ledger import Ledger

Target = tuple[Claim, Selector, float]
"""A kind of member and how many of it are expected: what a fleet still misses, or a forecast."""

FULLER = 3 * MICRO // 100
"""An empty node costs 0.03 cards more than a full one: it decides only between nearly equal nodes."""
RISK = 1 << 50
UNFIT = 1 << 60
MOST_KINDS = 192
FEW = 256
"""So few nodes are scored one by one; of more, those in the same state once."""


@dataclass(slots=True)
class _Field:
    """The score of every node for one kind; lower is better, UNFIT = does not fit."""

    scores: Ints
    selected: Flags
    """The nodes that the kind's selector allows."""
    cursor: int = -1


class Fragmentation:
    """Scores nodes of a ledger for members to be placed, and follows the ledger's changes.

    `target` = what is expected; it sets prices once, `refresh` sets them anew. Kinds beyond the target may be asked
    for as well.
    """

    def __init__(self, ledger: Ledger, target: Sequence[Target]) -> None:
        self.ledger = ledger
        self._cards = CardField.of(ledger)
        self.refresh(target)

    def refresh(self, target: Sequence[Target]) -> None:
        """Price the room of all nodes for a new target, on the ledger as it stands."""
        self._cards = CardField.of(self.ledger)
        kinds, counts = _merged(target)
        grounds = find_grounds(self.ledger, kinds, self._cards)
        wanted = [Wanted(count, claim.cpus, claim.memory) for (claim, _), count in zip(kinds, counts, strict=True)]
        worth = bid_prices(wanted, find_groups(self.ledger, kinds, self._cards, grounds))
        members = Members(np.array([claim.cpus for claim, _ in kinds], np.int64),
                          np.array([-(-claim.memory // MIB) for claim, _ in kinds], np.int64), worth)
        cards, cpus, mib = self._free()
        self._ground = grounds.of_node
        self._by_vram = any(claim.vram for claim, _ in kinds)
        self._tables = node_worth(members, grounds.shares, self._cards.shares.shape[1],
                                  cards * MICRO // cpus if cpus else 0, cards * MICRO * 1024 // mib if mib else 0)
        shown, of_node = self._unlike(np.arange(len(self.ledger.nodes)))
        self._worth = self._tables.of(self._room(self._cards.rows(shown), shown))[of_node]
        self._size = np.maximum((self._cards.shares >= 0).sum(axis=1), 1)
        self._fields: dict[Kind, _Field] = {}
        self._cursor = len(self.ledger.changes)

    def best(self, kind: Kind, allowed: Callable[[int], bool] | None, spread: Callable[[int], int]) -> int | None:
        """Return the best node that `allowed` accepts (None = any); among equals the least `spread`, ledger order."""
        scores = self._scores(kind)
        least = scores.min(initial=UNFIT)
        if least >= UNFIT:
            return None
        fitting: list[int] = [node for node in np.flatnonzero(scores == least).tolist()
                              if allowed is None or allowed(node)]
        if fitting:
            return min(fitting, key=lambda node: (spread(node), node))
        return next(self._ranked(scores, allowed, spread), None)

    def ranked(self, kind: Kind, allowed: Callable[[int], bool] | None, spread: Callable[[int], int]) -> list[int]:
        """Return all nodes that fit and that `allowed` accepts, best first."""
        return list(self._ranked(self._scores(kind), allowed, spread))

    def _ranked(
        self, scores: Ints, allowed: Callable[[int], bool] | None, spread: Callable[[int], int]
    ) -> Iterator[int]:
        order = np.argsort(scores, kind="stable")
        order = order[scores[order] < UNFIT]
        for equal in np.split(order, np.flatnonzero(np.diff(scores[order])) + 1):
            fitting = [node for node in equal.tolist() if allowed is None or allowed(node)]
            yield from sorted(fitting, key=lambda node: (spread(node), node))

    def _scores(self, kind: Kind) -> Ints:
        self._follow()
        known = self._fields.get(kind)
        if known is None:
            known = self._fields[kind] = self._field(kind)
        if known.cursor < len(self.ledger.changes):
            stale = self._changed(known.cursor) if known.cursor >= 0 else np.arange(len(known.scores))
            stale = stale[known.selected[stale]]
            known.cursor = len(self.ledger.changes)
            shown, of_node = self._unlike(stale)
            known.scores[stale] = self._scored(kind[0], shown)[of_node]
        return known.scores

    def _field(self, kind: Kind) -> _Field:
        count = len(self.ledger.nodes)
        selected = np.zeros(count, np.bool_)
        selected[list(self.ledger.selected(kind[1]))] = True
        return _Field(np.full(count, UNFIT, np.int64), selected)

    def _unlike(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return one node of each state among `nodes`, and for each of them the place of its like in that list."""
        if len(nodes) < FEW:
            return nodes, np.arange(len(nodes))
        state = np.array(self.ledger.numbers, np.int64)[nodes] * (1 << 20) + self._ground[nodes]
        _, first, of_node = np.unique(state, return_index=True, return_inverse=True)
        return nodes[first], of_node.ravel()

    def _scored(self, claim: Claim, nodes: Ints) -> Ints:
        before = self._cards.rows(nodes)
        after, fits, risky = before.after(claim)
        free = before.usable(by_vram=False).sum(axis=1)
        harm = self._worth[nodes] - self._tables.of(self._room(after, nodes))
        scores: Ints = np.where(fits, harm + FULLER * free // (SHARE * self._size[nodes]) + RISK * risky, UNFIT)
        return scores

    def _follow(self) -> None:
        """Bring arrays and worth up to date with the ledger."""
        if self._cursor == len(self.ledger.changes):
            return
        stale = self._changed(self._cursor)
        self._cursor = len(self.ledger.changes)
        for node in stale.tolist():
            self._cards.write(node, self.ledger.offer(node))
        self._worth[stale] = self._tables.of(self._room(self._cards.rows(stale), stale))

    def _changed(self, since: int) -> Ints:
        return np.array(sorted(set(self.ledger.changes[since:])), np.int64)

    def _room(self, cards: CardField, nodes: Ints) -> Room:
        return Room(self._ground[nodes], cards.usable(by_vram=self._by_vram), np.maximum(cards.cpus, 0),
                    np.maximum(cards.bytes, 0) // MIB)

    def _free(self) -> tuple[int, int, int]:
        """Return the free cards, CPUs and MiB of all open nodes."""
        open_nodes = [place for place, node in enumerate(self.ledger.nodes) if node.open]
        rows = self._cards.rows(np.array(open_nodes, np.int64))
        return (int(rows.usable(by_vram=False).sum()) // SHARE, int(rows.cpus.sum()) // SHARE,
                int((rows.bytes // MIB).sum()))


def _merged(target: Sequence[Target]) -> tuple[list[Kind], list[float]]:
    """Return each kind once with its count; of very many the weightiest, in an order that no file can change."""
    counts: dict[Kind, float] = {}
    for claim, selector, count in target:
        if count > 0:
            counts[claim, selector] = counts.get((claim, selector), 0) + count
    order = sorted(counts, key=lambda kind: (-counts[kind] * max(kind[0].gpus, 1), _order(kind)))[:MOST_KINDS]
    order.sort(key=_order)
    return order, [counts[kind] for kind in order]


def _order(kind: Kind) -> tuple[int, int, int, int, Selector]:
    claim, selector = kind
    return claim.gpus, claim.vram, claim.cpus, claim.memory, selector
