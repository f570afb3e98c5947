"""`fleetctl map`: nodes as rows, cards as cells, and their holders; in the terminal, as SVG or as JSON. Read-only."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import result_console, say, write_document, write_result
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.documents.answers import PlacementMap
from fleetctl.documents.canonical import indented_json
from fleetctl.planner.options import chosen_by
from fleetctl.render.placement_map import render_placement_map
from fleetctl.workflow.cluster import read_scenario

app = command_app(
    "fleetctl map                                  # what holds which card now",
    "fleetctl map -f fleets/prod.yaml              # and what a plan adds",
    "fleetctl map -f fleets/prod.yaml --format svg > map.svg",
    "fleetctl map --inventory snapshot.json --all",
    exit_codes="0 drawn, 1 error, or something could not be read, 64 usage")

MapFormat = Literal["table", "svg", "json"]


@app.command()
def show_map(
    *,
    files: flags.OptionalFiles = None,
    selector: flags.Selector = None,
    where: flags.Source,
    output_format: Annotated[
        MapFormat, typer.Option("--format", help=flags.FORMAT_HELP)] = "table",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Draw at most N rows in the terminal.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="Draw every node in its own row in the terminal.")] = False,
    adopt_from: flags.AdoptFrom = None,
) -> int:
    """Draw which replica holds which card.

    Draws a row per node, a cell per card and a letter per model; with -f also the new replicas of the plan. If there
    are more nodes than rows, equal nodes share a row, unless --all is given. With --selector it draws only the nodes
    that the selected models use, and only their new replicas.
    """
    from fleetctl.planner.questions.occupancy import of_models, placement_map  # NumPy, which --help does not need

    refuse_two_readers(files or (), where.inventory)
    flags.refuse_selector_without(files, selector)
    invocation = this_invocation()
    scenario = read_scenario(invocation, files, where, adopt_from, selector)
    with invocation.working("planning"):
        drawn = placement_map(scenario)
    if selector:
        drawn = of_models(drawn, chosen_by(selector, scenario.fleet.labels))
    _show(drawn, output_format, None if everything else limit)
    if not scenario.inventory.complete:
        say("error", "the inventory is incomplete: there may be more than is drawn")
    return 0 if scenario.inventory.complete else 1


def _show(answer: PlacementMap, output_format: MapFormat, rows: int | None) -> None:
    if output_format == "json":
        write_result(indented_json(answer))
    elif output_format == "svg":
        from fleetctl.render.placement_svg import render_placement_svg  # an XML library that also loads TLS

        write_document(render_placement_svg(answer))
    else:
        render_placement_map(answer, result_console(), rows=rows)
