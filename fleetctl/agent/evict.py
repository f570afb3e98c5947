"""Evict: the explicit verb that takes one replica away, and only the one it names. Apply never imports this."""

from __future__ import annotations

import time
from typing import Any, Mapping

import ray

from .events import EVENT_VERSION, EventStream
from .lock import LockBusy, take_lock
from .mark import actor_name

GONE_S = 30.0


def run_evict(request: Mapping[str, Any], events: EventStream) -> int:
    """End the named replica permanently; returns 0 when it is gone, 1 where none exists, 5 while an apply creates."""
    name = actor_name(request["model"], int(request["replicaId"]))
    events.emit("version", f"fleetctl agent, events {EVENT_VERSION}, ray {ray.__version__}",
                version=EVENT_VERSION, toolVersion=request["toolVersion"], job=request["job"])
    holder = {**request["holder"], "driver": ray.get_runtime_context().get_job_id()}
    try:
        lock = take_lock(request["fleet"], holder, float(request["lockTimeout"]), lambda _: None, lambda: False)
        handle = ray.get_actor(name)
    except LockBusy as busy:
        return events.end(5, str(busy))
    except ValueError:
        return events.end(1, f"there is no {name}")
    events.emit("replicaEnding", f"{name} is being ended")
    ray.kill(handle, no_restart=True)
    lock.release()
    deadline = time.monotonic() + GONE_S
    while name in ray.util.list_named_actors():
        if time.monotonic() >= deadline:
            return events.end(1, f"{name} was ended and still exists")
        time.sleep(0.05)
    return events.end(0, f"{name} is gone")
