"""Release: remove a fleet's part from the request to Ray's autoscaler. Ends nothing: Ray removes only idle nodes.

It is for a fleet that is no longer applied: its part would stay in Ray's table, and so would its nodes.
"""

from __future__ import annotations

from typing import Any, Mapping

from .cluster import alive_nodes, busy_nodes
from .events import EventStream
from .floor import asking_fleets, read_part, request_part, with_joined


def run_release(request: Mapping[str, Any], events: EventStream) -> int:
    """Withdraw one fleet's part of the request; with `dryRun` only report it."""
    events.begin(request)
    fleet, fleets, alive = request["fleet"], asking_fleets(), alive_nodes()
    if fleet not in fleets:
        others = ", ".join(fleets) or "none"
        return events.end(0, f"fleet {fleet} requests no nodes; fleets that do: {others}")
    busy = busy_nodes()
    parts = with_joined([read_part(name) for name in fleets], alive)
    for row in parts[fleets.index(fleet)]:
        kept = alive.keys() & {*row["keeps"]}
        free, used = len(kept - busy), len(kept & busy)
        events.emit("nodesReleased", f"{row['name']}: {row['nodes']} new, {free} unused and {used} in use no longer "
                    "requested", name=row["name"], new=row["nodes"], unused=free, inUse=used)
    if request["dryRun"]:
        return events.end(0, "nothing was changed")
    request_part(fleet, [])
    return events.end(0, "nothing was ended; a node that no other fleet requests goes once it is idle")
