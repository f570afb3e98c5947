"""What is asked of Ray's autoscaler: one request for the nodes that all fleets need. Nothing here ends anything.

Ray keeps only the latest such request and reads it as a floor: it adds missing nodes, and removes nodes beyond the
floor only after they have been idle for a while. A node with a replica is not idle. So when a fleet shrinks, its next
apply lowers the floor, running replicas stay where they are, and a node goes once it is empty.

The request is for whole nodes, by the labels of their type: Ray counts the total resources of nodes, not the free ones,
and would pack smaller bundles in its own way. Ray's table has each fleet's part; a node used by two fleets counts once.

`release` removes the part of a fleet that is no longer applied: it would stay in Ray's table, and so would its nodes.
"""

from __future__ import annotations

import inspect
import json
import threading
import time
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

import ray
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
    internal_kv_get_gcs_client,
)

from .cluster import SHARE, alive_nodes, busy_nodes
from .report import KV_NAMESPACE
from .run_messages import EventStream, NodeType, Plan, ReleaseRequest
from .wire import document_of, parse

PREFIX = b"grow:"
ROUND_S, CHECK_S = 15.0, 0.5
"""How long the autoscaler may take for a round, and how often that is checked."""
SILENT = "autoscalerSilent"
Part = Sequence[NodeType]
"""One fleet's need: the `growth` of its plan."""


class Rounds:
    """Whether the autoscaler, of version 2, still looks at the cluster: it does so every 5 s."""

    def __init__(self) -> None:
        self._before = state_seen()
        self._begun = time.monotonic()

    def are_over(self, stop: Optional[threading.Event] = None, *, if_never: bool = False) -> bool:
        """Return whether it has not looked again within ROUND_S; waits for that, unless `stop` is set.

        `if_never` = what to return if it has never looked: then there may be none.
        """
        if self._before is None or (self._before == 0 and not if_never):
            return False
        while (stop is None or not stop.is_set()) and state_seen() == self._before:
            if time.monotonic() >= self._begun + ROUND_S:
                return True
            time.sleep(CHECK_S)
        return False


def state_seen() -> Optional[int]:
    """Return the number of the cluster's state that the autoscaler has seen last, 0 = none; None if Ray has no such."""
    try:
        from ray.autoscaler.v2.utils import is_autoscaler_v2
        from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

        if not is_autoscaler_v2():
            return None
        reply = GetClusterStatusReply()
        reply.ParseFromString(internal_kv_get_gcs_client().get_cluster_status(timeout_s=10))
        return int(reply.autoscaling_state.last_seen_cluster_resource_state_version)
    except Exception:  # private parts of Ray
        return None


def report_silence(events: EventStream) -> None:
    """Report that the autoscaler does not look at the cluster any more."""
    events.emit(SILENT, f"Ray's autoscaler has not looked at the cluster for {ROUND_S:g} s: it has ended or hangs, and "
                        "adds no nodes; see monitor.log on the head node", level="warning")


def ask_for_nodes(plan: Plan, events: EventStream) -> Optional[Rounds]:
    """Request the nodes that the plan's fleet needs, besides those of other fleets. Never fails an apply.

    Returns the autoscaler's rounds since a request for new nodes.
    """
    new = [row for row in plan.growth if row.nodes]
    try:
        trouble = _ask(plan)
    except Exception as error:
        trouble = f"{type(error).__name__}: {error}"
    if trouble is not None and new:
        events.emit("nodesNotRequested", f"no nodes were requested from Ray's autoscaler: {trouble}", level="warning")
    for row in new if trouble is None else ():
        events.emit("nodesRequested", f"asked Ray's autoscaler for {row.nodes} more {row.name} "
                    f"(at most {row.max} in all)", name=row.name, nodes=row.nodes, max=row.max)
    return Rounds() if new and trouble is None else None


def run_release(request: ReleaseRequest, events: EventStream) -> int:
    """Withdraw one fleet's part of the request; a dry run only reports it."""
    events.begin(request)
    fleet, fleets, alive = request.fleet, asking_fleets(), alive_nodes()
    if fleet not in fleets:
        others = ", ".join(fleets) or "none"
        return events.end(0, f"fleet {fleet} requests no nodes; fleets that do: {others}")
    busy = busy_nodes()
    parts = with_joined([read_part(name) for name in fleets], alive)
    for row in parts[fleets.index(fleet)]:
        kept = alive.keys() & {*row.keeps}
        free, used = len(kept - busy), len(kept & busy)
        events.emit("nodesReleased", f"{row.name}: {row.nodes} new, {free} unused and {used} in use no longer "
                    "requested", name=row.name, new=row.nodes, unused=free, inUse=used)
    if request.dry_run:
        return events.end(0, "nothing was changed")
    request_part(fleet, [])
    return events.end(0, "nothing was ended; a node that no other fleet requests goes once it is idle")


def _ask(plan: Plan) -> Optional[str]:
    """Store the fleet's part and request the nodes of all fleets. Returns why it cannot, or None."""
    fleet, options = plan.fleet.name, plan.options
    before, after = read_part(fleet), plan.growth
    if options.targets or options.excludes or options.selector:
        # the plan leaves models out, and their needs are not known
        former = {row.name: row for row in with_joined([before], alive_nodes())[0]}
        after = [row if row.name not in former else row._replace(
            nodes=max(row.nodes, former[row.name].nodes), keeps=sorted({*row.keeps, *former[row.name].keeps}))
            for row in after]
    if not any(row.keeps or row.nodes for row in after):
        if fleet not in asking_fleets():
            return None
        after = ()
    trouble = _why_unsupported()
    if trouble is None:
        request_part(fleet, after)
    return trouble


def _why_unsupported() -> Optional[str]:
    """Return why this cluster cannot be asked for nodes with given labels, or None if it can."""
    from ray.autoscaler.sdk import request_resources

    if "bundle_label_selectors" not in inspect.signature(request_resources).parameters:
        return f"that needs Ray 2.52 or later, and the cluster runs {ray.__version__}"
    from ray.autoscaler.v2.utils import is_autoscaler_v2

    return None if is_autoscaler_v2() else "that needs autoscaler version 2, and the cluster has version 1 or none"


def request_nodes() -> None:
    """Request the nodes of all fleets together; again if another fleet has changed its part meanwhile."""
    from ray.autoscaler.sdk import request_resources

    requested: Optional[List[Part]] = None
    while True:
        parts = [read_part(fleet) for fleet in asking_fleets()]
        if parts == requested:
            return
        requested, alive = parts, alive_nodes()
        nodes = [node for node, count in _totals(with_joined(parts, alive), set(alive)) for _ in range(count)]
        request_resources(bundles=[bundle for bundle, _ in nodes],
                          bundle_label_selectors=[labels for _, labels in nodes])


def with_joined(parts: Sequence[Part], alive: Mapping[str, Mapping[str, str]]) -> List[Part]:
    """Return the parts with the requested nodes that have joined since moved from `nodes` to `keeps`.

    A part that requests new nodes keeps all nodes of the type that were alive then, so any other has joined later.
    """
    taken: Set[str] = set()
    return [[_with_joined(row, alive, taken) for row in part] for part in parts]


def _with_joined(row: NodeType, alive: Mapping[str, Mapping[str, str]], taken: Set[str]) -> NodeType:
    joined = sorted(node for node, labels in alive.items() if node not in row.keeps and node not in taken
                    and row.labels.items() <= labels.items())[:row.nodes]
    taken.update(joined)
    return row._replace(keeps=[*row.keeps, *joined], nodes=row.nodes - len(joined))


def _totals(parts: Sequence[Part], alive: Set[str]) -> "List[Tuple[Tuple[Dict[str, float], Dict[str, str]], int]]":
    """Return the bundle and labels of each node type, and the count to request: kept living nodes, plus new ones."""
    kept: Dict[str, Set[str]] = {}
    new: Dict[str, int] = {}
    for row in (row for part in parts for row in part):
        bundle = {"GPU": float(row.gpus)} if row.gpus else {"CPU": row.cpus / SHARE}
        kind = json.dumps([bundle, row.labels], sort_keys=True)
        kept.setdefault(kind, set()).update(alive.intersection(row.keeps))
        new[kind] = new.get(kind, 0) + row.nodes
    return [(tuple(json.loads(kind)), len(ids) + new[kind]) for kind, ids in sorted(kept.items())]


def asking_fleets() -> List[str]:
    """Return the names of the fleets that have a part in the request."""
    return sorted(key[len(PREFIX):].decode() for key in _internal_kv_list(PREFIX, namespace=KV_NAMESPACE))


def read_part(fleet: str) -> Part:
    """Return a fleet's part of the request; empty if it has none."""
    found = _internal_kv_get(PREFIX + fleet.encode(), namespace=KV_NAMESPACE)
    return [parse(NodeType, row) for row in json.loads(found)] if found else []


def request_part(fleet: str, part: Part) -> None:
    """Store a fleet's part of the request, and request the nodes of all fleets.

    An empty part is removed only after the request, so that the next run repeats an interrupted withdrawal.
    """
    key = PREFIX + fleet.encode()
    _internal_kv_put(key, json.dumps(document_of(part)).encode(), overwrite=True, namespace=KV_NAMESPACE)
    request_nodes()
    if not part:
        _internal_kv_del(key, namespace=KV_NAMESPACE)
