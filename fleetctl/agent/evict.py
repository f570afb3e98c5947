"""Evict: the explicit verb that ends replicas, only those it names. Apply never imports this."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Dict, List, Mapping, Set

import ray

from . import cluster
from .events import EventStream
from .explicit import Job, Outcome, find_actor, key_of, result, run_explicit
from .levels import level_details, prepare
from .mark import actor_name
from .reload import forget_dead_actors

LEAVE_S = 20.0
"""How long an engine may take to end and free its cards before its actor is ended anyway."""
GONE_S = 30.0


def run_evict(request: Mapping[str, Any], events: EventStream) -> int:
    """End the named replicas permanently."""
    return run_explicit(request, events, request["fleet"], end_all)


def end_all(job: Job) -> List[Outcome]:
    """End all replicas of the job together; engines first, so that none of their processes outlives its actor.

    Which replicas are up is read under the lock, just before: others may have ended since the client looked.
    """
    found: Dict[str, Any] = {}
    stays: Dict[str, Outcome] = {}
    up = {model: _ready_actors(model) for model in job.keep}
    for replica in job.replicas:
        handle, model = find_actor(replica), replica["model"]
        if handle is None:
            continue
        if replica["actorId"] in up.get(model, ()):
            if len(up[model]) <= job.keep[model]:
                stays[replica["actorId"]] = result(
                    replica, "skipped", "TOO_FEW_READY", f"without it {len(up[model]) - 1} of {model} would be ready, "
                    f"and {job.keep[model]} must stay ready: it keeps running")
                continue
            up[model].remove(replica["actorId"])
        found[replica["actorId"]] = handle
    stays.update(prepare(job, [replica for replica in job.replicas if replica["actorId"] in found]))
    ending = [replica for replica in job.replicas if replica["actorId"] in found and replica["actorId"] not in stays]
    for replica in ending:
        job.events.emit("replicaEnding", f"{key_of(replica)} is being ended", model=replica["model"],
                        replicaId=replica["replicaId"])
    handles = [found[replica["actorId"]] for replica in ending]
    leaving = [ref for handle in handles for ref in _ask_to_leave(handle)]
    if leaving:
        ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_S)
    for handle in handles:
        ray.kill(handle, no_restart=True)
    job.lock.release()
    deadline = time.monotonic() + GONE_S
    outcomes = [stays.get(replica["actorId"]) or _outcome(job, replica, replica["actorId"] in found, deadline)
                for replica in job.replicas]
    with suppress(Exception):  # the outcomes must still be reported
        forget_dead_actors()
    return outcomes


def _ready_actors(model: str) -> Set[str]:
    """Return the actor ids of a model's ready replicas."""
    found = set()
    for number in cluster.live_ids(model, cluster.taken_names(), set()):
        try:
            actor_id = ray.get_actor(actor_name(model, number))._actor_id.hex()
        except ValueError:  # it has just ended
            continue
        record = cluster.actor_record(actor_id)
        if record.state == "ALIVE" and record.report:
            found.add(actor_id)
    return found


def _ask_to_leave(handle: Any) -> List[Any]:
    """Ask a ready replica to end its engine; an actor of an older release may lack the method."""
    record = cluster.actor_record(handle._actor_id.hex())
    leave = getattr(handle, "leave", None)
    return [leave.remote()] if leave is not None and record.state == "ALIVE" and record.report else []


def _outcome(job: Job, replica: Mapping[str, Any], existed: bool, deadline: float) -> Outcome:
    if not existed:
        return result(replica, "failed", "NOT_FOUND", f"{key_of(replica)} is already gone")
    while cluster.actor_record(replica["actorId"]).state != "DEAD":
        if time.monotonic() >= deadline:
            return result(replica, "failed", "STILL_THERE", f"{key_of(replica)} was ended, but its actor still exists")
        time.sleep(0.05)
    return result(replica, "gone", **level_details(job, replica))
