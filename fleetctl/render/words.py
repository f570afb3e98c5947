"""Small words of all tables: counts with their noun, long lists cut with a count, the heading of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.plan import PlanInventory
from fleetctl.render.visible import visible


def count_of(number: int, noun: str) -> str:
    """Return `1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, made visible, and how many more there are."""
    shown = ", ".join(visible(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def asked_of(fleet: str | None, inventory: PlanInventory) -> str:
    """Say which fleet and which inventory an answer is about."""
    about = f"fleet {visible(fleet)}, " if fleet else ""
    return f"{about}inventory of {visible(inventory.observed_at)} from {visible(inventory.source)}"
