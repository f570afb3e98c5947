"""New nodes, to try a remedy on before it is suggested: the shapes they could have, and small ledgers with them.

The shapes are those of existing nodes, and for a claim that none of them serves, the claim itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import MAX_NODE_GPUS, Amounts, Gpu, Node, NodeResources
from fleetctl.documents.quantity import LARGEST_CARD, MAX_BYTES, SHARE, count_of, format_bytes, format_share, plural
from fleetctl.documents.selector import ACCELERATOR_LABEL, NODE_ID_LABEL, parse_requirement
from fleetctl.planner.placement.claims import Kind, ReplicaShape, Selector
from fleetctl.planner.placement.ledger.cards import Offer, take
from fleetctl.planner.placement.ledger.ledger import NO_OFFERS, Ledger, LedgerNode, SpreadCounts
from fleetctl.planner.placement.ledger.node_offer import GIB, offer_of
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.policies import EffectivePolicy, effective_policy
from fleetctl.planner.placement.reasons.check import Code
from fleetctl.planner.placement.reasons.node_table import NodeTable
from fleetctl.planner.placement.tally import Ints

NAME_LABEL = "fleet.io/node"
Labels = Mapping[str, str]
NO_LABELS: Labels = {}
ANY_VALUE = "any-new-value"
"""Stands for a label value that no node has: nodes with it are told apart from all others. It is told to nobody."""
MAX_MEMBERS = 256
"""Larger replicas are not tried."""

Fresh = tuple[LedgerNode, Offer]
"""A node that does not exist yet, and its offer."""


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A node to add: `node` is empty and has no name; `like` = the name of an existing node of this shape."""

    node: Node
    like: str | None

    @property
    def words(self) -> str:
        """The shape in words: `8xH200`, `2 GPUs of 24Gi`; with CPUs and memory if no existing node shows them."""
        total, kind = self.node.resources.total, self.node.labels.get(ACCELERATOR_LABEL)
        count = max(int(total.gpu), len(self.node.gpus))
        sizes = {card.memory_total for card in self.node.gpus if card.memory_total}
        each = f" of {format_bytes(min(sizes))}" if len(sizes) == 1 and not (kind and self.like) else ""
        cards = f"{count}x{kind}" if kind else count_of(count, "GPU")
        parts = [cards + each] if count else []
        if self.like is None or not count:
            parts += [f"{format_share(round(total.cpu * SHARE))} {plural(total.cpu, 'CPU')}"] if total.cpu else []
            parts += [f"{format_bytes(total.memory)} memory"] if total.memory else []
        return ", ".join(parts) or "any kind"

    def fresh(
        self, count: int, policies: Sequence[NodePolicy], labels: Labels = NO_LABELS, start: int = 0
    ) -> list[Fresh]:
        """Return `count` new nodes, numbered from `start`, with their offers; `labels` are added to their own."""
        labels = {**self.node.labels, **labels}
        policy = effective_policy(policies, labels)
        offer = offer_of(self.node, (), policy)
        return [(LedgerNode(name, name, "ALIVE", {**labels, NODE_ID_LABEL: name}, policy, self.node.gpus,
                            self.node.resources.total), offer)
                for name in (f"added-{number}" for number in range(start, start + count))]


@dataclass
class NodeShapes:
    """The shapes of existing nodes; nodes that differ by less than 1Gi of host memory are one shape."""

    table: NodeTable
    nodes: Sequence[Node]
    policies: Sequence[NodePolicy]

    def smallest(self, kinds: Sequence[Kind]) -> NodeShape | None:
        """Return the smallest shape of which one empty node can take a member of each of `kinds`, one at a time."""
        if any(names_a_node(selector) for _, selector in kinds):
            return None
        allowed = np.ones(len(self.table), dtype=bool)
        for _, selector in kinds:
            allowed &= self.table.selected(selector)
        for offer, places in self._by_size:
            usable = places[allowed[places]]
            if len(usable) and all(take(offer, claim) is not None for claim, _ in kinds):
                best = self.nodes[int(usable[0])]
                return NodeShape(empty(best), best.name)
        return None

    def derived(self, kind: Kind) -> NodeShape | None:
        """Return a shape made from the claim of one member; None if no new node could take it."""
        claim, selector = kind
        policy = self.policy_for(selector)
        labels = _required_labels(selector)
        if names_a_node(selector) or policy.cordoned_by is not None or selector.least_card > LARGEST_CARD or (
                selector.least_card and ACCELERATOR_LABEL in labels):  # the memory of that kind of card is given
            return None
        count = claim.whole_cards or int(claim.wants_card)
        memory = max(claim.vram + policy.reserve_vram if claim.vram else 0, selector.least_card) or None
        if count > MAX_NODE_GPUS or (memory or 0) > MAX_BYTES:
            return None
        cards = [Gpu(index=index, memory_total=memory) for index in range(count)]
        total = Amounts(gpu=count, cpu=claim.cpus / SHARE, memory=claim.memory)
        return NodeShape(Node(id="", name="", labels=labels,
                              resources=NodeResources(total=total), gpus=cards), None)

    def policy_for(self, selector: Selector) -> EffectivePolicy:
        """Return the policy of a node that has only the labels a selector requires."""
        return effective_policy(self.policies, _required_labels(selector))

    @cached_property
    def _by_size(self) -> list[tuple[Offer, Ints]]:
        """The offer of an empty node of each shape, smallest first, and the nodes of the shape, alive ones first.

        The node with the least host memory represents its shape. Cordoned shapes are left out.
        """
        alike: dict[object, list[int]] = {}
        facts = self.table.ledger.nodes
        for place, node in enumerate(self.nodes):
            total, policy = node.resources.total, facts[place].policy
            if policy.cordoned_by is None:
                cards = tuple((card.index, card.memory_total) for card in node.gpus)
                alike.setdefault((total.gpu, cards, total.cpu, total.memory // GIB, policy), []).append(place)
        smallest = [(min(places, key=lambda place: self.nodes[place].resources.total.memory), places)
                    for places in alike.values()]
        return [(offer_of(empty(self.nodes[place]), (), facts[place].policy),
                 np.array(sorted(places, key=lambda place: not self.table.alive[place]), dtype=np.int64))
                for place, places in sorted(smallest, key=lambda one: _size(self.nodes[one[0]]))]


def _size(node: Node) -> tuple[float, ...]:
    total = node.resources.total
    return total.gpu, max((card.memory_total or 0 for card in node.gpus), default=0), total.cpu, total.memory


def empty(node: Node, name: str = "") -> Node:
    """Return a node with the same cards and labels but another name, on which nothing runs."""
    labels = {key: name if name and key == NAME_LABEL else value
              for key, value in node.labels.items() if key != NODE_ID_LABEL}
    cards = [card.model_copy(update={"uuid": None, "memory_used": 0, "share": None}) for card in node.gpus]
    resources = NodeResources(total=node.resources.total, used=Amounts())
    return Node(id=name, name=name, labels=labels, resources=resources, gpus=cards)


def _required_labels(selector: Selector) -> dict[str, str]:
    parsed = {key: parse_requirement(expression) for key, expression in selector.labels}
    return {key: min(requirement.values) for key, requirement in parsed.items() if not requirement.negated}


def names_a_node(selector: Selector) -> bool:
    """Return whether a selector requires one node by its id."""
    expression = dict(selector.labels).get(NODE_ID_LABEL)
    return expression is not None and not parse_requirement(expression).negated


def ledger_with(
    ledger: Ledger, places: Sequence[int], fresh: Sequence[Fresh], shapes: Iterable[ReplicaShape],
    offers: Mapping[int, Offer] = NO_OFFERS,
) -> Ledger:
    """Return a ledger for placing `shapes`: the nodes at `places`, some with other `offers`, and `fresh` nodes."""
    nodes = [*(ledger.nodes[place] for place in places), *(node for node, _ in fresh)]
    number_of = {place: number for number, place in enumerate(places)}
    spread = {shape.key: shape.spread.label for shape in shapes if shape.spread is not None}
    return Ledger.opened(
        nodes, [*(offers.get(place) or ledger.offer(place) for place in places), *(offer for _, offer in fresh)],
        lambda key: {number_of[place]: held for place, held in ledger.slots_of(key).items() if place in number_of},
        SpreadCounts(nodes, spread, _known={key: dict(ledger.crowd(key)) for key in spread}))


def count_placed(
    shape: ReplicaShape, table: NodeTable, places: Sequence[int], *, offers: Mapping[int, Offer] = NO_OFFERS,
    fresh: Sequence[Fresh] = (), replicas: int = 1,
) -> int:
    """Return how many of `replicas` fit on the nodes of `ledger_with`."""
    placer = Placer(ledger_with(table.ledger, places, fresh, [shape], offers))
    for placed in range(replicas):
        if placer.place(shape) is None:
            return placed
    return replicas


def fewest(
    most: Sequence[int], least: Sequence[int], enough: Callable[[Sequence[int]], bool], *, last_first: bool = False
) -> list[int]:
    """Return the fewest nodes of each kind that are `enough`, between `least` and `most`; `most` must be enough.

    Kinds are reduced one after another, the others staying at their present count.
    """
    counts = list(most)
    for at in reversed(range(len(counts))) if last_first else range(len(counts)):
        counts[at] = least[at] + bisect_left(range(least[at], counts[at]), True, key=lambda count: enough(
            [*counts[:at], count, *counts[at + 1:]]))
    return counts


def helpful_places(
    shape: ReplicaShape, table: NodeTable, beside: Sequence[int] = (), value: str | None = None
) -> list[int]:
    """Return `beside` and, for each kind of member, nodes that take one now; nodes of the domain `value` come first."""
    chosen = set(beside)
    inside = np.zeros(len(table), dtype=bool)
    if shape.same_label is not None and value is not None:
        inside = table.inside(shape.same_label, value)
    for group in shape.groups:
        for (claim, selector), count in group.classes().items():
            fitting = np.flatnonzero(table.checks(claim, selector, shape)["code"] == Code.FITS)
            first = fitting[np.argsort(~inside[fitting], kind="stable")]
            chosen.update(first[: max(64, 4 * count * group.copies)].tolist())
    return sorted(chosen)
