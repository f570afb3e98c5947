"""How a replica is started and restarted, as plans and the records of applies have it."""

from __future__ import annotations

from fleetctl.documents.base import Stored


class Lifecycle(Stored):
    """How the replica is started and restarted; not part of the spec hash. Seconds."""

    startup_timeout: float
    scheduling_timeout: float
    restart_max: int
    restart_backoff: float
