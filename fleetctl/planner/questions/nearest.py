"""The name a person probably meant, and the nodes people name."""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.documents.inventory import Inventory, Node
from fleetctl.errors import UsageError


def nearest(name: str, known: Iterable[str], *, otherwise: str | None = None) -> str | None:
    """Return a hint with the known name that is nearest to `name`, or else `otherwise`."""
    from difflib import get_close_matches

    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5) or [known for known in names if known.endswith(f"/{name}")]
    return f"did you mean {near[0]}?" if near else otherwise


def find_node(name: str, inventory: Inventory, flag: str) -> Node:
    """Return the node of that name or id; raises UsageError, with the nearest name, when there is none."""
    found = [node for node in inventory.nodes if name in (node.name, node.id)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(node.id for node in found)
        raise UsageError(f"{flag} {name}: {len(found)} nodes have this name", hint=f"name one by its id: {ids}")
    raise UsageError(f"{flag} {name}: the inventory has no such node",
                     hint=nearest(name, (node.name for node in inventory.nodes), otherwise="see `fleetctl inventory`"))
