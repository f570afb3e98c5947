"""The ledger: how much of each card, node and slot is still free while a plan is being made.

A trial is cheap: place a whole replica, then keep it or undo to a mark. Nothing here knows about Ray, files or time.
Nodes are in one fixed order (name, id), so that the order of the inventory cannot matter.

Equal offers are stored once and have a number. The result of a claim on an offer is computed once per (number, claim),
so that 50,000 replicas on 10,000 nodes cost as many dictionary lookups and only a few thousand computations.

`open_ledger` opens it: what every node offers and which slots are in use before anything is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Amounts, Gpu, Inventory, Node, NodeState, Replica, ReplicaMember
from fleetctl.documents.selector import parse_requirement
from fleetctl.planner.placement.claims import Claim, ReplicaShape, Selector
from fleetctl.planner.placement.ledger.cards import Offer, Taken, take
from fleetctl.planner.placement.ledger.node_offer import Facts, facts_of, offer_from
from fleetctl.planner.placement.policies import (
    NO_CAP,
    SLOTS_LABEL,
    CoolingCards,
    EffectivePolicy,
    effective_policy,
    with_notes,
)

if TYPE_CHECKING:
    from fleetctl.planner.placement.ledger.price_table import PriceTable

Value = str | None
"""A value of a label; None = without the label."""
Crowd = dict[Value, int]
"""Replicas by value, without values that no replica touches."""
LiveNodes = Callable[[str], Iterable[Iterable[int]]]
"""Returns the nodes that each live replica of a model touches."""
Slots = int
"""The slots of a node that replicas of one model hold: bit n is set if slot n is held."""
NO_SLOTS: Slots = 0
NO_OFFERS: Mapping[int, Offer] = {}
NO_SHAPES: Mapping[str, ReplicaShape] = {}
NOTHING: Mapping[str, str] = {}
NO_CARDS: Mapping[str, CoolingCards] = {}
HeldBy = Callable[[str], dict[int, Slots]]
"""Returns the slots that live replicas of a model hold, by node."""
Fit = tuple[Taken, int]
"""An offer after a claim, and the number of the offer that is left."""
Change = tuple[int, int] | tuple[int, str, int] | tuple[str, Value, int, None]
"""What undo restores: (node, number of its offer), (node, model key, the slot that was taken or lifted), or (model key,
value of its spread label, replicas that touched it, None). With all slots in each entry, memory would grow with the
square of the replicas."""


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """The facts of a node that do not change while planning."""

    id: str
    name: str
    state: NodeState
    labels: Mapping[str, str]
    policy: EffectivePolicy
    gpus: Sequence[Gpu] = ()
    """Its cards as in the inventory, for messages about the processes on them."""
    total: Amounts | None = None
    """All that Ray has there, of which a claim is a share; None = unknown."""

    @classmethod
    def of(cls, node: Node, policy: EffectivePolicy) -> LedgerNode:
        """Return a node of the inventory with its policy."""
        return cls(node.id, node.name, node.state, node.all_labels, policy, node.gpus, node.resources.total)

    @property
    def open(self) -> bool:
        """Whether new members may be placed here at all."""
        return self.state == "ALIVE" and self.policy.cordoned_by is None

    @property
    def largest_card(self) -> int:
        """The memory of its largest card in bytes; 0 = unknown."""
        known = max((card.memory_total or 0 for card in self.gpus), default=0)
        return known or (self.policy.gpu_memory or 0 if self.gpus else 0)

    def is_smaller(self, least_card: int) -> bool:
        """Return whether its largest card is known to have less memory."""
        return 0 < self.largest_card < least_card


@dataclass(slots=True)
class SpreadCounts:
    """The crowds of the models with a spread; a model's live replicas are read on first use."""

    nodes: Sequence[LedgerNode]
    labels: Mapping[str, str] = field(default_factory=dict)
    """The spread label by model key; models without one are not counted."""
    live_nodes: LiveNodes = lambda _key: ()
    _known: dict[str, Crowd] = field(default_factory=dict)

    def of(self, key: str) -> Crowd:
        """Return the crowd of a model, which follows later changes; empty if it has no spread."""
        crowd = self._known.get(key)
        if crowd is None:
            crowd = self._known[key] = {}
            for nodes in self.live_nodes(key) if key in self.labels else ():
                for value in self.values(key, nodes):
                    crowd[value] = crowd.get(value, 0) + 1
        return crowd

    def values(self, key: str, nodes: Iterable[int]) -> set[Value]:
        """Return the values that a replica on `nodes` touches."""
        label = self.labels[key]
        return {self.nodes[node].labels.get(label) for node in nodes}

    def put(self, key: str, value: Value, count: int) -> int:
        """Set the number of replicas that touch a value; returns the number before."""
        crowd = self.of(key)
        before = crowd.get(value, 0)
        if count:
            crowd[value] = count
        elif before:
            del crowd[value]
        return before

    def without(self, ended: Iterable[tuple[str, Iterable[int]]]) -> SpreadCounts:
        """Return a copy without the `ended` replicas, each as (model, the nodes it touches)."""
        copied = {key: dict(crowd) for key, crowd in self._known.items()}
        other = SpreadCounts(self.nodes, self.labels, self.live_nodes, copied)
        for key, nodes in ended:
            if key in other.labels:
                for value in other.values(key, nodes):
                    other.put(key, value, max(0, other.of(key).get(value, 0) - 1))
        return other


def lowest_free(held: Slots) -> int:
    """Return the lowest slot that is not held."""
    return (~held & held + 1).bit_length() - 1


@dataclass(slots=True)
class Ledger:
    """The offers and slots of all nodes."""

    nodes: Sequence[LedgerNode]
    changes: list[int] = field(default_factory=list)
    """Each node that changed, in order, also by an undo; readers keep a cursor into it."""
    numbers: list[int] = field(default_factory=list)
    """By node: the number of its offer; equal offers have equal numbers. Read-only elsewhere."""
    prices: PriceTable | None = None
    """Where prices decide between variants; None = nowhere."""
    _offers: list[Offer] = field(default_factory=list)
    _number_of: dict[Offer, int] = field(default_factory=dict)
    _slots: dict[str, dict[int, Slots]] = field(default_factory=dict)
    """By model key, then node: the slots held, for models already read."""
    _held_by: HeldBy = lambda _key: {}
    _spread_counts: SpreadCounts = field(default_factory=lambda: SpreadCounts(()))
    _journal: list[Change] = field(default_factory=list)
    _fits: dict[Claim, dict[int, Fit | None]] = field(default_factory=dict)
    _selected: dict[Selector, tuple[int, ...]] = field(default_factory=dict)
    _by_label: dict[str, dict[str | None, list[int]]] = field(default_factory=dict)
    _caps: dict[bool, Sequence[int] | None] = field(default_factory=dict)

    @classmethod
    def opened(
        cls, nodes: Sequence[LedgerNode], offers: Sequence[Offer], held_by: HeldBy = lambda _key: {},
        spread_counts: SpreadCounts | None = None,
    ) -> Ledger:
        """Open a ledger over `nodes` with their first offers and the slots that live replicas hold."""
        ledger = cls(nodes, _held_by=held_by, _spread_counts=spread_counts or SpreadCounts(nodes))
        ledger.numbers = [ledger._number(offer) for offer in offers]
        return ledger

    def offer(self, node: int) -> Offer:
        """Return the present offer of a node."""
        return self._offers[self.numbers[node]]

    def numbered(self, number: int) -> Offer:
        """Return the offer with this number."""
        return self._offers[number]

    def fit(self, number: int, claim: Claim) -> Fit | None:
        """Return what would be left after taking `claim` from the offer with this number; None if it does not fit."""
        fits = self._fits.get(claim)
        if fits is None:
            fits = self._fits[claim] = {}
        if number not in fits:
            taken = take(self._offers[number], claim)
            fits[number] = None if taken is None else (taken, self._number(taken.left))
        return fits[number]

    def take(self, node: int, claim: Claim) -> Taken | None:
        """Take `claim` on a node; None, and no change, if it does not fit."""
        fit = self.fit(self.numbers[node], claim)
        if fit is None:
            return None
        self.shift(node, fit[1])
        return fit[0]

    def shift(self, node: int, number: int) -> None:
        """Give a node another offer, by number; can be undone."""
        self._journal.append((node, self.numbers[node]))
        self._set(node, number)

    def lift_slots(self, key: str, slots: Mapping[int, int]) -> None:
        """Return the slots that `take_slots` took for one new replica; can be undone."""
        for node, slot in slots.items():
            self._journal.append((node, key, slot))
            self._set_slots(node, key, self.slots(node, key) & ~(1 << slot))
        self._touch(key, slots, -1)

    def slots(self, node: int, key: str) -> Slots:
        """Return the slots that replicas of a model hold on a node."""
        return self.slots_of(key).get(node, NO_SLOTS)

    def slots_of(self, key: str) -> dict[int, Slots]:
        """Return the slots that replicas of a model hold, by node; follows later changes. Read-only elsewhere.

        A model's live replicas are read on first use.
        """
        held = self._slots.get(key)
        if held is None:
            held = self._slots[key] = self._held_by(key)
        return held

    def take_slots(self, key: str, nodes: Iterable[int]) -> dict[int, int]:
        """Take the lowest free slot of a model on each node that a new replica touches; returns the slots by node."""
        held, taken = self.slots_of(key), dict[int, int]()
        for node in nodes:
            if node in taken:
                continue
            before = held.get(node, NO_SLOTS)
            taken[node] = slot = lowest_free(before)
            self._journal.append((node, key, slot))
            held[node] = before | 1 << slot
        self._touch(key, taken, 1)
        return taken

    def crowd(self, key: str) -> Crowd:
        """Return how many replicas of a model touch each value of its spread label; follows later changes."""
        return self._spread_counts.of(key)

    def values(self, key: str, nodes: Iterable[int]) -> set[Value]:
        """Return the values of its spread label that a replica of a model touches on some nodes."""
        return self._spread_counts.values(key, nodes)

    def _touch(self, key: str, nodes: Iterable[int], more: int) -> None:
        if key not in self._spread_counts.labels:
            return
        for value in self.values(key, nodes):
            before = self._spread_counts.put(key, value, self._spread_counts.of(key).get(value, 0) + more)
            self._journal.append((key, value, before, None))

    def caps(self, *, wants_cards: bool) -> Sequence[int] | None:
        """Return the slot cap of each node for models that do, or do not, claim GPU or VRAM; None without any cap."""
        if wants_cards not in self._caps:
            caps = [node.policy.cap_for(wants_cards).limit for node in self.nodes]
            capped = any(cap < NO_CAP for cap, node in zip(caps, self.nodes, strict=True) if node.open)
            self._caps[wants_cards] = caps if capped else None
        return self._caps[wants_cards]

    def tells_apart(self, shape: ReplicaShape) -> bool:
        """Return whether a shape's model matters, because of slots or the limit of its spread."""
        limited = shape.spread is not None and shape.spread.most is not None
        return limited or self.caps(wants_cards=shape.wants_cards) is not None

    def mark(self) -> int:
        """Return a mark to undo to."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Undo all changes since `mark`."""
        while len(self._journal) > mark:
            change = self._journal.pop()
            if len(change) == 2:
                self._set(*change)
            elif len(change) == 3:
                node, key, slot = change
                self._set_slots(node, key, self.slots(node, key) ^ 1 << slot)
            else:
                self._spread_counts.put(*change[:3])

    def copied(
        self, *, dead: int | None = None, offers: Mapping[int, Offer] = NO_OFFERS,
        ended: Sequence[tuple[str, Collection[int]]] = (),
    ) -> Ledger:
        """Return an independent copy; `dead` = a node that is dead in it, `offers` = other offers of some nodes.

        `ended` = (model, its nodes) of replicas that no longer hold slots. Offers and fits stay shared.
        """
        nodes = list(self.nodes)
        if dead is not None:
            nodes[dead] = replace(nodes[dead], state="DEAD")
        other = replace(self, nodes=nodes, changes=[], numbers=list(self.numbers), _journal=[], _selected={},
                        _by_label={}, _caps={}, _slots={key: dict(held) for key, held in self._slots.items()},
                        _spread_counts=self._spread_counts.without(ended))
        for index, offer in offers.items():
            other.numbers[index] = other._number(offer)
        for key, index in ((key, index) for key, indices in ended for index in set(indices)):
            held = other.slots(index, key)
            if held:
                other._set_slots(index, key, held & ~(1 << held.bit_length() - 1))
        return other

    def selected(self, selector: Selector) -> tuple[int, ...]:
        """Return the open nodes a selector allows, in ledger order."""
        if selector not in self._selected:
            nodes, without, least = self.nodes, frozenset(selector.without), selector.least_card
            self._selected[selector] = tuple([
                index for index in self.labelled(selector.labels) if nodes[index].open
                and nodes[index].id not in without and not (least and nodes[index].is_smaller(least))])
        return self._selected[selector]

    def select(self, selector: Selector, indices: Sequence[int]) -> None:
        """Define a made-up selector as these nodes, whatever their labels."""
        self._selected[selector] = tuple(indices)

    def labelled(self, labels: Iterable[tuple[str, str]]) -> Sequence[int]:
        """Return all nodes with these labels in ledger order, closed and dead ones too; see `Selector`."""
        matching: set[int] | None = None
        for key, expression in labels:
            requirement = parse_requirement(expression)
            by_value = self._places_of(key)
            values = [value for value in (by_value if requirement.negated else sorted(requirement.values))
                      if value in by_value and requirement.allows(value)]
            indices = set[int]().union(*(by_value[value] for value in values))
            matching = indices if matching is None else matching & indices
        return range(len(self.nodes)) if matching is None else sorted(matching)

    def _places_of(self, key: str) -> dict[str | None, list[int]]:
        """Return the nodes by their value of a label, indexed on first use; None = without the label."""
        if key not in self._by_label:
            by_value = self._by_label[key] = {}
            for index, node in enumerate(self.nodes):
                by_value.setdefault(node.labels.get(key), []).append(index)
        return self._by_label[key]

    def _set_slots(self, node: int, key: str, slots: Slots) -> None:
        if slots:
            self.slots_of(key)[node] = slots
        else:
            del self.slots_of(key)[node]

    def _set(self, node: int, number: int) -> None:
        self.numbers[node] = number
        self.changes.append(node)

    def _number(self, offer: Offer) -> int:
        number = self._number_of.setdefault(offer, len(self._offers))
        if number == len(self._offers):
            self._offers.append(offer)
        return number


class Running(Protocol):
    """What runs, as far as a ledger needs it."""

    @property
    def holding(self) -> Mapping[str, Sequence[ReplicaMember]]:
        """By node id: the members of all live replicas, foreign ones included, in a fixed order."""

    def live_of(self, key: str) -> Sequence[Replica]:
        """Return the live replicas of a model."""


def open_ledger(
    inventory: Inventory, policies: Sequence[NodePolicy], running: Running,
    shapes: Mapping[str, ReplicaShape] = NO_SHAPES, cooling: Mapping[str, str] = NOTHING,
    cooling_cards: Mapping[str, CoolingCards] = NO_CARDS,
) -> Ledger:
    """Open a ledger over all nodes of `inventory`, in order of name and id; `shapes` define which models are spread.

    `cooling` = why nodes take no new replicas for a while, by node id; `cooling_cards` = their cooling cards, likewise.
    """
    documents = sorted(inventory.nodes, key=lambda node: (node.name, node.id))
    nodes = _ledger_nodes(documents, policies, cooling, cooling_cards)
    indices = {node.id: index for index, node in enumerate(documents)}
    offers, nothing, offer_of = list[Offer](), Offer(), dict[tuple[Facts, EffectivePolicy], Offer]()
    for document, node in zip(documents, nodes, strict=True):
        if node.state != "ALIVE":
            offers.append(nothing)
            continue
        kind = facts_of(document, running.holding.get(node.id, ())), node.policy
        if kind not in offer_of:  # equal nodes are computed once
            offer_of[kind] = offer_from(*kind)
        offers.append(offer_of[kind])

    def held_by(key: str) -> dict[int, Slots]:
        held = held_slots(running.live_of(key))
        return {indices[node_id]: slots for node_id, slots in held.items() if node_id in indices}

    def live_nodes(key: str) -> Iterator[set[int]]:
        for replica in running.live_of(key):
            yield {indices[member.node_id] for member in replica.members if member.node_id in indices}

    labels = {key: shape.spread.label for key, shape in shapes.items() if shape.spread is not None}
    return Ledger.opened(nodes, offers, held_by, SpreadCounts(nodes, labels, live_nodes))


def _ledger_nodes(
    nodes: Sequence[Node], policies: Sequence[NodePolicy], cooling: Mapping[str, str],
    cooling_cards: Mapping[str, CoolingCards],
) -> list[LedgerNode]:
    """Policies are merged once per combination of values of the labels they depend on."""
    relevant = sorted({SLOTS_LABEL, *(key for policy in policies for key in policy.selector)})
    policy_of: dict[tuple[str | None, ...], EffectivePolicy] = {}
    result: list[LedgerNode] = []
    for node in nodes:
        labels = node.all_labels
        values = tuple([labels.get(key) for key in relevant])
        policy = policy_of.get(values)
        if policy is None:
            policy = policy_of[values] = effective_policy(policies, labels)
        policy = with_notes(policy, node)
        if policy.cordoned_by is None and node.id in cooling:
            policy = replace(policy, cordoned_by=cooling[node.id], cooling=True)
        if node.id in cooling_cards:
            policy = replace(policy, cooling_cards=cooling_cards[node.id])
        result.append(LedgerNode(node.id, node.name, node.state, labels, policy, node.gpus, node.resources.total))
    return result


def held_slots(live: Sequence[Replica]) -> dict[str, Slots]:
    """Return the slots that replicas of one model hold on each node; an unknown slot counts as the lowest free one."""
    slots_on: dict[str, list[int | None]] = {}
    for replica in live:
        on_nodes: dict[str | None, int | None] = {}  # with the slot that the first of its members there reports
        for member in replica.members:
            if on_nodes.get(member.node_id) is None:
                on_nodes[member.node_id] = member.slot
        for node_id, slot in on_nodes.items():
            if node_id is not None:
                slots_on.setdefault(node_id, []).append(slot)
    by_node: dict[str, Slots] = {}
    for node_id, slots in slots_on.items():
        held = NO_SLOTS
        for slot in sorted(slots, key=lambda slot: slot is None):
            held |= 1 << (lowest_free(held) if slot is None or held >> slot & 1 else slot)
        by_node[node_id] = held
    return by_node
