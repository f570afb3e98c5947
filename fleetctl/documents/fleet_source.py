"""A file that a fleet was read from, as plans, records and other documents name it."""

from __future__ import annotations

from fleetctl.documents.base import Stored


class FleetSource(Stored):
    """One file the fleet was read from."""

    path: str
    sha256: str
