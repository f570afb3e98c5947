"""The inventory as JSON: the document itself, which `--inventory FILE` reads back."""

from __future__ import annotations

from fleetctl.documents.canonical import indented_json
from fleetctl.documents.inventory import Inventory


def render_inventory_json(inventory: Inventory) -> str:
    """Return the inventory document, indented, with a line end."""
    return indented_json(inventory)
