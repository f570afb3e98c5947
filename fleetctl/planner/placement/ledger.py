"""The ledger: how much of each card, node and slot is still free while a plan is being made.

A trial is a cheap overlay: place a whole replica, then keep it or undo to a mark. Nothing here knows about Ray, files
or time. Nodes stand in one fixed order (name, id), so that the order of the inventory cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.documents.inventory import NodeState
from fleetctl.documents.selector import matches
from fleetctl.planner.placement.cards import Offer, Taken, count_fits, take
from fleetctl.planner.placement.claims import Claim, Selector
from fleetctl.planner.placement.policies import NO_CAP, EffectivePolicy

Slots = frozenset[int]


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """What does not change about a node while planning."""

    id: str
    name: str
    state: NodeState
    labels: Mapping[str, str]
    policy: EffectivePolicy

    @property
    def open(self) -> bool:
        """Tell whether new members may stand here at all."""
        return self.state == "ALIVE" and self.policy.cordoned_by is None


@dataclass(slots=True)
class Ledger:
    """Offers and slots of all nodes. Equal offers are stored once and known by number, so that answers can be kept."""

    nodes: Sequence[LedgerNode]
    changes: list[int] = field(default_factory=list)
    """Every node that changed, in order, also by undoing: readers keep a cursor into it."""
    _offers: list[Offer] = field(default_factory=list)
    _numbers: dict[Offer, int] = field(default_factory=dict)
    _at: list[int] = field(default_factory=list)
    _slots: dict[tuple[int, str], Slots] = field(default_factory=dict)
    _journal: list[Callable[[], None]] = field(default_factory=list)
    _fits: dict[tuple[int, Claim], Taken | None] = field(default_factory=dict)
    _counts: dict[Claim, dict[int, int]] = field(default_factory=dict)
    _selected: dict[Selector, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def opened(
        cls, nodes: Sequence[LedgerNode], offers: Sequence[Offer], slots: Mapping[tuple[int, str], Slots]
    ) -> Ledger:
        """Open a ledger over `nodes` with their first offers and the slots live replicas hold, by (node, model)."""
        ledger = cls(nodes, _slots=dict(slots))
        ledger._at = [ledger._number(offer) for offer in offers]
        return ledger

    def offer(self, node: int) -> Offer:
        """Return what a node still offers."""
        return self._offers[self._at[node]]

    def offer_number(self, node: int) -> int:
        """Return the number of a node's offer; equal offers have equal numbers."""
        return self._at[node]

    def peek(self, node: int, claim: Claim) -> Taken | None:
        """Return what taking `claim` on a node would leave, or None when it does not fit; changes nothing."""
        kind = (self._at[node], claim)
        if kind not in self._fits:
            self._fits[kind] = take(self._offers[kind[0]], claim)
        return self._fits[kind]

    def most(self, node: int, claim: Claim) -> int:
        """Return a number of equal claims that can never be exceeded on a node as it stands."""
        number, known = self._at[node], self._counts.setdefault(claim, {})
        if number not in known:
            known[number] = count_fits(self._offers[number], claim)
        return known[number]

    def take(self, node: int, claim: Claim) -> Taken | None:
        """Take `claim` on a node; None, and no change, when it does not fit."""
        taken = self.peek(node, claim)
        if taken is not None:
            before = self._at[node]
            self._journal.append(lambda: self._set(node, before))
            self._set(node, self._number(taken.left))
        return taken

    def slots(self, node: int, key: str) -> Slots:
        """Return the slots that replicas of a model hold on a node."""
        return self._slots.get((node, key), frozenset())

    def slots_held(self) -> Iterable[tuple[tuple[int, str], Slots]]:
        """Return the slots in use by (node, model), in no particular order."""
        return self._slots.items()

    def take_slot(self, node: int, key: str) -> int:
        """Take the lowest free slot of a model on a node and return it."""
        before = self.slots(node, key)
        slot = next(index for index in range(len(before) + 1) if index not in before)
        self._journal.append(lambda: self._slots.__setitem__((node, key), before))
        self._slots[node, key] = before | {slot}
        return slot

    def free_slots(self, node: int, key: str, *, wants_cards: bool) -> int:
        """Return how many more replicas of a model may touch a node."""
        cap = self.nodes[node].policy.cap_for(wants_cards).limit
        return cap if cap >= NO_CAP else max(0, cap - len(self.slots(node, key)))

    def mark(self) -> int:
        """Return a mark to undo to."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Throw away everything taken since `mark`."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def selected(self, selector: Selector) -> tuple[int, ...]:
        """Return the open nodes a selector allows, in ledger order."""
        if selector not in self._selected:
            wanted = dict(selector)
            self._selected[selector] = tuple(
                place for place, node in enumerate(self.nodes) if node.open and matches(wanted, node.labels)
            )
        return self._selected[selector]

    def _set(self, node: int, number: int) -> None:
        self._at[node] = number
        self.changes.append(node)

    def _number(self, offer: Offer) -> int:
        number = self._numbers.setdefault(offer, len(self._offers))
        if number == len(self._offers):
            self._offers.append(offer)
        return number
