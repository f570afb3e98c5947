"""Texts that several reports share: a long list cut with a count, the heading of an answer. Not yet safe to show."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.plan import PlanInventory


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, and how many more there are, which is never a single one."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def asked_about(fleet: str | None, inventory: PlanInventory) -> str:
    """Say which fleet and which inventory an answer is about."""
    about = f"fleet {fleet}, " if fleet else ""
    return f"{about}inventory of {inventory.observed_at} from {inventory.source}"
