"""A member that finds no node: what stops it on every node, summed up by code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fleetctl.documents.plan import Counted, Reason
from fleetctl.documents.quantity import SHARE, format_bytes
from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.claims import Claim, GroupShape, ReplicaShape, Selector, without_left_out
from fleetctl.planner.placement.reasons.check import IN_WORDS, Check, Checks, Code
from fleetctl.planner.placement.reasons.node_table import NodeTable
from fleetctl.planner.placement.reasons.words import amount, need_text, users_text

MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One kind of member of a group: `count` ranks of it, and what every node says to one more."""

    shape: ReplicaShape
    group: GroupShape
    claim: Claim
    selector: Selector
    count: int
    table: NodeTable
    checks: Checks
    within: str | None = None
    """The value of the label of its whole replica that it is about; None = any node."""

    @property
    def codes(self) -> Ints:
        """Return by node the code that stops it; FITS = none."""
        codes: Ints = self.checks["code"]
        return codes

    @property
    def fitting(self) -> Ints:
        """Return the nodes that could take one such member."""
        return np.flatnonzero(self.codes == Code.FITS)

    @property
    def usable(self) -> Ints:
        """Return the nodes that may take such members at all: alive, selected, open, with a slot."""
        return np.flatnonzero(self.codes < Code.SLOTS_FULL)

    @property
    def nodes_needed(self) -> int:
        """Return how many nodes the ranks of this kind need at least."""
        return -(-self.count // self.shape.ranks_per_node)

    @property
    def asked(self) -> Selector:
        """Return which labels its node must have."""
        inside = () if self.within is None else ((self.shape.same_label or "", self.within),)
        return (*without_left_out(self.selector), *inside)

    def reasons(self) -> list[Reason]:
        """Sum the nodes up by code, the codes nearest to success first."""
        found, last = set(self.codes.tolist()), Code.NO_NODES
        if self.within is not None and min(found, default=last) < Code.NODE_SELECTOR_MISMATCH:
            last = Code.NODE_SELECTOR_MISMATCH
        return [self._reason(code) for code in Code if code in found and Code.FITS < code < last]

    def counted(self) -> Counted:
        """Count the nodes and, for claims of cards, what is free on those it may use: whole cards, or shares."""
        usable, offers = self.usable, self.table.offers
        free: Ints = np.zeros(len(usable), dtype=np.int64)
        if self.claim.whole_cards:
            free = offers.free_cards(usable) * SHARE
        elif self.claim.wants_card:
            free = offers.free_share(usable)
        return Counted(
            nodes=int(self.table.alive.sum()), selected=int((self.codes < Code.NODE_SELECTOR_MISMATCH).sum()),
            usable=len(usable), fitting=len(self.fitting),
            free_gpus=int(free.sum()), on_nodes=int((free > 0).sum()), most_on_one=int(free.max(initial=0)),
        )

    def examples(self, places: Sequence[int] | Ints) -> list[str]:
        """Return the names of the first few nodes."""
        return [self.table.ledger.nodes[int(place)].name for place in places[:MAX_EXAMPLES]]

    def _reason(self, code: Code) -> Reason:
        """Let the node that misses by least speak for all of one code."""
        found = self.checks
        places = np.flatnonzero(self.codes == code)
        place = int(places[(found["need"] - found["have"])[places].argmin()])
        _, need, have, card = found[place].item()
        name = self.table.ledger.nodes[place].name
        return Reason(
            code=code.name, node_count=len(places), need=self._need(code, place, need, card),
            best=f"{amount(code.name, have, self.claim)} on {name}" if need else "none",
            short=amount(code.name, need - have, self.claim) if need else "", examples=self.examples(places),
            in_use=self._in_use(place) if code in (Code.CARD_IN_USE, Code.CARD_COOLING) else [],
        )

    def _in_use(self, place: int) -> list[str]:
        """Say of the cards of a node that Ray would hand out how much others use of them and who, or why they cool."""
        node = self.table.ledger.nodes[place]
        cards = {card.index: card for card in node.gpus}
        why = {one.index: f"card {one.index} on {node.name}: {one.why}" for one in node.policy.cooling_cards}
        return [f"{format_bytes(card.foreign)} of card {card.index} on {node.name} are in use"
                f"{users_text(cards[card.index])}" if card.foreign else why.get(card.index, "")
                for card in self.table.ledger.offer(place).cards
                if card.dirty and card.free_share and card.index in cards][:MAX_EXAMPLES]

    def _need(self, code: Code, place: int, need: int, card: int) -> str:
        policy = self.table.ledger.nodes[place].policy
        if code == Code.SLOTS_FULL:
            cap = policy.cap_for(self.shape.wants_cards)
            return f"1 free slot (cap {cap.limit}: {cap.source})"
        if code == Code.SPREAD_FULL and self.shape.spread is not None:
            label, most = self.shape.spread
            return f"room for 1 more on a value of {label} (at most {most} each, none without the label)"
        if code in (Code.NODE_COOLING, Code.CORDONED):
            why = (policy.cordoned_by or "left out for this model").removeprefix("cooling ")
            return f"a node that is not {IN_WORDS[code.name]} ({why})"
        if code == Code.NODE_DRAINING:
            return "a node that is not draining"
        if code == Code.NODE_SELECTOR_MISMATCH:
            return f"a node with {', '.join(f'{key}={value}' for key, value in self.asked)}"
        return need_text(code.name, need, self.claim, card)


def hardest_member(
    shape: ReplicaShape, group: GroupShape, table: NodeTable, touched: Iterable[int] = (), within: str | None = None
) -> Shortfall:
    """Return the kind of member of a group with the fewest nodes to spare; `touched` = nodes changed in a trial.

    `within` = only nodes with this value of the label of the whole replica.
    """
    shortfalls = []
    for (claim, selector), count in group.classes().items():
        checks = table.checks(claim, selector, shape, touched)
        if within is not None:
            elsewhere = table.where(shape.same_label or "", lambda value: value != within) & table.alive
            checks[elsewhere] = Check(Code.NODE_SELECTOR_MISMATCH)
        shortfalls.append(Shortfall(shape, group, claim, selector, count, table, checks, within))
    return min(shortfalls, key=lambda one: len(one.fitting) - one.nodes_needed)
