"""The flags that several commands share: one spelling, one meaning, one help text.

A command takes one by annotating a parameter; its own signature says whether it is required and its default.
Durations arrive as seconds.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from pydantic_core import PydanticCustomError

from fleetctl.cli.completion import complete_model_keys
from fleetctl.documents.quantity import DURATION_ALLOWED, parse_duration


class OutputFormat(str, Enum):
    """What a command that shows something prints."""

    TABLE = "table"
    JSON = "json"


def duration(value: str | float) -> float:
    """Turn a flag such as `90s` or `1h30m` into seconds; a default that is already a number passes through."""
    if isinstance(value, (int, float)):
        return float(value)

    try:
        return float(parse_duration(value))
    except PydanticCustomError as error:
        longer = error.type == "absurd_quantity"
        raise typer.BadParameter(f"{value!r} is {'longer than 30d' if longer else f'not {DURATION_ALLOWED}'}") from None


def expiry_duration(value: str | float) -> float:
    """Like `duration`, for a time of validity: at least a second."""
    seconds = duration(value)
    if seconds < 1:
        raise typer.BadParameter(f"{value!r} is too short; at least 1s")
    return seconds


_FLEET_FILES = typer.Option(
    "--file", "-f", metavar="PATH", show_default=False,
    help="Fleet file, a folder of them, or - for standard input; repeatable.",
)
Files = Annotated[list[str], _FLEET_FILES]
OptionalFiles = Annotated[list[str] | None, _FLEET_FILES]
ClusterFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--file", "-f", metavar="PATH", show_default=False,
        help="Fleet file that names the cluster and its namespace; repeatable.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="URL", show_default=False,
        help="Ray dashboard, as http://ray-head:8265. [env: FLEETCTL_ADDRESS; else spec.cluster.address]",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", metavar="NAME", show_default=False,
        help="Ray namespace of the replicas. [env: FLEETCTL_NAMESPACE; else spec.cluster.namespace, else fleet]",
    ),
]
OwnFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--file", "-f", metavar="PATH", show_default=False,
        help="Fleet file that names the cluster and its namespace; show only its replicas. Repeatable.",
    ),
]
Inventory = Annotated[
    str | None,
    typer.Option(
        "--inventory", metavar="FILE", show_default=False,
        help="Read this inventory document instead of the cluster; - for standard input.",
    ),
]
Format = Annotated[OutputFormat, typer.Option("--format", help="What to print on standard output.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", show_default=False, dir_okay=False,
        help="Also save the plan for `apply FILE`; mode 0600, replaced atomically.",
    ),
]
DetailedExitCode = Annotated[
    bool,
    typer.Option(
        "--detailed-exitcode",
        help="Exit 0 for nothing to do, 2 for changes, 3 if anything is blocked, 4 if a policy refuses.",
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target", metavar="MODEL", show_default=False, autocompletion=complete_model_keys,
        help="Only this model; repeatable.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="MODEL", show_default=False, autocompletion=complete_model_keys,
        help="All but this model; repeatable.",
    ),
]
AdoptFrom = Annotated[
    str | None,
    typer.Option(
        "--adopt-from", metavar="FLEET", show_default=False,
        help="The fleet was called FLEET: count its replicas as ours. Needed until all of them have been replaced.",
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Lift the thresholds of spec.policy for this run; protected models stay protected."),
]
Base = Annotated[
    str | None,
    typer.Option(
        "--base", metavar="REV", show_default=False,
        help="Also show what the change since this git revision causes alone; REV... = since this branch left it.",
    ),
]
Expires = Annotated[
    float,
    typer.Option(
        "--expires", metavar="DURATION", parser=expiry_duration, show_default=False,
        help="How long a saved plan stays valid, from its inventory on; at most 30d. [default: 24h]",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Parallelism = Annotated[
    int, typer.Option("--parallelism", metavar="N", min=1, max=1000, help="How many replicas start at the same time.")
]
LockTimeout = Annotated[
    float,
    typer.Option(
        "--lock-timeout", metavar="DURATION", parser=duration, show_default=False,
        help="How long to wait while another apply of this fleet runs. [default: 0s]",
    ),
]
WaitTimeout = Annotated[
    float | None,
    typer.Option(
        "--wait-timeout", metavar="DURATION", parser=duration, show_default=False,
        help="How long to follow; then exit 7, while the apply continues in the cluster. [default: no limit]",
    ),
]
