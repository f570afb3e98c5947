"""A member that finds no node: what stops it on every node, summed up by code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fleetctl.documents.plan import Counted, Reason
from fleetctl.documents.quantity import SHARE, format_bytes
from fleetctl.planner.placement.claims import Claim, GroupShape, ReplicaShape, Selector
from fleetctl.planner.placement.reasons.check import Check, Checks, Code
from fleetctl.planner.placement.reasons.node_table import NodeTable
from fleetctl.planner.placement.reasons.words import amount, need_text, users_text
from fleetctl.planner.placement.tally import Ints

MAX_EXAMPLES = 5


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
        node_id = self.table.ledger.nodes[place].id
        avoided = (one.need for one in self.shape.avoided if (one.node_id, one.code) == (node_id, code.name))
        return next(avoided, None) or need_text(code.name, need, self.claim, card)


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
            elsewhere = table.where(shape.same_label or "", lambda value: value != within) & table.alive
            checks[elsewhere] = Check(Code.NODE_SELECTOR_MISMATCH)
        shortfalls.append(Shortfall(shape, group, claim, selector, count, table, checks, within))
    return min(shortfalls, key=lambda one: len(one.fitting) - one.nodes_needed)
