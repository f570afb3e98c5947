"""Whether Ray's sums have caught up with actors that ended: an actor that is gone must not block a plan.

Ray's older autoscaler writes the sums about every 5 seconds, with the time at which it read them; the newer one reads
them for each request. Sums may be written some time after they are read, so newer sums are not always new enough: they
must have been read after the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import object_of

STATUS_PATH = "/api/cluster_status"
LONGEST_S, PAUSE_S = 15.0, 0.25
CLOCK_STEP_S = 1.0
"""The time of an answer is in whole seconds."""


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
    return float(read_at) if isinstance(read_at, (int, float)) else None, _given_at(answer.headers.get("date", ""))


def _given_at(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0
