"""`fleetctl render`: a fleet merged with everything it extends, and the source of each line."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import write_document, write_result
from fleetctl.cli.process import read_stdin
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.fleetfile.merge import join
from fleetctl.render.merged_fleet import render_fleet_json, render_fleet_yaml

app = command_app(
    "fleetctl render -f fleets/prod.yaml",
    "fleetctl render -f fleets/prod.yaml --no-origin --show-env",
    "fleetctl render -f fleets/prod.yaml --format json",
    exit_codes="0 printed, 1 a broken fleet, 64 usage")


@app.command()
def render(
    files: flags.Files,
    output_format: Annotated[Literal["yaml", "json"], typer.Option("--format", help=flags.FORMAT_HELP)] = "yaml",
    no_origin: Annotated[bool, typer.Option(
        "--no-origin", help="Leave out the comments in YAML that name the source of each line.")] = False,
    show_env: Annotated[bool, typer.Option(
        "--show-env", help="Print the values of engine environments, and secrets in arguments.")] = False,
) -> int:
    """Print a fleet as one document, with everything it extends.

    Reads only files and contacts no cluster. Values of engine environments are masked, and a masked file cannot be
    loaded; with --show-env the output is a fleet file with the same meaning.
    """
    loaded = inspect_fleet(files, stdin=read_stdin)
    if loaded.fleet is None:
        raise FleetFileError(loaded.errors)
    document = join(loaded.documents)
    if output_format == "json":
        write_result(render_fleet_json(document, loaded.fleet.files, show_env=show_env))
    else:
        write_document(render_fleet_yaml(document, origins=not no_origin, show_env=show_env))
    return 0
