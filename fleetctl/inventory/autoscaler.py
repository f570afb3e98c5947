"""What Ray's autoscaler says of the nodes that it was asked for: pending, failed, or refused. Reads only.

Ray has no document for it. Its status page lists pending and failed launches as text; and a request that it can never
fulfil, of which it then adds no node at all, is an event with each of its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import parsedate_to_datetime

from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import list_of, object_of, text_of

FRESH_S = 20.0
"""The autoscaler has a round every 5 s; an older refusal was about an earlier request."""

REFUSES = "No available node types can fulfill cluster constraint: "
LISTED = 10


def autoscaler_news(client: DashboardClient) -> list[str]:
    """Return what it says now, in sentences; nothing where it cannot be asked."""
    try:
        return [*_refused(client), *_launches(client)][:LISTED]
    except (InventoryError, ValueError):
        return []


def _refused(client: DashboardClient) -> Iterator[str]:
    answer = client.get("/events", {"job_id": "global"})
    if answer.status_code != 200:
        return
    now = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    for event in reversed(list_of(object_of(object_of(answer.json()).get("data")).get("events"))):
        said, at = (text_of(object_of(event).get(key)) or "" for key in ("message", "timestamp"))
        if said.startswith(REFUSES) and now - float(at) < FRESH_S:
            asked = said.removeprefix(REFUSES).partition(". Add suitable")[0]
            yield ("Ray's autoscaler adds none of the nodes asked for: it has no node type with these resources and "
                   f"the labels of spec.cluster.grow, or may add fewer of it: {asked}")
            return


def _launches(client: DashboardClient) -> Iterator[str]:
    answer = client.get("/api/cluster_status", {"format": "1"})
    if answer.status_code != 200:
        return
    section = ""
    for line in (text_of(object_of(object_of(answer.json()).get("data")).get("clusterStatus")) or "").splitlines():
        if not line.startswith(" "):
            section = line
        elif section == "Pending:" and not line.startswith(" (no "):
            yield f"Ray's autoscaler: pending: {line.strip()}"
        elif section == "Recent failures:" and "LaunchFailed" in line:
            yield f"Ray's autoscaler: {line.strip()}"
