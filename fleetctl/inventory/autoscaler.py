"""What Ray's autoscaler says of the nodes that it was asked for, and whether its sums have caught up. Reads only.

Ray has no document for it. Its status page lists pending and failed launches as text; and a request that it can never
fulfil, of which it then adds no node at all, is an event with each of its rounds.

An actor that is gone must not block a plan. Ray's older autoscaler writes the sums about every 5 seconds, with the time
at which it read them; the newer one reads them for each request. Sums may be written some time after they are read, so
newer sums are not always new enough: they must have been read after the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import list_of, object_of, text_of

FRESH_S = 20.0
"""The autoscaler has a round every 5 s; an older refusal was about an earlier request."""

REFUSES = "No available node types can fulfill cluster constraint: "
LISTED = 10
STATUS_PATH = "/api/cluster_status"
LONGEST_S, PAUSE_S = 15.0, 0.25
CLOCK_STEP_S = 1.0
"""The time of an answer is in whole seconds."""


def autoscaler_news(client: DashboardClient) -> list[str]:
    """Return what it says now, in sentences; nothing where it cannot be asked."""
    news: list[str] = []
    for read in (_refused, _launches):
        with suppress(InventoryError, ValueError):
            news += read(client)
    return news[:LISTED]


def _refused(client: DashboardClient) -> Iterator[str]:
    answer = client.get("/events", {"job_id": "global"})
    if answer.status_code != 200 or answer.given_at is None:
        return
    now = answer.given_at.timestamp()
    for event in reversed(list_of(object_of(object_of(answer.json()).get("data")).get("events"))):
        said, at = (text_of(object_of(event).get(key)) or "" for key in ("message", "timestamp"))
        if said.startswith(REFUSES) and now - float(at) < FRESH_S:
            asked = said.removeprefix(REFUSES).partition(". Add suitable")[0]
            yield ("Ray's autoscaler adds none of the nodes asked for: it has no node type with these resources and "
                   f"the labels of spec.cluster.grow, or may add fewer of it: {asked}")
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
    """Return whether the sums are newer now than in `seen`, after waiting for it; False where they were new already.

    There is nothing to wait for where lists explain all that is in use. `say` is called before waiting.
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
    """Return when Ray read its sums, None where it does not say, and when it gave this answer.

    Both are on the clock of its head node, the second in whole seconds, rounded down; 0 where no answer says it.
    """
    answer = client.get(STATUS_PATH)
    body = object_of(answer.json()) if answer.status_code == 200 else {}
    read_at = object_of(object_of(body.get("data")).get("clusterStatus")).get("time")
    given_at = answer.given_at.timestamp() if answer.given_at else 0.0
    return float(read_at) if isinstance(read_at, (int, float)) else None, given_at
