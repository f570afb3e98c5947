"""Small words of all tables: long lists cut with a count, the heading of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.plan import PlanInventory
from fleetctl.render.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

BESIDE_FROM = 76
"""From this many columns on a table has room for words beside its numbers; below, they stand under the name."""


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, made visible, and how many more there are."""
    shown = ", ".join(visible(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def asked_of(fleet: str | None, inventory: PlanInventory) -> str:
    """Say which fleet and which inventory an answer is about."""
    about = f"fleet {visible(fleet)}, " if fleet else ""
    return f"{about}inventory of {visible(inventory.observed_at)} from {visible(inventory.source)}"


def with_note(name: Text, note: str) -> RenderableType:
    """Return a cell with the words that found no room beside the numbers under the name."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(name, Padding(Text(note, "dim"), (0, 0, 0, 2))) if note else name
