"""How the replicas are doing that Ray restarts, in words: engines that end again and again are never nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.inventory import Replica, was_restarted_recently
from fleetctl.documents.time_text import clock_text


def restarted_recently(live: Sequence[Replica], observed_at: str) -> list[Replica]:
    """Return the replicas that are ready again, and may not stay so."""
    return [replica for replica in live if was_restarted_recently(replica, observed_at)]


def restart_notes(live: Sequence[Replica], observed_at: str) -> Iterator[str]:
    """Yield how many are restarting, and how many were a short while ago: since when, in which restart, and why."""
    for word, at, found in (("restarting", "since", [one for one in live if one.state == "RESTARTING"]),
                            ("restarted", "at", restarted_recently(live, observed_at))):
        if found:
            times = [one.since for one in found if one.since]
            when = f" {at} {clock_text(min(times), observed_at)}" if times else ""
            yield f"{len(found)} {word}{when} ({_worst(found)})"


def _worst(found: Sequence[Replica]) -> str:
    """Say how many restarts the replica has used that has used most, and why it ended."""
    worst = max(found, key=lambda one: one.restarts)
    restarts = max(1, worst.restarts)
    most = worst.restart_max
    used = f"restart {restarts}" if most is None else f"{restarts} of {most} restart{'s' if most > 1 else ''} used"
    return f"{'up to ' if len(found) > 1 else ''}{used}{f': {worst.error}' if worst.error else ''}"
