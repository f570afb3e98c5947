"""Prefetch: the weights of a model onto the disks of nodes, before a replica needs them. It starts nothing."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Mapping

import ray

from .events import EventStream
from .failure import StartFailed
from .model_files import as_document, session_secret, wanted_by
from .on_nodes import ask_in_turn
from .weights.fetch import Fetch
from .weights.index import WeightsError
from .weights.store import cache_root

MARGIN_S = 30.0


def run_prefetch(request: Mapping[str, Any], events: EventStream) -> int:
    """Let the nodes of the request fetch, a few at a time; returns 0 all have all, 3 some do not."""
    events.begin(ray.__version__, request)
    limit_s, nodes = float(request["timeout"]), request["nodes"]
    orders = {node_id: {"members": members, "timeout": limit_s} for node_id, members in nodes.items()}
    failed = 0
    for answer in ask_in_turn(fetch_here, orders, limit_s + MARGIN_S, int(request["atOnce"])):
        rows = answer.content or [{"artifact": member["weights"]["artifact"], "trouble": answer.trouble}
                                  for member in nodes[answer.node_id]]
        for row in rows:
            failed += bool(row.get("trouble"))
            events.emit("weightsFetched", row.get("trouble") or "fetched", nodeId=answer.node_id,
                        level="warning" if row.get("trouble") else "info", **row)
    return events.end(3 if failed else 0, f"{failed} failed" if failed else "all is there")


def fetch_here(order: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Fetch the weights of each member in the order onto this node, one after another; runs there."""
    deadline = time.monotonic() + order["timeout"]
    return [{"artifact": member["weights"]["artifact"], **_fetched(member, deadline)} for member in order["members"]]


def _fetched(member: Mapping[str, Any], deadline: float) -> Dict[str, Any]:
    try:
        wanted = wanted_by(member, member["variables"], session_secret())
        return {"fetched": as_document(Fetch(cache_root(os.environ), wanted, deadline, lambda _: None).run())}
    except (StartFailed, WeightsError) as error:
        return {"trouble": str(error)}
