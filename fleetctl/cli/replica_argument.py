"""The argument MODEL/ID: one replica, named by its model key (which may hold slashes) and its id."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli.completion import complete_replicas
from fleetctl.documents.inventory import Inventory
from fleetctl.errors import FleetctlError, InventoryError, UsageError

ReplicaArgument = Annotated[str, typer.Argument(
    metavar="MODEL/ID", show_default=False, autocompletion=complete_replicas,
    help="One replica, as `fleetctl status` names it.")]


def parse_replica(text: str) -> tuple[str, int]:
    """Split at the last slash; raises UsageError when the part after it is not an id."""
    model, slash, number = text.rpartition("/")
    if not slash or not model or not number.isascii() or not number.isdigit():
        raise UsageError(f"{text!r} does not name a replica", hint="write MODEL/ID, such as openai-community/gpt2/0")
    return model, int(number)


def absent(seen: Inventory, message: str, hint: str) -> FleetctlError:
    """Return the error for something that was not found; in an incomplete inventory it may still exist."""
    if seen.complete:
        return FleetctlError(message, hint=hint)
    problems = "; ".join(seen.warnings) or "the document gives no reason"
    return InventoryError(f"{message} in the part of the inventory that could be read: {problems}",
                          hint="`fleetctl inventory` shows what could be read")
