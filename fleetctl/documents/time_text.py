"""Times as people read them, as seen from the moment of the inventory: no clock is read here."""

from __future__ import annotations

from fleetctl.documents.base import as_datetime


def clock_text(moment: str, observed_at: str) -> str:
    """Return the time of day in UTC, with the date where that is not the day of `observed_at`."""
    at = as_datetime(moment)
    return f"{at:%H:%M} UTC" if at.date() == as_datetime(observed_at).date() else f"{at:%Y-%m-%d %H:%M} UTC"


def age_text(moment: str, observed_at: str) -> str:
    """Return the time since then in its two largest units: `40s`, `12m05s`, `5h12m`, `3d04h`."""
    seconds = max(0, int((as_datetime(observed_at) - as_datetime(moment)).total_seconds()))
    for size, unit, below, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // below:02}{part}"
    return f"{seconds}s"
