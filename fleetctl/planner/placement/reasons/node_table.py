"""All nodes of a ledger as arrays: what closes them, their label values, their offers, the slots held on them.

Built once per plan, after packing, so that each blocked model costs a few array operations instead of a walk over all
nodes. Answers about a claim or a selector are cached, since many models are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fleetctl.documents.selector import parse_requirement
from fleetctl.planner.placement.claims import Claim, ReplicaShape, Selector
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.reasons.check import CHECK, Check, Checks, Code, check_cards, check_offer
from fleetctl.planner.placement.tally import Flags, Ints, OfferTable


class Column(NamedTuple):
    """The values of one label in order, and by node the index of its value; -1 = the node does not have the label."""

    values: tuple[str, ...]
    codes: Ints


class NodeTable:
    """All nodes, in ledger order, with the offers they have when the table is built; equal cards are checked once.

    `closed` = by node, the code that keeps all new members away, or FITS; `alive` = by node, whether it is not dead.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.closed: Ints = np.array([_closed(node) for node in ledger.nodes], dtype=np.int64)
        self.alive: Flags = self.closed != Code.NO_NODES
        offers = [ledger.offer(place) for place in range(len(ledger.nodes))]
        self.free_cpus: Ints = np.array([offer.free_cpus for offer in offers], dtype=np.int64)
        self.free_memory: Ints = np.array([offer.free_memory for offer in offers], dtype=np.int64)
        kinds: dict[tuple[tuple[OfferedCard, ...], int], int] = {}
        self._kinds: Ints = np.array([kinds.setdefault((offer.cards, offer.free_gpus), len(kinds)) for offer in offers],
                                     dtype=np.int64)
        self._offers = [Offer(*kind) for kind in kinds]
        self._table = OfferTable(self._offers)
        self._card_checks: dict[Claim, Checks] = {}
        self._columns: dict[str, Column] = {}
        self._selected: dict[Selector, Flags] = {}
        self._no_slots: dict[bool, Flags] = {}

    def __len__(self) -> int:
        return len(self.ledger.nodes)

    def check_offers(self, claim: Claim, places: Ints) -> Checks:
        """Return what stops the offers of the nodes at `places` from taking a claim."""
        cards = claim.on_cards
        if cards not in self._card_checks:
            self._card_checks[cards] = np.array([check_cards(offer, cards) for offer in self._offers], dtype=CHECK)
        found = self._card_checks[cards][self._kinds[places]]
        for code, need, free in ((Code.INSUFFICIENT_CPU, claim.cpus, self.free_cpus[places]),
                                 (Code.INSUFFICIENT_MEMORY, claim.memory, self.free_memory[places])):
            short = (found["code"] == Code.FITS) & (free < need)
            found["code"][short], found["need"][short], found["have"][short] = code, need, free[short]
        return found

    def free_cards(self, places: Ints, vram: int = 0) -> Ints:
        """Return by node how many whole cards with at least `vram` bytes free are offered."""
        return self._table.whole_cards(vram)[self._kinds[places]]

    def free_share(self, places: Ints) -> Ints:
        """Return by node the share offered on all clean cards; shares of different cards do not add up."""
        return self._table.free_share[self._kinds[places]]

    def label_keys(self) -> list[str]:
        """Return the label keys of all nodes that are not dead, sorted."""
        return sorted({key for node in self.ledger.nodes if node.state != "DEAD" for key in node.labels})

    def column(self, key: str) -> Column:
        """Return the values of one label."""
        if key not in self._columns:
            found = [node.labels.get(key) for node in self.ledger.nodes]
            values = tuple(sorted({value for value in found if value is not None}))
            number: dict[str | None, int] = {value: code for code, value in enumerate(values)}
            codes = np.array([number.get(value, -1) for value in found], dtype=np.int64)
            self._columns[key] = Column(values, codes)
        return self._columns[key]

    def where(self, key: str, holds: Callable[[str | None], bool]) -> Flags:
        """Return by node whether a condition holds for its value of a label; None = it does not have the label."""
        column = self.column(key)
        # the last entry is for code -1: a node without the label
        return np.array([holds(value) for value in (*column.values, None)], dtype=bool)[column.codes]

    def allowed_by(self, key: str, expression: str) -> Flags:
        """Return which nodes one requirement allows, including dead nodes."""
        return self.where(key, parse_requirement(expression).allows)

    def selected(self, selector: Selector) -> Flags:
        """Return which nodes a selector allows, including dead and closed nodes."""
        if selector not in self._selected:
            allowed = np.ones(len(self), dtype=bool)
            for key, expression in selector.labels:
                allowed &= self.allowed_by(key, expression)
            if without := frozenset(selector.without):
                allowed &= np.array([node.id not in without for node in self.ledger.nodes], dtype=bool)
            self._selected[selector] = allowed
        return self._selected[selector]

    def checks(self, claim: Claim, selector: Selector, shape: ReplicaShape, touched: Iterable[int] = ()) -> Checks:
        """Return what stops each node from taking one more member of a shape.

        `touched` = nodes whose offer has changed since the table was built.
        """
        selected = self.selected(selector)
        places = np.flatnonzero(selected & self.alive)
        found = np.full(len(self), np.array(Check(Code.NODE_SELECTOR_MISMATCH), dtype=CHECK))
        found[~self.alive] = Check(Code.NO_NODES)
        found[places] = self.check_offers(claim, places)
        for place in touched:
            if selected[place] and self.alive[place]:
                found[place] = check_offer(self.ledger.offer(place), claim)
        if shape.spread is not None and (most := shape.spread.most) is not None:
            crowd = self.ledger.crowd(shape.key)
            full = self.where(shape.spread.label, lambda value: value is None or crowd.get(value, 0) >= most)
            found[places[full[places]]] = Check(Code.SPREAD_FULL, need=1)
        if (caps := self.ledger.caps(wants_cards=shape.wants_cards)) is not None:
            full = self._closed_by_cap(caps, wants_cards=shape.wants_cards)
            for place, slots in self.ledger.slots_of(shape.key).items():
                full[place] = slots.bit_count() >= caps[place]
            found[places[full[places]]] = Check(Code.SLOTS_FULL, need=1)
        if shape.avoided:
            codes = {one.node_id: one.code for one in shape.avoided}
            places = np.flatnonzero(self.selected(Selector(selector.labels)) & self.alive)
            for place in places[~selected[places]].tolist():
                found[place] = Check(Code[codes[self.ledger.nodes[place].id]])
        closed = self.closed[places]
        for code in (Code.NODE_COOLING, Code.CORDONED, Code.NODE_DRAINING):
            found[places[closed == code]] = Check(code)
        return found

    def _closed_by_cap(self, caps: Sequence[int], *, wants_cards: bool) -> Flags:
        """Return by node, as a new array, whether its slot cap is 0."""
        if wants_cards not in self._no_slots:
            self._no_slots[wants_cards] = np.array([cap <= 0 for cap in caps], dtype=bool)
        closed: Flags = self._no_slots[wants_cards].copy()
        return closed


def _closed(node: LedgerNode) -> Code:
    if node.state == "DEAD":
        return Code.NO_NODES
    if node.state == "DRAINING":
        return Code.NODE_DRAINING
    if node.policy.cordoned_by is None:
        return Code.FITS
    return Code.NODE_COOLING if node.policy.cooling else Code.CORDONED
