"""Client: the cluster answers, and accepts this client."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.errors import ClusterRefused, ClusterUnreachable, FleetctlError

CODES: dict[type[FleetctlError], str] = {
    ClusterUnreachable: "CLUSTER_UNREACHABLE", ClusterRefused: "CLUSTER_REFUSED"}


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield why there is nothing to look at."""
    error = evidence.refusal
    if error is not None:
        yield Diagnosed(code=CODES.get(type(error), "CLUSTER_NOT_READ"), severity="error", area="client",
                        subject="cluster", message=error.message, advice=error.hint or "")
