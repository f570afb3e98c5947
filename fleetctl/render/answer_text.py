"""The heading of an answer. Not yet safe to show."""

from __future__ import annotations

from fleetctl.documents.plan import PlanInventory


def asked_about(fleet: str | None, inventory: PlanInventory) -> str:
    """Say which fleet and which inventory an answer is about."""
    about = f"fleet {fleet}, " if fleet else ""
    return f"{about}inventory of {inventory.observed_at} from {inventory.source}"
