"""The argument MODEL/ID: one replica, named by its model key (which may hold slashes) and its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.completion import complete_replicas

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory
    from fleetctl.errors import FleetctlError

ReplicaArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL/ID", show_default=False, autocompletion=complete_replicas,
                   help="One replica, as `fleetctl status` names it."),
]


def parse_replica(text: str) -> tuple[str, int]:
    """Split at the last slash; raises UsageError when what follows is not an id."""
    from fleetctl.errors import UsageError

    model, slash, number = text.rpartition("/")
    if not slash or not model or not number.isascii() or not number.isdigit():
        raise UsageError(f"{text!r} does not name a replica", hint="write MODEL/ID, such as openai-community/gpt2/0")
    return model, int(number)


def absent(seen: Inventory, message: str, hint: str) -> FleetctlError:
    """Return the error for what was not found: where not all could be read, nobody knows whether it is there."""
    from fleetctl.errors import FleetctlError, InventoryError

    if seen.complete:
        return FleetctlError(message, hint=hint)
    problems = "; ".join(seen.warnings) or "it says so itself, without a reason"
    return InventoryError(f"{message} in what could be read, and that is not all: {problems}",
                          hint="`fleetctl inventory` shows what could be read")
