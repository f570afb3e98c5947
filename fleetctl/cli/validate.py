"""`fleetctl validate`: every problem of the fleet files at once, each with its place."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import FilesOption

if TYPE_CHECKING:
    from fleetctl.spec.load import LoadedFleet

EPILOG = epilog(
    examples=["fleetctl validate -f fleets/prod.yaml", "fleetctl validate -f fleets/ --format json"],
    exit_codes="0 fine (warnings included), 1 errors, 64 usage",
)


class ProblemFormat(str, Enum):
    """What `validate` prints."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("validate", epilog=EPILOG)(validate)


def validate(
    files: FilesOption,
    output_format: Annotated[ProblemFormat, typer.Option("--format", help="How to print.")] = ProblemFormat.TEXT,
) -> int:
    """Check fleet files and print every problem with its place.

    Reads files only, asks no cluster. Each problem is one line on standard output, as FILE:LINE:COLUMN; what is allowed
    and the nearest spelling stand below it. The codes are listed in the documentation of the fleet file.
    """
    from fleetctl.cli.connect import read_stdin
    from fleetctl.cli.console import result_console, write_result
    from fleetctl.spec.load import inspect_fleet

    loaded = inspect_fleet(files, stdin=read_stdin)
    if output_format is ProblemFormat.JSON:
        write_result(_json(loaded))
    else:
        from fleetctl.render.problems import render_problems

        render_problems(loaded.problems, result_console())
        _summarise(loaded)
    return 1 if loaded.errors else 0


def _json(loaded: LoadedFleet) -> str:
    import json

    document = {"valid": not loaded.errors, "problems": [problem.as_json() for problem in loaded.problems]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _summarise(loaded: LoadedFleet) -> None:
    from fleetctl.cli.console import say

    warnings = len(loaded.problems) - len(loaded.errors)
    beside = f", {_counted(warnings, 'warning')}" if warnings else ""
    if loaded.fleet is None:
        say("error", f"{_counted(len(loaded.errors), 'error')}{beside}")
        return
    replicas = sum(model.replicas for model in loaded.fleet.models)
    say("valid", f"fleet {loaded.fleet.name}: {_counted(len(loaded.fleet.models), 'model')}, "
                 f"{_counted(replicas, 'replica')} wanted{beside}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
