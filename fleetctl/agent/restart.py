"""Restart: the explicit verb that ends replicas' engines and starts them again, one replica at a time.

Ray restarts the actor with the same name, nodes and spec. That uses one of the restarts that the model allows, so a
replica with none left is refused: ending it would be permanent.
"""

from __future__ import annotations

import shlex
import time
from typing import Any, List, Mapping

import ray

from . import cluster
from .events import EventStream
from .explicit import Job, Outcome, Replica, find_actor, key_of, result, run_explicit
from .failure import decode_failure, kept_failure

POLL_S = 0.2
MARGIN_S = 120.0


def run_restart(request: Mapping[str, Any], events: EventStream) -> int:
    """Restart the named replicas. The lock is for restarts only: an apply may run meanwhile."""
    return run_explicit(request, events, f"{request['fleet']}/restart", restart_all)


def restart_all(job: Job) -> List[Outcome]:
    """Restart the replicas one after another, each ready before the next starts; skip the rest after a failure."""
    outcomes: List[Outcome] = []
    for replica in job.replicas:
        if job.stop.is_set():
            outcomes.append(result(replica, "skipped", "INTERRUPTED", "interrupted: it runs as before"))
        elif outcomes and outcomes[-1]["outcome"] != "ready":
            outcomes.append(result(replica, "skipped", "NOT_BEGUN", "one before it is not ready: it runs as before"))
        else:
            outcomes.append(_restart(replica, job))
            job.events.emit("replicaRestarted", f"{key_of(replica)}: {outcomes[-1]['outcome']}",
                            model=replica["model"], replicaId=replica["replicaId"])
    return outcomes


def _restart(replica: Replica, job: Job) -> Outcome:
    begun = time.monotonic()
    handle = find_actor(replica)
    if handle is None:
        return result(replica, "failed", "NOT_FOUND", f"{key_of(replica)} is already gone")
    before = cluster.actor_record(replica["actorId"])
    if before.restarts_left == 0:
        return result(replica, "failed", "RESTARTS_USED", f"all its {before.restarts} restarts are used, so ending it "
                      f"would be permanent: run `fleetctl evict {shlex.quote(key_of(replica))}`; the next apply "
                      "starts another one")
    job.events.emit("replicaEnding", f"{key_of(replica)} is being restarted", model=replica["model"],
                    replicaId=replica["replicaId"])
    ray.kill(handle, no_restart=False)
    return _await_ready(replica, job, before.restarts, begun)


def _await_ready(replica: Replica, job: Job, restarts_before: int, begun: float) -> Outcome:
    deadline = begun + float(replica["startupTimeout"]) + MARGIN_S
    while time.monotonic() < deadline:
        record = cluster.actor_record(replica["actorId"])
        seconds = round(time.monotonic() - begun, 2)
        if record.state == "ALIVE" and record.report and record.restarts > restarts_before:
            return result(replica, "ready", seconds=seconds)
        if record.state == "DEAD":
            code, message = kept_failure(replica["actorId"]) or decode_failure(record.death)
            return result(replica, "failed", code, message, seconds=seconds)
        if job.stop.wait(POLL_S):
            return result(replica, "starting", "INTERRUPTED", "interrupted: its start continues by itself")
    return result(replica, "starting", "STILL_STARTING", "it continues by itself; `fleetctl status` shows it")
