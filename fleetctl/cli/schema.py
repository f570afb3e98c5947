"""`fleetctl schema`: print a published JSON Schema, for editors and for programs that read fleetctl's documents."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli.commands import command_app
from fleetctl.cli.console import write_document
from fleetctl.documents.nearest import did_you_mean
from fleetctl.documents.schemas import schema_names, schema_text
from fleetctl.errors import UsageError

app = command_app(
    "fleetctl schema > fleet.schema.json",
    "fleetctl schema plan",
    "# yaml-language-server: $schema=fleet.schema.json",
    exit_codes="0 printed, 64 usage")
NAMES = schema_names()


@app.command()
def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(NAMES)}.",
                                        autocompletion=lambda: list(NAMES))] = "fleet",
) -> int:
    """Print the JSON Schema of a document.

    An editor with YAML support finds the schema by a comment at the top of a fleet file, as in the last example.
    """
    if name not in NAMES:
        raise UsageError(f"there is no schema {name!r}",
                         hint=did_you_mean(name, NAMES) or "`fleetctl schema --help` lists the names")
    write_document(schema_text(name))
    return 0
