"""Locations: a file of a fleet, a position in it, and the path of a value in a document."""

from __future__ import annotations

from fleetctl.documents.base import Stored
from fleetctl.documents.mask import is_env_value, without_value

Path = tuple[str | int, ...]
"""The keys and indices that lead to a value."""


class Position(Stored):
    """A position in a file: line and column, counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def path_text(path: Path) -> str:
    """Return a path as people write it: `spec.models[0].key`; keys with dots or spaces are bracketed."""
    text = ""
    for at, part in enumerate(path):
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = without_value(part) if is_env_value(path[: at + 1]) else part
        if key.replace("_", "").replace("-", "").isalnum():
            text += f".{key}" if text else key
        else:
            text += f'["{key}"]'
    return text


class FleetSource(Stored):
    """One file that the fleet was read from."""

    path: str
    sha256: str
