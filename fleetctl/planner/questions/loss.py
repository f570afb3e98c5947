"""What goes when a node goes: the node itself, and what replicas that stood on it also held on other nodes.

A gang dies with any of its members, so its other nodes get back what it held there. That is known of replicas that
carry a fleet's mark; of anything else only what stood on the node is taken as gone.
"""

from __future__ import annotations

from fleetctl.documents.inventory import LIVE_STATES, Inventory, Replica, ReplicaMember, dead_node_ids, is_lost
from fleetctl.planner.placement.ledger.ended import without_members


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
    nodes = [node.model_copy(update={"state": "DEAD"}) if node.id == node_id
             else without_members(node, freed.get(node.id, ()), sure=False) for node in inventory.nodes]
    return inventory.model_copy(update={"nodes": nodes})


def is_live_on(replica: Replica, node_id: str) -> bool:
    """Tell whether a replica is live and has a member on the node."""
    return replica.state in LIVE_STATES and any(member.node_id == node_id for member in replica.members)
