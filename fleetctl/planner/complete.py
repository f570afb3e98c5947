"""The gate before plan and apply: nothing is done on an incomplete inventory."""

from __future__ import annotations

from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError


def require_complete(inventory: Inventory) -> None:
    """Raise InventoryError, with everything that went wrong, if the inventory is not complete."""
    if inventory.complete:
        return
    problems = "; ".join(inventory.warnings) or "no reason given"
    raise InventoryError(f"the inventory from {inventory.source} is not complete: {problems}",
                         hint="nothing is planned on a partial inventory; "
                              "`fleetctl inventory` shows what could be read")
