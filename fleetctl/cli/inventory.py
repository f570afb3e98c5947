"""`fleetctl inventory`: show what runs where, or save it for `plan --inventory`. Sends nothing but GETs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    ClusterFilesOption,
    FormatOption,
    InventoryOption,
    NamespaceOption,
    OutputFormat,
)

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory

EPILOG = epilog(
    examples=[
        "fleetctl inventory --address http://ray-head:8265",
        "fleetctl inventory -f fleets/prod.yaml --format json > snapshot.json",
        "fleetctl inventory --inventory snapshot.json",
    ],
    exit_codes="0 read whole, 1 error, or something could not be read, 64 usage",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inventory", epilog=EPILOG)(inventory)


def inventory(
    files: ClusterFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    inventory: InventoryOption = None,
    output_format: FormatOption = OutputFormat.TABLE,
) -> int:
    """Show the nodes, who holds their cards, and all replicas.

    Reads the Ray dashboard, or an inventory document. What could not be read is named on standard error, what could is
    shown all the same.
    """
    from fleetctl.cli.connect import fleet_of, inventory_source, refuse_two_readers
    from fleetctl.cli.console import say
    from fleetctl.documents.fleet import Cluster
    from fleetctl.inventory.read import read_inventory
    from fleetctl.planner.notes import slot_notes

    refuse_two_readers(files or [], inventory)
    fleet = fleet_of(files)
    with closing(inventory_source(inventory, address, namespace, fleet.cluster if fleet else Cluster())) as source:
        seen = read_inventory(source)
    _show(seen, output_format)
    for note in slot_notes(seen.nodes, fleet.policies if fleet else ()):
        say("warning" if note.level == "warning" else "note", note.message)
    return 0 if seen.complete else 1


def _show(seen: Inventory, output_format: OutputFormat) -> None:
    from fleetctl.cli.console import result_console, say, write_result

    if output_format is OutputFormat.JSON:
        from fleetctl.documents.indented import indented_json

        write_result(indented_json(seen))
    else:
        from fleetctl.render.report.of_inventory import inventory_report
        from fleetctl.render.report.terminal import print_report

        print_report(inventory_report(seen), result_console())
    for warning in seen.warnings:
        say("warning", warning)
    if not seen.complete:
        say("error", "the inventory is not complete; nothing is planned or applied on it")
