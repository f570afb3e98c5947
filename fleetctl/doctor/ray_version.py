"""Cluster: its Ray is not too old for the agent."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.inventory.dashboard import too_old


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the version that is too old."""
    for message in too_old(evidence.inventory.cluster.ray_version or ""):
        yield Diagnosed(code="RAY_TOO_OLD", severity="error", area="cluster", subject="Ray", message=message,
                        advice="upgrade Ray on all nodes; plans and questions work as before")
