"""Release: ask Ray's autoscaler for no more nodes for a fleet. Ends nothing: Ray takes away only nodes that are idle.

It is for a fleet that is not applied any more: its part of the request stays in Ray's table, and so do its nodes.
"""

from __future__ import annotations

from typing import Any, Mapping

from .cluster import alive_nodes, busy_nodes
from .events import EventStream
from .floor import asking_fleets, read_part, request_nodes, settled, write_part


def run_release(request: Mapping[str, Any], events: EventStream) -> int:
    """Take back what one fleet asks for; with `dryRun` only say what that is."""
    events.begin(request)
    fleet, fleets, alive = request["fleet"], asking_fleets(), alive_nodes()
    if fleet not in fleets:
        others = ", ".join(fleets) or "none"
        return events.end(0, f"nothing is asked for fleet {fleet}; fleets that ask for nodes: {others}")
    busy = busy_nodes()
    for row in settled([read_part(one) for one in fleets], alive)[fleets.index(fleet)]:
        kept = alive.keys() & {*row["keeps"]}
        free, used = len(kept - busy), len(kept & busy)
        events.emit("nodesReleased", f"{row['name']}: {row['nodes']} new, {free} unused and {used} in use asked for no "
                    "more", name=row["name"], new=row["nodes"], unused=free, inUse=used)
    if request["dryRun"]:
        return events.end(0, "nothing was changed")
    write_part(fleet, [])
    request_nodes()
    return events.end(0, "nothing was ended; a node that no other fleet asks for goes once it is idle")
