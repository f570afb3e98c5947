"""Small words of several reports: long lists cut with a count, the heading of an answer. As they came, not yet safe."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.plan import PlanInventory


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def asked_of(fleet: str | None, inventory: PlanInventory) -> str:
    """Say which fleet and which inventory an answer is about."""
    about = f"fleet {fleet}, " if fleet else ""
    return f"{about}inventory of {inventory.observed_at} from {inventory.source}"
