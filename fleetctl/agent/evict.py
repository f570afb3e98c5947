"""Evict: the explicit verb that takes replicas away, and only those it names. Apply never imports this."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping

import ray

from . import cluster
from .events import EventStream
from .explicit import Job, Outcome, find_actor, key_of, result, run_explicit

LEAVE_S = 20.0
"""How long an engine may take to end and its cards to be free, before its actor is ended all the same."""
GONE_S = 30.0


def run_evict(request: Mapping[str, Any], events: EventStream) -> int:
    """End the named replicas permanently."""
    return run_explicit(request, events, request["fleet"], end_all)


def end_all(job: Job) -> List[Outcome]:
    """End all replicas of the job at once; engines first, so that nothing of them is left when their actors go."""
    handles: Dict[str, Any] = {}
    for replica in job.replicas:
        handle = find_actor(replica)
        if handle is None:
            continue
        handles[key_of(replica)] = handle
        job.events.emit("replicaEnding", f"{key_of(replica)} is being ended", model=replica["model"],
                        replicaId=replica["replicaId"])
    leaving = [ref for handle in handles.values() for ref in _ask_to_leave(handle)]
    if leaving:
        ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_S)
    for handle in handles.values():
        ray.kill(handle, no_restart=True)
    job.lock.release()
    deadline = time.monotonic() + GONE_S
    return [_outcome(replica, key_of(replica) in handles, deadline) for replica in job.replicas]


def _ask_to_leave(handle: Any) -> List[Any]:
    """Ask a replica that is up to end its engine; an actor of an older release does not know how."""
    record = cluster.actor_record(handle._actor_id.hex())
    leave = getattr(handle, "leave", None)
    return [leave.remote()] if leave is not None and record.state == "ALIVE" and record.report else []


def _outcome(replica: Mapping[str, Any], existed: bool, deadline: float) -> Outcome:
    if not existed:
        return result(replica, "failed", "NOT_FOUND", f"{key_of(replica)} is gone already")
    while cluster.actor_record(replica["actorId"]).state != "DEAD":
        if time.monotonic() >= deadline:
            return result(replica, "failed", "STILL_THERE", f"{key_of(replica)} was ended and still exists")
        time.sleep(0.05)
    return result(replica, "gone")
