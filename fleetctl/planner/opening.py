"""Opens the ledger: what every node offers and which slots are held, before anything is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Inventory, Node, Replica, ReplicaMember
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.cards import Offer
from fleetctl.planner.placement.ledger import Ledger, LedgerNode, Slots
from fleetctl.planner.placement.policies import effective_policy
from fleetctl.planner.placement.replica import NODE_ID_LABEL
from fleetctl.planner.placement.stock import offer_of


def open_ledger(inventory: Inventory, policies: Sequence[NodePolicy], state: LiveState) -> Ledger:
    """Open a ledger over all nodes of `inventory`, in order of name and id."""
    nodes = sorted(inventory.nodes, key=lambda node: (node.name, node.id))
    facts = [_ledger_node(node, policies) for node in nodes]
    offers = [_offer(node, fact, state.holding.get(node.id, ())) for node, fact in zip(nodes, facts, strict=True)]
    places = {node.id: place for place, node in enumerate(nodes)}
    slots: dict[tuple[int, str], Slots] = {}
    for key, model in state.models.items():
        for node_id, held in held_slots(model.live).items():
            if node_id in places:
                slots[places[node_id], key] = held
    return Ledger.opened(facts, offers, slots)


def held_slots(live: Sequence[Replica]) -> dict[str, Slots]:
    """Return the slots each node's replicas of one model hold; one whose slot is not told counts as the lowest free."""
    told: dict[str, list[int | None]] = {}
    for replica in live:
        by_node: dict[str, int | None] = {}
        for member in replica.members:
            if member.node_id is not None:
                known = by_node.get(member.node_id)
                by_node[member.node_id] = member.slot if known is None else known
        for node_id, slot in by_node.items():
            told.setdefault(node_id, []).append(slot)
    return {node_id: _settled(slots) for node_id, slots in told.items()}


def _settled(slots: list[int | None]) -> Slots:
    held: set[int] = set()
    for slot in sorted(slots, key=lambda slot: slot is None):
        lowest = next(index for index in range(len(slots) + 1) if index not in held)
        held.add(lowest if slot is None or slot in held else slot)
    return frozenset(held)


def _ledger_node(node: Node, policies: Sequence[NodePolicy]) -> LedgerNode:
    labels: Mapping[str, str] = {NODE_ID_LABEL: node.id, **node.labels}
    return LedgerNode(node.id, node.name, node.state, labels, effective_policy(policies, labels))


def _offer(node: Node, fact: LedgerNode, members: Sequence[ReplicaMember]) -> Offer:
    return offer_of(node, members, fact.policy) if node.state == "ALIVE" else Offer()
