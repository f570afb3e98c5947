"""All nodes of a ledger as arrays, and what stops a kind of member on each of them, summed up by code.

Built once per plan, after packing, so that each blocked model costs a few array operations instead of a walk over all
nodes. Answers about a claim or a selector are cached, since many models are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleetctl.documents.inventory import users_text
from fleetctl.documents.plan import Counted, Reason
from fleetctl.documents.quantity import SHARE, format_bytes
from fleetctl.planner.placement.claims import Claim, GroupShape, ReplicaShape, Selector
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.reasons.check import (
    CHECK,
    Check,
    Checks,
    Code,
    amount,
    check_cards,
    check_offer,
    need_text,
)
from fleetctl.planner.placement.tally import Flags, Ints, OfferTable

MAX_EXAMPLES = 5


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

    def inside(self, label: str, value: str | None) -> Flags:
        """Return which nodes have this value of a label."""
        values, codes = self.column(label)
        inside: Flags = codes == (values.index(value) if value in values else len(values))
        return inside

    def selected(self, selector: Selector) -> Flags:
        """Return which nodes a selector allows, including dead and closed nodes."""
        if selector not in self._selected:
            allowed = np.zeros(len(self), dtype=bool)
            allowed[self.ledger.labelled(selector.labels)] = True
            if without := frozenset(selector.without):
                allowed &= np.array([node.id not in without for node in self.ledger.nodes], dtype=bool)
            if least := selector.least_card:
                allowed &= np.array([not node.is_smaller(least) for node in self.ledger.nodes], dtype=bool)
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
        placer = Placer(self.ledger)
        for code, test in ((Code.SPREAD_FULL, placer.has_room(shape)), (Code.SLOTS_FULL, placer.has_slot(shape))):
            if test is not None:
                found[[place for place in places.tolist() if not test(place)]] = Check(code, need=1)
        if shape.avoided or selector.least_card:
            codes = {one.node_id: one.code for one in shape.avoided}
            places = np.flatnonzero(self.selected(Selector(selector.labels)) & self.alive)
            for place in places[~selected[places]].tolist():
                node = self.ledger.nodes[place]
                small = selector.least_card and node.is_smaller(selector.least_card)
                found[place] = Check(Code.MODEL_TOO_LARGE if small else Code[codes[node.id]])
        closed = self.closed[places]
        for code in (Code.NODE_COOLING, Code.CORDONED, Code.NODE_DRAINING):
            found[places[closed == code]] = Check(code)
        return found


def _closed(node: LedgerNode) -> Code:
    if node.state == "DEAD":
        return Code.NO_NODES
    if node.state == "DRAINING":
        return Code.NODE_DRAINING
    if node.policy.cordoned_by is None:
        return Code.FITS
    return Code.NODE_COOLING if node.policy.cooling else Code.CORDONED


@dataclass(frozen=True, slots=True)
class Shortfall:
    """`count` members of one kind in a group, and the check of each node for one more of them."""

    shape: ReplicaShape
    group: GroupShape
    claim: Claim
    selector: Selector
    count: int
    table: NodeTable
    checks: Checks
    within: str | None = None
    """The value of the whole replica's label to which the search is limited; None = any node."""
    copy: int = 0
    before: int = 0
    """Members of the replica that were placed before this copy of the group."""

    @property
    def codes(self) -> Ints:
        """By node: the code that stops it; FITS = none."""
        return np.asarray(self.checks["code"])

    @property
    def fitting(self) -> Ints:
        """The nodes that could take one such member."""
        return np.flatnonzero(self.codes == Code.FITS)

    @property
    def usable(self) -> Ints:
        """The nodes that may take such members at all: alive, selected, open, with a free slot."""
        return np.flatnonzero(self.codes < Code.SLOTS_FULL)

    @property
    def nodes_needed(self) -> int:
        """The fewest nodes on which the ranks of this kind can be."""
        return -(-self.count // self.group.most_ranks)

    def reasons(self) -> list[Reason]:
        """Sum up the nodes by code, the codes nearest to success first."""
        found, last = set(self.codes.tolist()), Code.NO_NODES
        if self.within is not None and min(found, default=last) < Code.NODE_SELECTOR_MISMATCH:
            last = Code.NODE_SELECTOR_MISMATCH
        return [self._reason(code) for code in Code if code in found and Code.FITS < code < last]

    def counted(self) -> Counted:
        """Count the nodes, and for claims on cards what is free on usable nodes: whole cards, or shares."""
        usable = self.usable
        free: Ints = np.zeros(len(usable), dtype=np.int64)
        if self.claim.whole_cards:
            free = self.table.free_cards(usable) * SHARE
        elif self.claim.wants_card:
            free = self.table.free_share(usable)
        return Counted(
            nodes=int(self.table.alive.sum()), selected=int((self.codes < Code.NODE_SELECTOR_MISMATCH).sum()),
            usable=len(usable), fitting=len(self.fitting),
            free_gpus=int(free.sum()), on_nodes=int((free > 0).sum()), most_on_one=int(free.max(initial=0)),
        )

    def examples(self, places: Sequence[int] | Ints) -> list[str]:
        """Return the names of the first few nodes."""
        return [self.table.ledger.nodes[int(place)].name for place in places[:MAX_EXAMPLES]]

    def _reason(self, code: Code) -> Reason:
        """Sum up the nodes of one code; the amounts are those of the node that is least short."""
        places = np.flatnonzero(self.codes == code)
        short = (self.checks["need"] - self.checks["have"])[places]
        place = int(places[short.argmin()])
        _, need, have, card = self.checks[place].item()
        name = self.table.ledger.nodes[place].name
        return Reason(
            code=code.name, node_count=len(places), need=self._need(code, place, need, card),
            best=f"{amount(code.name, have, self.claim)} on {name}" if need else "none",
            short=amount(code.name, need - have, self.claim) if need else "", examples=self.examples(places),
            in_use=self._in_use(place) if code in (Code.CARD_IN_USE, Code.CARD_COOLING) else [],
        )

    def _in_use(self, place: int) -> list[str]:
        """Say how much of each dirty card that Ray may grant is in use and by what, or why the card is cooling."""
        node = self.table.ledger.nodes[place]
        cards = {card.index: card for card in node.gpus}
        cooling = {one.index: f"card {one.index} on {node.name}: {one.why}" for one in node.policy.cooling_cards}
        return [f"{format_bytes(card.foreign)} of card {card.index} on {node.name} are in use"
                f"{users_text(cards[card.index])}" if card.foreign else cooling.get(card.index, "")
                for card in self.table.ledger.offer(place).cards
                if card.dirty and card.free_share and card.index in (cards if card.foreign else cooling)][:MAX_EXAMPLES]

    def _need(self, code: Code, place: int, need: int, card: int) -> str:
        policy = self.table.ledger.nodes[place].policy
        if code == Code.SLOTS_FULL:
            cap = policy.cap_for(self.shape.wants_cards)
            return f"1 free slot (cap {cap.limit}: {cap.source})"
        if code == Code.SPREAD_FULL and self.shape.spread is not None:
            label, most = self.shape.spread
            return f"room for 1 more on a value of {label} (at most {most} each, none without the label)"
        if policy.cordoned_by is not None and code in (Code.NODE_COOLING, Code.CORDONED):
            return f"a node that is not {code.words} ({policy.cordoned_by.removeprefix('cooling ')})"
        if code == Code.NODE_DRAINING:
            return "a node that is not draining"
        if code == Code.NODE_SELECTOR_MISMATCH:
            inside = () if self.within is None else ((self.shape.same_label, self.within),)
            labels = (*self.selector.labels, *inside)
            return f"a node with {', '.join(f'{key}={value}' for key, value in labels)}"
        node_id, avoided = self.table.ledger.nodes[place].id, ""
        if code == Code.MODEL_TOO_LARGE and self.shape.described is not None:
            from fleetctl.planner.placement.memory import larger_cards  # for models that are described

            nodes = self.table.ledger.nodes
            small = [nodes[index] for index in np.flatnonzero(self.codes == code).tolist()]
            avoided = larger_cards(self.shape.described, self.group.name, small, nodes)
        elif self.shape.avoided:
            avoided = next((one.need for one in self.shape.avoided if (one.node_id, one.code) == (node_id, code.name)),
                           "")
        return avoided or need_text(code.name, need, self.claim, card)


def hardest_member(
    shape: ReplicaShape, group: GroupShape, table: NodeTable, touched: Iterable[int] = (), within: str | None = None
) -> Shortfall:
    """Return the kind of member of a group with the fewest nodes to spare; `touched` = nodes changed in a trial.

    `within` = only nodes with this value of the whole replica's label.
    """
    shortfalls = []
    for (claim, selector), count in group.classes().items():
        checks = table.checks(claim, selector, shape, touched)
        if within is not None:
            checks[~table.inside(shape.same_label or "", within) & table.alive] = Check(Code.NODE_SELECTOR_MISMATCH)
        shortfalls.append(Shortfall(shape, group, claim, selector, count, table, checks, within))
    return min(shortfalls, key=lambda one: len(one.fitting) - one.nodes_needed)
