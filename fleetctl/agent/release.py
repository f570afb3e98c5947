"""Release: ask Ray's autoscaler for no more nodes for a fleet than those on which something runs. Ends nothing.

It is for a fleet that is not applied any more: its part of the request stays in Ray's table, and so do its nodes.
"""

from __future__ import annotations

from typing import Any, Mapping

import ray

from .cluster import busy_nodes
from .events import EventStream
from .floor import alive_nodes, asking_fleets, read_part, request_nodes, settled, write_part


def run_release(request: Mapping[str, Any], events: EventStream) -> int:
    """Lower the part of one fleet to the nodes in use; with `dryRun` only say what that would be."""
    events.begin(ray.__version__, request)
    fleet, alive = request["fleet"], alive_nodes()
    [part] = settled([read_part(fleet)], alive)
    if not part:
        others = ", ".join(asking_fleets()) or "none"
        return events.end(0, f"nothing is asked for fleet {fleet}; fleets that ask for nodes: {others}")
    busy = busy_nodes()
    left = [{**row, "nodes": 0, "keeps": sorted(busy.intersection(row["keeps"]))} for row in part]
    for was, row in zip(part, left):
        free, kept = len(alive.keys() & {*was["keeps"]} - busy), len(row["keeps"])
        events.emit("nodesReleased", f"{row['name']}: {was['nodes']} new and {free} unused asked for no more; {kept} "
                    "in use stay asked for", name=row["name"], new=was["nodes"], unused=free, inUse=kept)
    if not request["dryRun"]:
        write_part(fleet, [row for row in left if row["keeps"]])
        request_nodes()
    return events.end(0, "nothing was changed" if request["dryRun"] else "nodes without use may go; nothing was ended")
