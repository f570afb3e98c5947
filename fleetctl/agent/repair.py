"""Repair: the explicit verb that removes dead remains of ours: placement groups, locks, engines the user confirmed.

Each is checked again before it is removed. Apply never imports this.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import ray
from ray.core.generated import gcs_pb2
from ray.util.placement_group import PlacementGroup, remove_placement_group

from . import cluster
from .events import EventStream
from .lock import release_left
from .on_nodes import ask_nodes
from .orphans import end_orphans

PREFIX = "ModelActor:"


def run_repair(request: Mapping[str, Any], events: EventStream) -> int:
    """Remove placement groups, end orphaned engines, release locks; returns 0 all done, 3 some not."""
    events.begin(request)
    rows: List[Dict[str, Any]] = []
    for group in request["groups"]:
        why = remove_group(group["id"], group["name"])
        rows.append({"thing": "placementGroup", "subject": group["name"], "done": why is None, "message": why or ""})
    for lock in request["locks"]:
        done = release_left(lock["fleet"], int(lock["number"]))
        rows.append({"thing": "lock", "subject": lock["fleet"], "done": done,
                     "message": "" if done else "it is held, or already released"})
    rows += end_engines(request["orphans"], float(request["timeout"]))
    for row in rows:
        events.emit("repaired", row["message"], level="info" if row["done"] else "warning", thing=row["thing"],
                    subject=row["subject"], done=row["done"])
    repaired = sum(row["done"] for row in rows)
    return events.end(0 if repaired == len(rows) else 3, f"{repaired} of {len(rows)} repaired")


def end_engines(orphans: Mapping[str, List[Mapping[str, Any]]], timeout_s: float) -> List[Dict[str, Any]]:
    """End the orphans, listed by node id, and return a row per process."""
    rows: List[Dict[str, Any]] = []
    for answer in ask_nodes(end_orphans, orphans, timeout_s):
        not_ended = [{**orphan, "done": False, "message": answer.trouble} for orphan in orphans[answer.node_id]]
        rows += [{"thing": "engine", "subject": f"process {orphan['pid']} of {orphan['model']}/{orphan['replicaId']}",
                  "done": orphan["done"], "message": orphan["message"]} for orphan in answer.content or not_ended]
    return rows


def remove_group(group_id: str, name: str) -> Optional[str]:
    """Remove an abandoned placement group; returns why it stays, or None once it is removed.

    Our groups are named after their replica, are in our namespace, and were created by its coordinator actor, which had
    the name before. So a group is abandoned if its creator is dead and no actor has its name.
    """
    found = find_group(group_id)
    if found is None or found.name != name or found.state == gcs_pb2.PlacementGroupTableData.REMOVED:
        return "it is gone"
    if found.ray_namespace != ray.get_runtime_context().namespace or not name.startswith(PREFIX):
        return f"it is in namespace {found.ray_namespace}, not in ours"
    if not found.creator_actor_id.strip(b"\xff"):
        return "it was not created by an actor, so it is not ours"
    if cluster.actor_record(found.creator_actor_id.hex()).state != "DEAD" or name in cluster.taken_names():
        return "its replica is alive"
    remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group_id))))
    return None


def find_group(group_id: str) -> Any:
    """Return Ray's own record of a placement group, or None."""
    packed = cluster.accessor().get_placement_group_info(ray.PlacementGroupID(bytes.fromhex(group_id)))
    return None if packed is None else gcs_pb2.PlacementGroupTableData.FromString(packed)
