"""The inventory as JSON: the document itself, which `--inventory FILE` reads back."""

from __future__ import annotations

import json

from fleetctl.documents.inventory import Inventory


def render_inventory_json(inventory: Inventory) -> str:
    """Return the inventory document, indented, with a line end."""
    return json.dumps(inventory.model_dump(mode="json", by_alias=True), indent=2, ensure_ascii=False) + "\n"
