"""What goes when a node goes: the node itself, and what replicas that stood on it also held on other nodes.

A gang dies with any of its members, so its other nodes get back what it held there. That is known of replicas that
carry a fleet's mark; of anything else only what stood on the node is taken as gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.documents.inventory import (
    LIVE_STATES,
    Amounts,
    Gpu,
    Inventory,
    Node,
    Replica,
    ReplicaMember,
    card_indices,
    dead_node_ids,
    is_lost,
)
from fleetctl.documents.quantity import SHARE


def without_node(inventory: Inventory, node_id: str) -> Inventory:
    """Return the inventory as it would be had this node died; its replicas stay listed, and are lost."""
    dead = dead_node_ids(inventory)  # what is lost already has given back whatever Ray says it has
    freed: dict[str, list[ReplicaMember]] = {}
    for replica in inventory.replicas:
        if replica.fleet is None or not is_live_on(replica, node_id) or is_lost(replica, dead):
            continue
        for member in replica.members:
            if member.node_id not in (None, node_id):
                freed.setdefault(str(member.node_id), []).append(member)
    nodes = [_after(node, node_id, freed.get(node.id, ())) for node in inventory.nodes]
    return inventory.model_copy(update={"nodes": nodes})


def is_live_on(replica: Replica, node_id: str) -> bool:
    """Tell whether a replica is live and has a member on the node."""
    return replica.state in LIVE_STATES and any(member.node_id == node_id for member in replica.members)


def _after(node: Node, lost: str, freed: Iterable[ReplicaMember]) -> Node:
    if node.id == lost:
        return node.model_copy(update={"state": "DEAD"})
    return given_back(node, freed)


def given_back(node: Node, members: Iterable[ReplicaMember]) -> Node:
    """Return `node` as Ray would report it once `members` have ended there."""
    for member in members:
        used = node.resources.used
        left = None if used is None else Amounts(
            gpu=max(0.0, used.gpu - member.gpus / SHARE), cpu=max(0.0, used.cpu - member.cpus / SHARE),
            memory=max(0, used.memory - member.memory))
        resources = node.resources.model_copy(update={"used": left})
        node = node.model_copy(update={"resources": resources, "gpus": _cards_after(node.gpus, member)})
    return node


def _cards_after(cards: list[Gpu], member: ReplicaMember) -> list[Gpu]:
    held = set(card_indices(member, cards)) or _likely(cards, member)
    share = min(SHARE, member.gpus)
    return [_card_after(card, share, member.vram) if card.index in held else card for card in cards]


def _likely(cards: list[Gpu], member: ReplicaMember) -> set[int]:
    """Return the cards a member that names none most likely has: those with the most memory in use."""
    count = -(-member.gpus // SHARE)
    by_use = sorted(cards, key=lambda card: (-(card.memory_used or 0), card.index))
    return {card.index for card in by_use[:count]}


def _card_after(card: Gpu, share: int, vram: int) -> Gpu:
    told = None if card.share is None else max(0.0, round(card.share - share / SHARE, 4))
    held = (card.memory_total or 0) if share == SHARE else max(vram, share * (card.memory_total or 0) // SHARE)
    used = None if card.memory_used is None else max(0, card.memory_used - max(held, 0))
    return card.model_copy(update={"share": told, "memory_used": used})
