"""Prefetch: the weights of a model onto the disks of nodes, before a replica needs them. It starts nothing.

As a verb of its own, and as the last part of an apply, for what the fleet file keeps on nodes.
"""

from __future__ import annotations

import json
import time
from typing import Any, Dict, Iterator, List, Mapping

from .cold import note_cold
from .create import ranks_of
from .events import EventStream
from .failure import StartFailed
from .mark import utc_now
from .model_files import as_document, of_all, session_secret, wanted_by
from .notes import note
from .on_nodes import ask_nodes
from .weights.fetch import Fetch
from .weights.index import WeightsError
from .weights.store import cache_root

MARGIN_S = 30.0
AT_ONCE = 4
"""Nodes that fetch at a time in an apply: no source serves more."""
UNFETCHED = "unfetched"
"""The key of our job's metadata under which failures are noted; see inventory/cold.py."""


def run_prefetch(request: Mapping[str, Any], events: EventStream) -> int:
    """Let the nodes of the request fetch, a few at a time; returns 0 all have all, 3 some do not."""
    events.begin(request)
    rows = fetch_on_nodes(request["nodes"], float(request["timeout"]), int(request["atOnce"]))
    failed = 0
    for row in rows:
        failed += bool(row.get("trouble"))
        events.emit("weightsFetched", row.get("trouble") or "fetched", **row,
                    level="warning" if row.get("trouble") else "info")
    return events.end(3 if failed else 0, f"{failed} failed" if failed else "all is there")


def fetch_on_nodes(nodes: Mapping[str, Any], limit_s: float, at_once: int) -> Iterator[Dict[str, Any]]:
    """Let nodes fetch for their members, and yield a row for each node and artifact."""
    orders = {node_id: {"members": members, "timeout": limit_s} for node_id, members in nodes.items()}
    for answer in ask_nodes(fetch_here, orders, limit_s + MARGIN_S, at_once):
        for row in answer.content or [{"artifact": member["weights"]["artifact"], "trouble": answer.trouble}
                                      for member in nodes[answer.node_id]]:
            yield {"nodeId": answer.node_id, **row}


def run_floor(request: Mapping[str, Any], events: EventStream) -> Iterator[Dict[str, Any]]:
    """Carry out the prefetches of a plan and yield their outcomes: of each node of each, in turn.

    A request that does not wait is for `AT_ONCE` nodes. What failed is noted: later plans leave it alone for a while.
    """
    failed: List[Mapping[str, Any]] = []
    plan = request["plan"]
    most = None if request["wait"] else AT_ONCE
    for wanted in plan.get("prefetches", []):
        nodes = wanted["nodes"][:most]
        if not nodes:
            return
        most = None if most is None else most - len(nodes)
        groups = {group["name"]: ranks_of(group) for group in plan["specs"][wanted["specHash"]]["workers"]}
        names = {node["nodeId"]: node["node"] for node in nodes}
        orders = {node["nodeId"]: [dict(member, engine=groups[member["variables"]["FLEETCTL_GROUP"]][
            int(member["variables"]["FLEETCTL_RANK"])]["engine"]) for member in node["members"]]
                  for node in nodes}
        for row in fetch_on_nodes(orders, float(wanted["timeout"]), AT_ONCE):
            if row.get("trouble"):
                failed.append({"nodeId": row["nodeId"], "artifact": row["artifact"], "at": utc_now()})
                note(request["job"], UNFETCHED, json.dumps(failed, separators=(",", ":")))
            yield _floor_outcome(wanted["model"], names[row["nodeId"]], row, events)


def _floor_outcome(model: str, node: str, row: Mapping[str, Any], events: EventStream) -> Dict[str, Any]:
    trouble = row.get("trouble")
    events.emit("weightsFetched", f"{model}: weights {f'not on {node}: {trouble}' if trouble else f'on {node}'}",
                level="warning" if trouble else "info", model=model, node=node, **row)
    result = {"model": model, "outcome": "failed" if trouble else "ready", "level": "COLD", "nodes": [node],
              "message": trouble or ""}
    return {**result, "code": "WEIGHTS_FAILED"} if trouble else {
        **result, **of_all([{"weights": {"fetched": row["fetched"]}}])}


def fetch_here(order: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Fetch the weights of each member in the order onto this node, one after another; runs there."""
    deadline = time.monotonic() + order["timeout"]
    return [{"artifact": member["weights"]["artifact"], **_fetched(member, deadline)} for member in order["members"]]


def _fetched(member: Mapping[str, Any], deadline: float) -> Dict[str, Any]:
    try:
        wanted = wanted_by(member, member["variables"], session_secret())
        root = cache_root()
        got = Fetch(root, wanted, deadline, lambda _: None).run()
        note_cold(root, got)
        return {"fetched": as_document(got)}
    except (StartFailed, WeightsError) as error:
        return {"trouble": str(error)}
