"""Opens the ledger: what every node offers and which slots are in use, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import MAX_SLOTS, Inventory, Node, Replica, ReplicaMember
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.ledger.ledger import NO_SLOTS, Crowds, Ledger, LedgerNode, Slots, lowest_free
from fleetctl.planner.placement.ledger.node_offer import Facts, facts_of, offer_from
from fleetctl.planner.placement.policies import SLOTS_LABEL, CoolingCards, EffectivePolicy, effective_policy, with_notes

NO_SHAPES: Mapping[str, ReplicaShape] = {}
NOTHING: Mapping[str, str] = {}
NO_CARDS: Mapping[str, CoolingCards] = {}


def open_ledger(
    inventory: Inventory, policies: Sequence[NodePolicy], state: LiveState,
    shapes: Mapping[str, ReplicaShape] = NO_SHAPES, cooling: Mapping[str, str] = NOTHING,
    cooling_cards: Mapping[str, CoolingCards] = NO_CARDS,
) -> Ledger:
    """Open a ledger over all nodes of `inventory`, in order of name and id; `shapes` define which models are spread.

    `cooling` = why nodes take no new replicas for a while, by node id; `cooling_cards` = their cooling cards, likewise.
    """
    nodes = sorted(inventory.nodes, key=lambda node: (node.name, node.id))
    facts = _ledger_nodes(nodes, policies, cooling, cooling_cards)
    places = {node.id: place for place, node in enumerate(nodes)}

    def held_by(key: str) -> dict[int, Slots]:
        live = state.models[key].live if key in state.models else ()
        return {places[node_id]: held for node_id, held in held_slots(live).items() if node_id in places}

    def live_nodes(key: str) -> Iterator[set[int]]:
        for replica in state.models[key].live if key in state.models else ():
            yield {places[member.node_id] for member in replica.members if member.node_id in places}

    labels = {key: shape.spread.label for key, shape in shapes.items() if shape.spread is not None}
    crowds = Crowds(facts, labels, live_nodes)
    return Ledger.opened(facts, _offers(nodes, facts, state.holding), held_by, crowds)


def held_slots(live: Sequence[Replica]) -> dict[str, Slots]:
    """Return the slots that replicas of one model hold on each node; an unknown slot counts as the lowest free one."""
    found: dict[str, list[int | None]] = {}
    for replica in live:
        on_nodes: dict[str | None, int | None] = {}  # with the slot that the first of its members there reports
        for member in replica.members:
            if on_nodes.get(member.node_id) is None:
                is_slot = member.slot is not None and 0 <= member.slot <= MAX_SLOTS  # a snapshot may say anything
                on_nodes[member.node_id] = member.slot if is_slot else None
        for node_id, slot in on_nodes.items():
            if node_id is not None:
                found.setdefault(node_id, []).append(slot)
    by_node: dict[str, Slots] = {}
    for node_id, slots in found.items():
        held = NO_SLOTS
        for slot in sorted(slots, key=lambda slot: slot is None):
            held |= 1 << (lowest_free(held) if slot is None or held >> slot & 1 else slot)
        by_node[node_id] = held
    return by_node


def _ledger_nodes(
    nodes: Sequence[Node], policies: Sequence[NodePolicy], cooling: Mapping[str, str],
    cooling_cards: Mapping[str, CoolingCards],
) -> list[LedgerNode]:
    """Policies are merged once per combination of values of the labels they depend on."""
    relevant = sorted({SLOTS_LABEL, *(key for policy in policies for key in policy.selector)})
    known: dict[tuple[str | None, ...], EffectivePolicy] = {}
    result: list[LedgerNode] = []
    for node in nodes:
        labels = node.all_labels
        values = tuple([labels.get(key) for key in relevant])
        policy = known.get(values)
        if policy is None:
            policy = known[values] = effective_policy(policies, labels)
        policy = with_notes(policy, node)
        if policy.cordoned_by is None and node.id in cooling:
            policy = replace(policy, cordoned_by=cooling[node.id], cooling=True)
        if node.id in cooling_cards:
            policy = replace(policy, cooling_cards=cooling_cards[node.id])
        result.append(LedgerNode(node.id, node.name, node.state, labels, policy, node.gpus))
    return result


def _offers(
    nodes: Sequence[Node], ledger_nodes: Sequence[LedgerNode], holding: Mapping[str, Sequence[ReplicaMember]]
) -> list[Offer]:
    """Equal nodes are computed once."""
    known: dict[tuple[Facts, EffectivePolicy], Offer] = {}
    nothing, result = Offer(), list[Offer]()
    for node, ledger_node in zip(nodes, ledger_nodes, strict=True):
        if node.state != "ALIVE":
            result.append(nothing)
            continue
        kind = facts_of(node, holding.get(node.id, ())), ledger_node.policy
        offer = known.get(kind)
        if offer is None:
            offer = known[kind] = offer_from(*kind)
        result.append(offer)
    return result
