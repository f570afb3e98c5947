"""The autoscaler's reports about requested nodes, and whether its sums have caught up. Reads only.

Ray has no document for these reports. Its status page lists pending and failed launches as text. For a request that it
can never fulfill, it adds no node at all and emits an event in each of its rounds.

An actor that is gone must not block a plan. Ray's older autoscaler writes the sums about every 5 seconds, with the time
at which it read them; the newer one reads them for each request. Sums are written some time after they are read, so
newer sums may still be too old: they must have been read after the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.fetch import sent_at
from fleetctl.inventory.json_values import list_of, object_of, text_of

FRESH_S = 20.0
"""The autoscaler runs a round every 5 s; an older refusal was about an earlier request."""

REFUSAL = "No available node types can fulfill cluster constraint: "
MAX_NEWS = 10
STATUS_PATH = "/api/cluster_status"
LONGEST_S, PAUSE_S = 15.0, 0.25
CLOCK_STEP_S = 1.0
"""The time of an answer has whole seconds."""


def autoscaler_news(client: DashboardClient) -> list[str]:
    """Return the autoscaler's current reports as sentences; empty if it cannot be reached."""
    news: list[str] = []
    for read in (_refused, _launches):
        with suppress(InventoryError, ValueError):
            news += read(client)
    return news[:MAX_NEWS]


def _refused(client: DashboardClient) -> Iterator[str]:
    answer = client.get("/events", {"job_id": "global"})
    now = sent_at(answer.headers)
    if answer.status_code != 200 or now is None:
        return
    for event in reversed(list_of(object_of(object_of(answer.json()).get("data")).get("events"))):
        message, at = (text_of(object_of(event).get(key)) or "" for key in ("message", "timestamp"))
        if message.startswith(REFUSAL) and now - float(at) < FRESH_S:
            requested = message.removeprefix(REFUSAL).partition(". Add suitable")[0]
            yield ("Ray's autoscaler adds none of the requested nodes: it has no node type with these resources and "
                   f"the labels of spec.cluster.grow, or its maximum of that type is lower: {requested}")
            return


def _launches(client: DashboardClient) -> Iterator[str]:
    answer = client.get(STATUS_PATH, {"format": "1"})
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


def sums_caught_up(
    client: DashboardClient, seen: Inventory, say: Callable[[], None], *,
    sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait for sums that are newer than those in `seen`; return whether there are any, False if there was no need.

    There is nothing to wait for if the lists explain everything in use. `say` is called before waiting.
    """
    if all(node.resources.listed is None for node in seen.nodes):
        return False
    first, last = None, None
    try:
        first, asked_at = _status(client)
        if first is None:
            return False
        say()
        last, deadline = first, clock() + LONGEST_S
        while last is not None and last <= max(first, asked_at + CLOCK_STEP_S) and clock() < deadline:
            sleep(PAUSE_S)
            last, _ = _status(client)
    except (InventoryError, ValueError):
        pass  # the plan uses what could be read
    return last != first


def _status(client: DashboardClient) -> tuple[float | None, float]:
    """Return when Ray read its sums (None if the answer has no time), and when it gave this answer (0 if unknown).

    Both are by the clock of the head node, the second in whole seconds, rounded down.
    """
    answer = client.get(STATUS_PATH)
    body = object_of(answer.json()) if answer.status_code == 200 else {}
    read_at = object_of(object_of(body.get("data")).get("clusterStatus")).get("time")
    return float(read_at) if isinstance(read_at, (int, float)) else None, sent_at(answer.headers) or 0.0
