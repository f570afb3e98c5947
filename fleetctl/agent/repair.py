"""Repair: the explicit verb that removes dead remains of ours: placement groups, locks, engines the user confirmed.

Each is checked again before it is removed. Apply never imports this.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

import ray
from ray.core.generated import gcs_pb2
from ray.util.placement_group import PlacementGroup, remove_placement_group

from . import cluster
from .events import EventStream
from .lock import release_left
from .on_nodes import ask_nodes
from .orphans import end_orphans
from .run_messages import Orphan, RepairRequest

PREFIX = "ModelActor:"
Result = Tuple[str, str, str]
"""The kind of a leftover, its name, and why it stays; "" = it is removed."""


def run_repair(request: RepairRequest, events: EventStream) -> int:
    """Remove placement groups, end orphaned engines, release locks; returns 0 all done, 3 some not."""
    events.begin(request)
    results: List[Result] = [("placementGroup", group.name, remove_group(group.id, group.name) or "")
                             for group in request.groups]
    for lock in request.locks:
        done = release_left(lock.fleet, lock.number)
        results.append(("lock", lock.fleet, "" if done else "it is held, or already released"))
    results += end_engines(request.orphans, request.timeout)
    for thing, subject, why in results:
        events.emit("repaired", why, level="warning" if why else "info", thing=thing, subject=subject, done=not why)
    repaired = sum(not why for _, _, why in results)
    return events.end(0 if repaired == len(results) else 3, f"{repaired} of {len(results)} repaired")


def end_engines(orphans: Mapping[str, Sequence[Orphan]], timeout_s: float) -> Iterator[Result]:
    """End the orphans, listed by node id, and yield the result for each process."""
    for answer in ask_nodes(end_orphans, orphans, timeout_s):
        agreed = orphans[answer.node_id]
        for orphan, why in zip(agreed, answer.content or [answer.trouble] * len(agreed)):
            yield "engine", f"process {orphan.pid} of {orphan.model}/{orphan.replica_id}", why


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
