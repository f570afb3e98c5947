"""Carry a plan out: take the lock, create what fits in the plan's order, wait for readiness, report every replica.

Partial success is a result: whatever fails, the rest goes on. SIGTERM means: begin nothing more, report, leave.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Dict, List, Mapping, Optional, Set

import ray

from . import world
from .attempt import attempt, mistake, outcome, wait_ready, wait_worker
from .events import EVENT_VERSION, EventStream
from .lock import HeldLock, Interrupted, LockBusy, take_lock
from .mark import actor_name
from .shape import replica_of
from .turns import CardTurns

HEARTBEAT_S = 10.0
LAST_BREATH_S = 1.2
"""Ray sends SIGKILL three seconds after SIGTERM; the report must be out before."""

KV_NAMESPACE = b"fleetctl"


class Run:
    """One apply, from its request to its summary."""

    def __init__(self, request: Mapping[str, Any], events: EventStream) -> None:
        self.request = request
        self.plan: Mapping[str, Any] = request["plan"]
        self.events = events
        self.stop = threading.Event()
        self.outcomes: Dict[str, Dict[str, Any]] = {}
        self.ours = {self.plan["fleet"]["name"], self.plan.get("options", {}).get("adoptFrom")} - {None}
        self.awaited: List[Dict[str, Any]] = []
        self.replicas = [replica_of(self.plan, action, request["logs"]) for action in self.plan["actions"]]

    def not_counted(self, model: str) -> Set[int]:
        """Return the ids of a model that exist but do not count: lost ones and unmanaged ones."""
        records = [*self.plan.get("lost", []), *self.plan.get("unmanaged", [])]
        return {int(row["replicaId"]) for row in records if row["model"] == model and row.get("replicaId") is not None}

    def work(self, lock: HeldLock) -> None:
        """Create and await everything, `parallelism` at a time, in the plan's order."""
        turns = CardTurns(self.replicas)
        with ThreadPoolExecutor(max_workers=int(self.request["parallelism"]), thread_name_prefix="replica") as pool:
            futures: List[Future[None]] = [pool.submit(self._one, replica, turns, lock) for replica in self.replicas]
            self.awaited = self.starting_before()
            futures += [pool.submit(self._await_live, row) for row in self.awaited]
            self._heartbeat(futures)
            if self.stop.is_set():
                wait(futures, timeout=LAST_BREATH_S)
                self.finish(interrupted=True)
        for future in futures:
            future.result()

    def _one(self, replica: Dict[str, Any], turns: CardTurns, lock: HeldLock) -> None:
        try:
            turns.wait_for(replica["id"], self.stop.is_set)
            if self.stop.is_set():
                result = outcome(replica, "skipped", "INTERRUPTED", "the apply was interrupted before this one began")
            elif not lock.still_held():
                result = outcome(replica, "skipped", "LOCK_LOST", "the lock is gone; another apply may be at work")
            else:
                result = attempt(replica, self.not_counted(replica["model"]), self.ours,
                                 lambda: turns.done(replica["id"]), self.events.emit, self.stop.is_set)
        except Exception as error:
            result = mistake(replica, error)
        finally:
            turns.done(replica["id"])
        self._report(replica["id"], result)

    def _report(self, key: str, result: Dict[str, Any]) -> None:
        self.outcomes[key] = result
        kind = result["outcome"]
        level = {"ready": "info", "starting": "info", "skipped": "warning"}.get(kind, "error")
        where = f" on {', '.join(result['nodes'])}" if result["nodes"] else ""
        why = f": {result['message']}" if result["message"] else ""
        details = {name: value for name, value in result.items() if name != "message"}
        self.events.emit("replica" + kind.capitalize(), f"{key}: {kind}{where}{why}", level=level, **details)

    def starting_before(self) -> List[Dict[str, Any]]:
        """Return the replicas of planned models that were already starting when we came; they are awaited too."""
        names, planned = world.taken_names(), {replica["id"] for replica in self.replicas}
        rows = []
        for model in self.request["await"]:
            for replica_id in world.live_ids(model["key"], names, self.not_counted(model["key"])):
                key = f"{model['key']}/{replica_id}"
                if key not in planned and world.is_starting(actor_name(model["key"], replica_id)):
                    rows.append({"id": key, "model": model["key"], "replicaId": replica_id, "members": [],
                                 "lifecycle": model["lifecycle"]})
        return rows

    def _await_live(self, replica: Dict[str, Any]) -> None:
        try:
            handle = ray.get_actor(actor_name(replica["model"], replica["replicaId"]))
            result = wait_worker(replica, handle, self.stop.is_set) or wait_ready(replica, handle, self.stop.is_set)
        except ValueError:
            result = outcome(replica, "failed", "REPLICA_DIED", "it was starting and is gone")
        except Exception as error:
            result = mistake(replica, error)
        self._report(replica["id"], result)

    def _heartbeat(self, futures: List[Future[None]]) -> None:
        """Wait for all work, with a line now and then; returns early when told to stop."""
        pending, spoken = set(futures), time.monotonic()
        while pending and not self.stop.is_set():
            _, pending = wait(pending, timeout=0.2)
            if pending and time.monotonic() - spoken >= HEARTBEAT_S:
                spoken = time.monotonic()
                self.events.emit("progress", f"{len(futures) - len(pending)} of {len(futures)} done",
                                 done=len(futures) - len(pending), total=len(futures))

    def finish(self, interrupted: bool = False) -> None:
        """Write the summary and leave at once; what was created and is not ready yet goes on by itself."""
        unreported = [one for one in (*self.replicas, *self.awaited) if one["id"] not in self.outcomes]
        names = world.taken_names() if unreported else set()
        for replica in unreported:
            begun = actor_name(replica["model"], replica["replicaId"]) in names
            self.outcomes[replica["id"]] = outcome(
                replica, "starting" if begun else "skipped", "INTERRUPTED", "the apply was interrupted")
        results = [self.outcomes[key] for key in sorted(self.outcomes)]
        results += [{"model": row["model"], "outcome": "blocked", "code": row["code"], "message": row["message"],
                     "replicas": row["replicas"]} for row in self.plan["blocked"]]
        ready = sum(1 for result in results if result["outcome"] == "ready")
        complete = ready == len(results) and not interrupted
        code = 0 if complete else 3
        self.events.emit("runSummary", f"{ready} of {len(results)} ready", level="info" if complete else "warning",
                         outcomes=results, exitCode=code, interrupted=interrupted)
        os._exit(code)


def claim_single_use(plan_id: str, job: str) -> Optional[bytes]:
    """Note that this job applies this saved plan; returns the job that has applied it before, if one has."""
    from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

    key = b"plan:" + plan_id.encode()
    if _internal_kv_put(key, job.encode(), overwrite=False, namespace=KV_NAMESPACE):
        earlier: Optional[bytes] = _internal_kv_get(key, namespace=KV_NAMESPACE)
        return earlier
    return None


def run_apply(request: Mapping[str, Any], events: EventStream) -> int:
    """Run one apply; returns the exit code where it ends before any action (lock, used plan)."""
    run = Run(request, events)
    signal.signal(signal.SIGTERM, lambda *_: run.stop.set())
    fleet, job = run.plan["fleet"]["name"], request["job"]
    events.emit("version", f"fleetctl agent, events {EVENT_VERSION}, ray {ray.__version__}",
                version=EVENT_VERSION, toolVersion=request["toolVersion"], planId=run.plan["planId"], job=job)
    try:
        lock = take_lock(
            fleet, request["holder"], float(request["lockTimeout"]),
            lambda holder: events.emit(
                "lockWaiting", f"the lock of {fleet} is held; to end its holder: ray job stop {holder.get('job')}",
                holder=holder),
            run.stop.is_set,
        )
    except Interrupted:
        events.emit("runSummary", "interrupted before anything was begun", level="warning", outcomes=[], exitCode=3,
                    interrupted=True)
        return 3
    except LockBusy as busy:
        text = f"the lock of fleet {fleet} is held by job {busy.holder.get('job', 'unknown')}"
        events.emit("lockHeld", text, level="error", holder=busy.holder)
        events.emit("runSummary", text, level="error", outcomes=[], exitCode=5, holder=busy.holder)
        return 5
    earlier = claim_single_use(run.plan["planId"], job) if request["singleUse"] else None
    if earlier:
        text = f"this plan was already applied by job {earlier.decode()}"
        events.emit("runSummary", text, level="error", outcomes=[], exitCode=6, usedBy=earlier.decode())
        return 6
    events.emit("lockAcquired", f"lock of fleet {fleet} acquired")
    events.emit("planAccepted", f"plan {run.plan['planId'][:12]}: {len(run.replicas)} to create", level="debug",
                **request["record"])
    run.work(lock)
    run.finish()
    return 0
