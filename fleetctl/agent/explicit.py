"""Common parts of the explicit verbs: the first event, the lock, an outcome per replica, the summary.

Apply never imports this.
"""

from __future__ import annotations

import signal
import threading
from typing import Any, Callable, List, Mapping, NamedTuple, Optional

import ray

from .events import EventStream
from .lock import HeldLock, Interrupted, LockBusy, take_lock
from .mark import actor_name, warm_name

Replica = Mapping[str, Any]
Outcome = Mapping[str, Any]
DONE = ("ready", "gone")


class Job(NamedTuple):
    """One run of a verb that holds the lock. `stop` is set at SIGTERM: start nothing more.

    `keep` = how many replicas must stay up, by model key. `level` = the level of an eviction. `warm` = by node id, its
    name and how many bytes of weights may be WARM there. `drain_s` = how long requests may still take to end.
    """

    replicas: List[Replica]
    events: EventStream
    lock: HeldLock
    stop: threading.Event
    keep: Mapping[str, int]
    level: str = ""
    warm: Mapping[str, Mapping[str, Any]] = {}
    name: str = ""
    drain_s: float = 0.0


def key_of(replica: Replica) -> str:
    """Return the key of a replica, MODEL/ID."""
    return f"{replica['model']}/{replica['replicaId']}"


def find_actor(replica: Replica) -> Optional[Any]:
    """Return the actor that the user confirmed; None if it is gone, even if another actor has its name now."""
    name_of = warm_name if replica.get("level") == "WARM" else actor_name
    try:
        handle = ray.get_actor(name_of(replica["model"], replica["replicaId"]))
    except ValueError:
        return None
    return handle if handle._actor_id.hex() == replica["actorId"] else None


def result(replica: Replica, outcome: str, code: Optional[str] = None, message: str = "", **more: Any) -> Outcome:
    """Return the outcome of one replica."""
    row = {"model": replica["model"], "replicaId": replica["replicaId"], "outcome": outcome, "nodes": replica["nodes"],
           "message": message, **more}
    return {**row, "code": code} if code else row


def report_draining(events: EventStream, seconds: float) -> None:
    """Report how long requests may take to end."""
    events.emit("draining", f"waiting {seconds:g} s for requests to end; `fleetctl endpoints` no longer lists it")


def run_explicit(
    request: Mapping[str, Any], events: EventStream, lock_name: str, act: Callable[[Job], List[Outcome]]
) -> int:
    """Wait until requests have drained, take the lock, act; returns 0 all done, 3 some not, 5 the lock is held.

    A replica that goes to WARM serves until its weights are loaded and drains then, so `act` waits for that.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    events.begin(request)
    loads, drain_s = request.get("level") == "WARM", float(request.get("drain", 0))
    if drain_s and not loads:
        report_draining(events, drain_s)
    holder = {**request["holder"], "driver": ray.get_runtime_context().get_job_id()}
    try:
        if stop.wait(0 if loads else drain_s):
            raise Interrupted
        lock = take_lock(lock_name, holder, float(request["lockTimeout"]), lambda _: None, stop.is_set)
    except LockBusy as busy:
        return events.end(5, str(busy), holder=busy.holder)
    except Interrupted:
        return events.end(3, "interrupted before anything was begun", interrupted=True)
    try:
        outcomes = act(Job(list(request["replicas"]), events, lock, stop, request.get("keep", {}),
                           request.get("level", ""), request.get("warm", {}), request["job"], drain_s))
    finally:
        lock.release()
    done = sum(row["outcome"] in DONE for row in outcomes)
    return events.end(0 if done == len(outcomes) else 3, f"{done} of {len(outcomes)} done", outcomes,
                      interrupted=stop.is_set())
