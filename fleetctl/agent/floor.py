"""The nodes that are needed: one request to Ray's autoscaler, for all fleets. Nothing here ends anything.

Ray keeps one such request in a cluster, the last one, and reads it as a floor: nodes that are missing are added, and of
those beyond it only what has been idle for a while may go. A node on which a replica runs is not idle. So when a fleet
shrinks the floor sinks with its next apply, what runs stays where it is, and a node goes once it is empty.

Whole nodes are asked for, by the labels of their type: Ray counts what nodes have, not what is free of them, and would
put other bundles together on its own way. Each fleet's part is in Ray's table; a node that two fleets use counts once.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_list, _internal_kv_put

from .claims import SHARE
from .cluster import alive_nodes
from .events import EventStream
from .failure import KV_NAMESPACE

PREFIX = b"grow:"
Part = List[Mapping[str, Any]]
"""What one fleet needs: rows of a plan's `growth`, with what is asked for in them."""


def ask_for_nodes(plan: Mapping[str, Any], events: EventStream) -> None:
    """Ask for the nodes that the plan's fleet needs, beside those of the others; an apply never fails for it."""
    new = [row for row in plan.get("growth") or [] if row["nodes"]]
    try:
        trouble = _ask(plan)
    except Exception as error:
        trouble = f"{type(error).__name__}: {error}"
    if trouble is not None and new:
        events.emit("nodesNotRequested", f"Ray's autoscaler was not asked for nodes: {trouble}", level="warning")
    for row in new if trouble is None else ():
        events.emit("nodesRequested", f"asked Ray's autoscaler for {row['nodes']} more {row['name']} "
                    f"(at most {row['max']} in all)", name=row["name"], nodes=row["nodes"], max=row["max"])


def _ask(plan: Mapping[str, Any]) -> Optional[str]:
    """Write down what the fleet needs, and ask for everything; returns why that cannot be."""
    fleet = plan["fleet"]["name"]
    before, after = read_part(fleet), list(plan.get("growth") or [])
    options = plan.get("options") or {}
    if options.get("targets") or options.get("excludes") or options.get("selector"):
        # they keep models out of the plan: nothing is known of what those need
        after = _with_what_was(after, settled([before], alive_nodes())[0])
    if not any(row["keeps"] or row["nodes"] for row in (*before, *after)):
        return None
    trouble = _refused()
    if trouble is None:
        write_part(fleet, after)
        request_nodes()
    return trouble


def _with_what_was(growth: Part, before: Part) -> Part:
    """Return the rows with no less in them than before."""
    was = {row["name"]: row for row in before}
    return [row if row["name"] not in was else {
        **row, "nodes": max(row["nodes"], was[row["name"]]["nodes"]),
        "keeps": sorted({*row["keeps"], *was[row["name"]]["keeps"]})} for row in growth]


def _refused() -> Optional[str]:
    """Return why this cluster cannot be asked for nodes with certain labels; None where it can."""
    from ray.autoscaler.sdk import request_resources

    if "bundle_label_selectors" not in inspect.signature(request_resources).parameters:
        return f"that needs Ray 2.52 or later, and the cluster runs {ray.__version__}"
    from ray.autoscaler.v2.utils import is_autoscaler_v2

    return None if is_autoscaler_v2() else "that needs its version 2, and this cluster has none or version 1"


def request_nodes() -> None:
    """Ask for what all fleets need together; once more if another fleet has changed its part meanwhile."""
    from ray.autoscaler.sdk import request_resources

    asked: Optional[List[Part]] = None
    while True:
        parts = [read_part(fleet) for fleet in asking_fleets()]
        if parts == asked:
            return
        asked, alive = parts, alive_nodes()
        nodes = [node for node, count in _together(settled(parts, alive), set(alive)) for _ in range(count)]
        request_resources(bundles=[bundle for bundle, _ in nodes],
                          bundle_label_selectors=[labels for _, labels in nodes])


def settled(parts: List[Part], alive: Mapping[str, Mapping[str, str]]) -> List[Part]:
    """Return the parts with the nodes that have joined since among those kept; each is one that was asked for.

    A part that asks for new nodes keeps all of the type that lived then, so any other has joined later.
    """
    taken: Set[str] = set()
    return [[_settle(row, alive, taken) for row in part] for part in parts]


def _settle(row: Mapping[str, Any], alive: Mapping[str, Mapping[str, str]], taken: Set[str]) -> Mapping[str, Any]:
    joined = sorted(node for node, labels in alive.items() if node not in row["keeps"] and node not in taken
                    and row["labels"].items() <= labels.items())[:row["nodes"]]
    taken.update(joined)
    return {**row, "keeps": [*row["keeps"], *joined], "nodes": row["nodes"] - len(joined)}


def _together(parts: List[Part], alive: Set[str]) -> "List[Tuple[Tuple[Dict[str, float], Dict[str, str]], int]]":
    """Return what to ask of each type, and of how many nodes: all that are kept and alive, each once, and new ones."""
    kept: Dict[str, Set[str]] = {}
    new: Dict[str, int] = {}
    for row in (row for part in parts for row in part):
        bundle = {"GPU": float(row["gpus"])} if row["gpus"] else {"CPU": row["cpus"] / SHARE}
        kind = json.dumps([bundle, row["labels"]], sort_keys=True)
        kept.setdefault(kind, set()).update(alive.intersection(row["keeps"]))
        new[kind] = new.get(kind, 0) + int(row["nodes"])
    return [(tuple(json.loads(kind)), len(ids) + new[kind]) for kind, ids in sorted(kept.items())]


def asking_fleets() -> List[str]:
    """Return the fleets that have a part in the request, by name."""
    return sorted(key[len(PREFIX):].decode() for key in _internal_kv_list(PREFIX, namespace=KV_NAMESPACE))


def read_part(fleet: str) -> Part:
    """Return what is asked for a fleet, empty where nothing is."""
    found = _internal_kv_get(PREFIX + fleet.encode(), namespace=KV_NAMESPACE)
    part: Part = json.loads(found) if found else []
    return part


def write_part(fleet: str, part: Part) -> None:
    """Write down what is asked for a fleet."""
    key = PREFIX + fleet.encode()
    if part:
        _internal_kv_put(key, json.dumps(part).encode(), overwrite=True, namespace=KV_NAMESPACE)
    else:
        _internal_kv_del(key, namespace=KV_NAMESPACE)
