"""The gate before plan and apply: an inventory that could not be read whole is nothing to act on."""

from __future__ import annotations

from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError


def require_complete(inventory: Inventory) -> None:
    """Raise InventoryError, with everything that went wrong, when the inventory is not complete."""
    if inventory.complete:
        return
    problems = "; ".join(inventory.warnings) or "no reason is given"
    raise InventoryError(f"the inventory from {inventory.source} is not complete: {problems}",
                         hint="nothing is planned on a partial inventory; "
                              "`fleetctl inventory` shows what could be read")
