"""Whether Ray's sums have caught up with what ended lately: a plan must not be blocked by what is gone already.

Ray's older autoscaler writes the sums down every 5 seconds, with the time; the newer one reads them when it is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fleetctl.documents.inventory import Inventory
from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient

STATUS_PATH = "/api/cluster_status"
LONGEST_S, PAUSE_S = 8.0, 0.25


def sums_caught_up(
    client: DashboardClient, seen: Inventory, say: Callable[[], None], *,
    sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Return whether the sums are newer now than in `seen`, after waiting for it; False where they were new already.

    There is nothing to wait for where lists explain all that is in use. `say` is called before waiting.
    """
    if all(node.resources.listed is None for node in seen.nodes):
        return False
    try:
        written = _written_at(client)
        if written is None:
            return False
        say()
        deadline = clock() + LONGEST_S
        while clock() < deadline:
            if _written_at(client) != written:
                return True
            sleep(PAUSE_S)
    except InventoryError:
        pass  # then the plan stands on what could be read
    return False


def _written_at(client: DashboardClient) -> float | None:
    """Return when Ray has last written its sums down, on the clock of its head node; None = it does not."""
    body = client.get_json(STATUS_PATH)
    data = body.get("data") if isinstance(body, dict) else None
    status = data.get("clusterStatus") if isinstance(data, dict) else None
    written = status.get("time") if isinstance(status, dict) else None
    return float(written) if isinstance(written, (int, float)) else None
