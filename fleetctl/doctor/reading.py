"""Cluster: the inventory could be read whole; and what its warnings say that no other check does."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor import gpu_counts
from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.inventory.dashboard import too_old

SHOWS = "fleetctl inventory"


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each warning of the inventory; without a whole inventory nothing is planned."""
    seen = evidence.inventory
    elsewhere = {*gpu_counts.warnings(evidence), *too_old(seen.cluster.ray_version or "")}
    told = [warning for warning in seen.warnings if warning not in elsewhere]
    for warning in told or ([] if seen.complete else ["something could not be read"]):
        beside = seen.complete or (bool(seen.unread) and warning not in seen.unread)
        yield Diagnosed(
            code="READING" if beside else "NOT_READ_WHOLE", severity="warning" if beside else "error",
            area="cluster", subject="inventory", message=warning, command=SHOWS,
            advice="" if beside else "until all can be read, nothing is planned or applied")
