"""Options that several `ci` commands share.

Every flag has a variable, for a template cannot build a command line safely; a list has one entry per line.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fleetctl.forge.name import ForgeName

ForgeOption = Annotated[ForgeName, typer.Option("--forge", envvar="FLEETCTL_FORGE", help="The forge to tell.")]
ForceOption = Annotated[
    bool,
    typer.Option("--force", envvar="FLEETCTL_FORCE",
                 help="Lift the thresholds of spec.policy; protected models stay protected."),
]


def lines_of(given: list[str] | None, variable: str) -> tuple[str, ...]:
    """Return what the flag was given, else the lines of the variable."""
    entries = os.environ.get(variable, "").splitlines()
    return tuple(given or (line.strip() for line in entries if line.strip()))
