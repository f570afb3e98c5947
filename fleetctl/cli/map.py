"""`fleetctl map`: nodes as rows, cards as cells, and who holds each; in the terminal, as SVG or as JSON. Reads only."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    AdoptFromOption,
    InventoryOption,
    NamespaceOption,
    OptionalFilesOption,
)

if TYPE_CHECKING:
    from fleetctl.documents.placement_map import PlacementMap

EPILOG = epilog(
    examples=[
        "fleetctl map                                  # who holds which card now",
        "fleetctl map -f fleets/prod.yaml              # and who would come",
        "fleetctl map -f fleets/prod.yaml --format svg > map.svg",
        "fleetctl map --inventory snapshot.json --all",
    ],
    exit_codes="0 drawn, 1 error, or something could not be read, 64 usage",
)


class MapFormat(str, Enum):
    """What a map is drawn as."""

    TABLE = "table"
    SVG = "svg"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("map", epilog=EPILOG)(show_map)


def show_map(
    files: OptionalFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    inventory: InventoryOption = None,
    output_format: Annotated[MapFormat, typer.Option("--format", help="What to print on standard output.")]
    = MapFormat.TABLE,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="The most rows to show in the terminal.")
    ] = 50,
    everything: Annotated[
        bool, typer.Option("--all", help="Give every node a row of its own in the terminal, however many there are.")
    ] = False,
    adopt_from: AdoptFromOption = None,
) -> int:
    """Draw who holds which card, and with -f who would come.

    A row per node, a cell per card, a letter per model. Where there are more nodes than rows, nodes that look the same
    share one; --all gives each its own.
    """
    from fleetctl.cli.asking import read_world
    from fleetctl.cli.console import say
    from fleetctl.planner.questions.occupancy import placement_map

    world = read_world(files, inventory=inventory, address=address, namespace=namespace, adopt_from=adopt_from)
    _show(placement_map(world), output_format, None if everything else limit)
    if not world.inventory.complete:
        say("error", "the inventory is not complete: there may be more than what is drawn")
    return 0 if world.inventory.complete else 1


def _show(answer: PlacementMap, output_format: MapFormat, rows: int | None) -> None:
    from fleetctl.cli.console import result_console, write_document, write_result

    if output_format is MapFormat.JSON:
        from fleetctl.render.answer_json import render_answer_json

        write_result(render_answer_json(answer))
    elif output_format is MapFormat.SVG:
        from fleetctl.render.placement_svg import render_placement_svg

        write_document(render_placement_svg(answer))
    else:
        from fleetctl.render.placement_map import render_placement_map

        render_placement_map(answer, result_console(), rows=rows)
