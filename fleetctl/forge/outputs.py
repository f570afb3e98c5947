"""Values for later steps and jobs, written so that no value can become another one."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PREFIX = "FLEETCTL_OUT_"
"""Later jobs have them in their environment, where fleetctl reads FLEETCTL_REPORTS and others."""


def github_outputs(values: Mapping[str, str]) -> str:
    """Return the lines for GITHUB_OUTPUT. Each value is between two lines that cannot be guessed."""
    return "".join(_between_delimiters(_name(name), value) for name, value in values.items())


def dotenv(values: Mapping[str, str]) -> str:
    """Return the lines of GitLab's dotenv report, as FLEETCTL_OUT_PLAN_ID=...: a value is one line there, unquoted."""
    return "".join(f"{PREFIX}{_name(name).upper()}={' '.join(value.split())}\n" for name, value in values.items())


def _between_delimiters(name: str, value: str) -> str:
    while (delimiter := f"fleetctl_{secrets.token_hex(16)}") in value:
        continue
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name of an output")
    return name
