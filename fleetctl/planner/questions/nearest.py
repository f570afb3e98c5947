"""The nodes people name."""

from __future__ import annotations

from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.nearest import did_you_mean
from fleetctl.errors import UsageError


def find_node(name: str, inventory: Inventory, flag: str) -> Node:
    """Return the node of that name or id; raises UsageError, with the nearest name, when there is none."""
    found = [node for node in inventory.nodes if name in (node.name, node.id)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(node.id for node in found)
        raise UsageError(f"{flag} {name}: {len(found)} nodes have this name", hint=f"name one by its id: {ids}")
    raise UsageError(f"{flag} {name}: the inventory has no such node",
                     hint=did_you_mean(name, (node.name for node in inventory.nodes)) or "see `fleetctl inventory`")
