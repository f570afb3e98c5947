"""`fleetctl schema`: print a published JSON Schema, for editors and for programs that read our documents."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import write_document
from fleetctl.documents.schemas import schema_text

EPILOG = epilog(
    "fleetctl schema > fleet.schema.json",
    "fleetctl schema plan",
    "# yaml-language-server: $schema=fleet.schema.json",
    exit_codes="0 printed, 64 usage")


class SchemaName(str, Enum):
    """The documents that have a schema."""

    FLEET = "fleet"
    FLEET_PART = "fleet-part"
    INVENTORY = "inventory"
    PLAN = "plan"
    EVENT = "event"
    DIFF = "diff"
    CAPACITY = "capacity"
    WHAT_IF = "what-if"
    PLACEMENT_MAP = "placement-map"
    RENDERED_FLEET = "rendered-fleet"
    HISTORY = "history"
    ENDPOINTS = "endpoints"
    DIAGNOSIS = "diagnosis"
    PREFETCHED = "prefetched"
    PRUNED = "pruned"
    HISTORY_RUN = "history-run"


app = command_app()


@app.command(epilog=EPILOG)
def schema(name: Annotated[SchemaName, typer.Argument(help="The document.")] = SchemaName.FLEET) -> int:
    """Print the JSON Schema of a document.

    An editor with YAML support finds the schema by the first line of a fleet file, as in the last example.
    """
    write_document(schema_text(name.value))
    return 0
