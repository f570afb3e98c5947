"""Client: its clock and the dashboard's agree. Cordons and saved plans end by a clock."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.base import as_datetime
from fleetctl.documents.diagnosis import Diagnosed

ALLOWED_S = 60


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the difference where it is large; an answer may have been under way for some seconds."""
    if evidence.vitals.clock is None:
        return
    ahead_s = round((as_datetime(evidence.now) - evidence.vitals.clock).total_seconds())
    if abs(ahead_s) > ALLOWED_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        yield Diagnosed(
            code="CLOCK_SKEW", severity="warning", area="client", subject="clock",
            message=f"the clock here is {abs(ahead_s)} s {way} the dashboard's: cordons and plans end too "
                    f"{'early' if ahead_s > 0 else 'late'} for this client",
            advice="set the clock of whichever is wrong; both belong under NTP")
