"""Prefetch: fetch the weights of a model to the disks of nodes before a replica needs them. It starts no replica.

It is a verb, and the last step of an apply for the weights that the fleet file keeps on nodes.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterator, List, Mapping

from .cold import note_cold
from .create import ranks_of
from .events import EventStream
from .failure import StartFailed
from .mark import utc_now
from .model_files import fetch_document, fetch_summary, noted, session_secret, wanted_by
from .on_nodes import ask_nodes
from .records import UNFETCHED, add
from .weights.check import check_changed
from .weights.fetch import Fetch
from .weights.index import WeightsError
from .weights.store import cache_root
from .weights.verified import Verified

MARGIN_S = 30.0
MAX_PARALLEL = 4
"""Nodes that fetch at a time in an apply: a source serves no more."""


def run_prefetch(request: Mapping[str, Any], events: EventStream) -> int:
    """Fetch on the nodes of the request, a few at a time; returns 0 if all fetches succeeded, else 3."""
    events.begin(request)
    rows = fetch_on_nodes(request["nodes"], float(request["timeout"]), int(request["atOnce"]))
    failed = 0
    for row in rows:
        failed += bool(row.get("trouble"))
        events.emit("weightsFetched", row.get("trouble") or "fetched", **row,
                    level="warning" if row.get("trouble") else "info")
    return events.end(3 if failed else 0, f"{failed} failed" if failed else "all weights are there")


def fetch_on_nodes(nodes: Mapping[str, Any], limit_s: float, parallel: int) -> Iterator[Dict[str, Any]]:
    """Fetch the weights of members on their nodes, and yield a row for each node and artifact."""
    orders = {node_id: {"members": members, "timeout": limit_s} for node_id, members in nodes.items()}
    for answer in ask_nodes(fetch_here, orders, limit_s + MARGIN_S, parallel):
        for row in answer.content or [{"artifact": member["weights"]["artifact"], "trouble": answer.trouble}
                                      for member in nodes[answer.node_id]]:
            yield {"nodeId": answer.node_id, **row}


def run_prefetches(request: Mapping[str, Any], events: EventStream) -> Iterator[Dict[str, Any]]:
    """Carry out the prefetches of a plan and yield an outcome per prefetch and node.

    A request that does not wait covers `MAX_PARALLEL` nodes. Failures are recorded: later plans skip them for a while.
    """
    plan = request["plan"]
    nodes_left = None if request["wait"] else MAX_PARALLEL
    for prefetch in plan.get("prefetches", []):
        nodes = prefetch["nodes"][:nodes_left]
        if not nodes:
            return
        nodes_left = None if nodes_left is None else nodes_left - len(nodes)
        groups = {group["name"]: ranks_of(group) for group in plan["specs"][prefetch["specHash"]]["workers"]}
        names = {node["nodeId"]: node["node"] for node in nodes}
        members = {node["nodeId"]: [_with_engine(member, groups) for member in node["members"]] for node in nodes}
        for row in fetch_on_nodes(members, float(prefetch["timeout"]), MAX_PARALLEL):
            if row.get("trouble"):
                failed = {"nodeId": row["nodeId"], "artifact": row["artifact"], "at": utc_now()}
                add(UNFETCHED, f"{row['nodeId']}/{row['artifact']}", failed, plan["fleet"]["name"])
            yield _prefetch_outcome(prefetch["model"], names[row["nodeId"]], row, events)


def _with_engine(member: Mapping[str, Any], groups: Mapping[str, List[Mapping[str, Any]]]) -> Mapping[str, Any]:
    ranks = groups[member["variables"]["FLEETCTL_GROUP"]]
    return {**member, "engine": ranks[int(member["variables"]["FLEETCTL_RANK"])]["engine"]}


def _prefetch_outcome(model: str, node: str, row: Mapping[str, Any], events: EventStream) -> Dict[str, Any]:
    trouble = row.get("trouble")
    events.emit("weightsFetched", f"{model}: weights {f'not on {node}: {trouble}' if trouble else f'on {node}'}",
                level="warning" if trouble else "info", model=model, node=node, **row)
    result = {"model": model, "outcome": "failed" if trouble else "ready", "level": "COLD", "nodes": [node],
              "message": trouble or ""}
    return {**result, "code": "WEIGHTS_FAILED"} if trouble else {
        **result, **fetch_summary([{"weights": {"fetched": row["fetched"]}}])}


def fetch_here(order: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Fetch the weights of the members in the order, one after another, to the node on which this runs."""
    deadline = time.monotonic() + order["timeout"]
    return [{"artifact": member["weights"]["artifact"], **_fetched(member, deadline)} for member in order["members"]]


def _fetched(member: Mapping[str, Any], deadline: float) -> Dict[str, Any]:
    try:
        wanted = wanted_by(member, member["variables"], session_secret())
        root = cache_root()
        verified = Verified(root, wanted.artifact, wanted.secret)
        got = noted(Fetch(root, wanted, deadline, lambda _: None))
        if check_changed(got.entry, got.held, verified):  # no engine waits for this
            got = noted(Fetch(root, wanted, deadline, lambda _: None))
        note_cold(root, got, verified)
        return {"fetched": fetch_document(got)}
    except (StartFailed, WeightsError) as error:
        return {"trouble": str(error)}
