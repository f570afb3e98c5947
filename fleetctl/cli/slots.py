"""`fleetctl slots NODE N`: write a note that limits how many replicas of one model the node may hold."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.node_note import EXIT_CODES, NodeArgument, found_node, write
from fleetctl.documents.inventory import MAX_SLOTS
from fleetctl.errors import UsageError
from fleetctl.inventory.records import SLOTS

app = command_app(
    "fleetctl slots node-a 4",
    "fleetctl slots node-a --clear   # back to the fleet file or the node's label",
    exit_codes=EXIT_CODES)


@app.command()
def slots(
    node: NodeArgument,
    number: Annotated[int | None, typer.Argument(
        metavar="N", show_default=False, min=0, max=MAX_SLOTS, help="Maximum number of replicas of one model.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the limit set by this command.")] = False,
    files: flags.ClusterFiles = None,
    address: flags.Address = None,
) -> int:
    """Set how many replicas of one model a node may hold.

    The limit overrides `maxReplicasPerModel` in fleet files and the label of the node. Replicas beyond it stay.
    """
    if (number is None) != clear:
        raise UsageError("give either N or --clear")
    with found_node(node, files, address) as (source, _, found):
        write(source, SLOTS, found, {"slots": "" if number is None else str(number)})
    return 0
