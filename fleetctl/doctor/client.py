"""Checks of the client: it reaches the cluster, and their clocks agree."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.base import as_datetime
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.errors import ClusterRefused, ClusterUnreachable, FleetctlError

CODES: dict[type[FleetctlError], str] = {
    ClusterUnreachable: "CLUSTER_UNREACHABLE", ClusterRefused: "CLUSTER_REFUSED"}


def check_reach(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the reason why the cluster could not be read."""
    error = evidence.refusal
    if error is not None:
        yield Diagnosed(code=CODES.get(type(error), "CLUSTER_NOT_READ"), severity="error", area="client",
                        subject="cluster", message=error.message, advice=error.hint or "")


ALLOWED_S = 60
"""Tolerated clock difference; a response may have taken some seconds to arrive."""


def check_clock(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield a large difference from the dashboard's clock: cordons and saved plans expire at a point in time."""
    if evidence.vitals.clock is None:
        return
    ahead_s = round((as_datetime(evidence.now) - evidence.vitals.clock).total_seconds())
    if abs(ahead_s) > ALLOWED_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        yield Diagnosed(
            code="CLOCK_SKEW", severity="warning", area="client", subject="clock",
            message=f"this machine's clock is {abs(ahead_s)} s {way} the dashboard's: cordons and plans expire too "
                    f"{'early' if ahead_s > 0 else 'late'} for this client",
            advice="set the clock that is wrong; both machines should use NTP")
