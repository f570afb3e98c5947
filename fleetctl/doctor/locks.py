"""Cluster: no lock is left by a run that was ended before it could release it."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each; the next run takes it over, so it blocks nothing."""
    for lock in evidence.locks:
        yield Diagnosed(
            code="LOCK_LEFT", severity="warning", area="cluster", subject=lock.fleet,
            message=f"run {lock.job or 'unknown'} ended without releasing the lock of this fleet",
            advice="it blocks nothing: the next run takes it over. --fix releases it",
            command="fleetctl doctor --nodes --fix")
