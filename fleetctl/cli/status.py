"""`fleetctl status`: what runs, a row per replica. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.help import epilog
from fleetctl.cli.inventory import FleetFilesOption
from fleetctl.cli.options import AddressOption, FormatOption, InventoryOption, NamespaceOption, OutputFormat

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory, Replica
    from fleetctl.spec.resolved import ResolvedFleet

EPILOG = epilog(
    examples=["fleetctl status", "fleetctl status -f fleets/prod.yaml", "fleetctl status openai-community/gpt2"],
    exit_codes="0 shown, 1 error, or something could not be read, 64 usage",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status", epilog=EPILOG)(status)


def status(
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", show_default=False, help="Only this model.",
                                                autocompletion=complete_model_keys)] = None,
    files: FleetFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    inventory: InventoryOption = None,
    output_format: FormatOption = OutputFormat.TABLE,
) -> int:
    """Show every replica: is it ready, where it stands, where it answers.

    With -f only the replicas of that fleet. `lost` = its node is dead; it is not counted and not removed.
    """
    from fleetctl.cli.connect import inventory_source, read_stdin, refuse_two_readers
    from fleetctl.inventory.read import read_inventory

    refuse_two_readers(files or [], inventory)
    fleet: ResolvedFleet | None = None
    if files:
        from fleetctl.spec.load import load_fleet

        fleet = load_fleet(files, stdin=read_stdin)
    seen = read_inventory(inventory_source(inventory, address, namespace, fleet.cluster if fleet else None))
    chosen = [replica for replica in seen.replicas
              if model in (None, replica.model) and (fleet is None or replica.fleet == fleet.name)]
    _show(seen, chosen, output_format)
    return 0 if seen.complete else 1


def _show(seen: Inventory, chosen: list[Replica], output_format: OutputFormat) -> None:
    from fleetctl.cli.console import result_console, say, write_result

    if output_format is OutputFormat.JSON:
        from fleetctl.render.inventory_json import render_inventory_json

        write_result(render_inventory_json(seen.model_copy(update={"replicas": chosen})))
    else:
        from fleetctl.render.status_table import render_status

        dead = frozenset(node.id for node in seen.nodes if node.state == "DEAD")
        render_status(chosen, {node.id: node.name for node in seen.nodes}, dead, result_console())
    for warning in seen.warnings:
        say("warning", warning)
    if not seen.complete:
        say("error", "the inventory is not complete: there may be more than what is shown")
