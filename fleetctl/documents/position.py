"""A place in a fleet file."""

from __future__ import annotations

from fleetctl.documents.base import Stored


class Position(Stored):
    """A place in a fleet file, counted from 1."""

    file: str
    line: int
    column: int
