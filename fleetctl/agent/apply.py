"""Carry out a plan: take the lock, create replicas in the plan's order, wait until they are ready, report each one.

Partial success is a result: if one replica fails, the others continue. The lock is held until the last new replica has
its worker. Waiting needs no lock, nor does the last step: nodes fetch the weights that the fleet file keeps there.
On SIGTERM the run starts nothing more, reports, and exits.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, Mapping, Optional, Set

import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from . import cluster
from .attempt import Attempt, Context, EarlierAttempt, Outcome, outcome
from .create import replica_of
from .events import EventStream
from .failure import KV_NAMESPACE
from .grants import CardTurns, Grants
from .lock import HeldLock, Interrupted, LockBusy, take_lock
from .mark import actor_name
from .node_request import ask_for_nodes
from .notes import note
from .prefetch import run_prefetches
from .reload import forget_dead_actors
from .reloads import Reloads
from .replan import Replanning

POLL_S = 0.1
HEARTBEAT_S = 10.0
REPORT_S = 1.2
"""Ray sends SIGKILL three seconds after SIGTERM; the report must be written by then."""
DRAINING = "draining"


class Run:
    """One apply, from its request to its summary."""

    def __init__(self, request: Mapping[str, Any], events: EventStream) -> None:
        self.request = request
        self.plan: Mapping[str, Any] = request["plan"]
        self.events = events
        self.stop = threading.Event()
        self.outcomes: Dict[str, Outcome] = {}
        self.blocked: List[Mapping[str, Any]] = list(self.plan["blocked"])
        self.fetched: List[Outcome] = []
        self._pending: Deque[Attempt] = deque()
        self._under_way: List[Attempt] = []
        self._ready: List[Attempt] = []
        self._turns = CardTurns([])
        self._promoted: Set[str] = set()
        self._replanning = Replanning(request["job"], bool(request["mayReplan"]), events, time.monotonic)
        self._reloads = Reloads(request, events.emit, time.monotonic)
        self._last_beat = time.monotonic()

    def work(self, lock: HeldLock) -> None:
        """Create and await all replicas, then fetch the weights that nodes keep. Returns early on SIGTERM.

        A run that does not wait fetches on a few nodes only, so a watcher can replan soon; the next run continues.
        """
        self._create_all(lock)
        if self.stop.is_set():
            return
        for result in run_prefetches(self.request, self.events):
            self.fetched.append(result)
            if self.stop.is_set():
                return

    def _create_all(self, lock: HeldLock) -> None:
        ours = {self.plan["fleet"]["name"], self.plan.get("options", {}).get("adoptFrom")} - {None}
        self._context = Context(self._not_counted, ours, lock, Grants(), self.events.emit, time.monotonic)
        self._accept(self.request)
        self._under_way += self._already_starting()
        while not self.stop.is_set():
            began = time.monotonic()
            self._begin()
            self._step()
            for key, result in self._reloads.step().items():
                self._report(key, result)
            if not self._is_creating() and not self._replan():
                self._release()
                if self._reloads.may_end and (not self._under_way or not self.request["wait"]):
                    break
            self._heartbeat()
            self.stop.wait(max(POLL_S, time.monotonic() - began))
        self._recheck_ready()

    def _accept(self, request: Mapping[str, Any]) -> None:
        """Accept a plan: the request's own, or a new one after nodes refused replicas."""
        self.plan = request["plan"]
        self.events.emit("planAccepted", f"plan {self.plan['planId'][:12]}: {len(self.plan['actions'])} to create",
                         level="debug", **request["record"])
        replicas = [replica_of(self.plan, action, request["logs"]) for action in self.plan["actions"]]
        self._turns = CardTurns(replicas)
        self._promoted.update(replica["id"] for replica in replicas if replica["op"] == "promote")
        self._pending.extend(Attempt(replica, self._context) for replica in replicas)

    def _not_counted(self, model: str) -> Set[int]:
        """Return the ids of a model's replicas that exist but do not count: lost and unmanaged ones."""
        records = [*self.plan.get("lost", []), *self.plan.get("unmanaged", [])]
        return {int(row["replicaId"]) for row in records if row["model"] == model and row.get("replicaId") is not None}

    def _already_starting(self) -> List[Attempt]:
        """Return the replicas of planned models that were starting before this run; the run awaits them too."""
        names, planned = cluster.taken_names(), {attempt.key for attempt in self._pending}
        rows = [
            {"id": f"{model['key']}/{replica_id}", "model": model["key"], "replicaId": replica_id, "members": [],
             "lifecycle": model["lifecycle"]}
            for model in self.request["await"]
            for replica_id in cluster.live_ids(model["key"], names,
                                               self._not_counted(model["key"]) | set(model.get("but", ())))
        ]
        return [EarlierAttempt(row, self._context) for row in rows
                if row["id"] not in planned and _is_starting(actor_name(row["model"], row["replicaId"]))]

    def _begin(self) -> None:
        """Start pending attempts in the plan's order; at most `parallelism` replicas wait for Ray at a time."""
        creating = sum(not attempt.granted for attempt in self._under_way)
        for attempt in list(self._pending):
            if creating >= int(self.request["parallelism"]):
                return
            if self._turns.may_begin(attempt.key):
                self._pending.remove(attempt)
                self._under_way.append(attempt)
                creating += 1

    def _step(self) -> None:
        for attempt in self._under_way:
            if self.stop.is_set():
                return
            attempt.step()
            if attempt.granted:
                self._turns.done(attempt.key)
            if attempt.result is not None and not self._replanning.hold_back(attempt.key, attempt.result):
                self._report(attempt.key, attempt.result)
                if attempt.result["outcome"] == "ready":
                    self._ready.append(attempt)
        self._under_way = [attempt for attempt in self._under_way if attempt.result is None]

    def _recheck_ready(self) -> None:
        """Report the replicas that were ready and have gone down since."""
        for attempt in self._ready:
            result = None if self.stop.is_set() else attempt.since_ready()
            if result is not None:
                self._report(attempt.key, result)

    def _is_creating(self) -> bool:
        return bool(self._pending) or any(not attempt.granted for attempt in self._under_way)

    def _replan(self) -> bool:
        """Ask for a new plan if nodes refused replicas. Returns whether there is, or may be, more to create."""
        if not self._replanning.refused:
            return False
        self._replanning.ask()
        answer = self._replanning.answer()
        if answer is None:
            return True
        refused = self._replanning.take_asked()
        request = answer.get("request")
        if request is None:
            self.events.emit("notReplanned", f"the plan stays as it is: {answer.get('why')}", level="warning")
            for key, result in refused.items():
                self._report(key, result)
            return bool(self._replanning.refused)
        models = {result["model"] for result in refused.values()}
        self.blocked = [row for row in self.blocked if row["model"] not in models] + list(request["plan"]["blocked"])
        self._accept(request)
        count = len(request["plan"]["actions"])
        self.events.emit("replanned", f"planned again: {count} of {len(refused)} elsewhere", placed=count)
        return bool(self._pending or self._replanning.refused)

    def _release(self) -> None:
        if not self._context.lock.released:
            self._context.lock.release()
            self.events.emit("lockReleased", f"lock of fleet {self.plan['fleet']['name']} released", level="debug")

    def _report(self, key: str, result: Outcome) -> None:
        self.outcomes[key] = result
        kind = result["outcome"]
        if kind == "ready" and key in self._promoted:
            result["level"] = "HOT"
        level = {"ready": "info", "starting": "info", "skipped": "warning"}.get(kind, "error")
        where = f" on {', '.join(result['nodes'])}" if result["nodes"] else ""
        why = f": {result['message']}" if result["message"] else ""
        details = {name: value for name, value in result.items() if name not in ("message", "level")}
        word = "promoted" if "level" in result else kind
        self.events.emit("replica" + kind.capitalize(), f"{key}: {word}{where}{why}", level=level, **details)

    def _heartbeat(self) -> None:
        if time.monotonic() - self._last_beat >= HEARTBEAT_S:
            self._last_beat = time.monotonic()
            total = (len(self.outcomes) + len(self._under_way) + len(self._pending) + len(self._replanning.refused)
                     + self._reloads.unfinished)
            blocked = sum(row["replicas"] for row in self.blocked)
            message = f"{len(self.outcomes)} of {total} done" + (f", {blocked} blocked" if blocked else "")
            self.events.emit("progress", message, done=len(self.outcomes), total=total)

    def finish(self, interrupted: bool = False) -> None:
        """Write the summary and exit immediately; a created replica that is not ready yet continues to start."""
        code, why = ("INTERRUPTED", "the apply was interrupted") if interrupted else (None, "created, not awaited")
        self.outcomes.update({**self._replanning.refused, **self._reloads.outcomes_at_end(interrupted)})
        for attempt in (*self._under_way, *self._pending):
            self.outcomes[attempt.key] = attempt.result or outcome(
                attempt.replica, "starting" if attempt.begun else "skipped", code, why)
        results = sorted(self.outcomes.values(), key=lambda row: (row["model"], row["replicaId"]))
        results += [{"model": row["model"], "outcome": "blocked", "code": row["code"], "message": row["message"],
                     "replicas": row["replicas"]} for row in self.blocked]
        ready = sum(result["outcome"] == "ready" for result in results)
        wanted = sum(result.get("replicas", 1) for result in results)
        results += [*self.fetched, *(self._not_fetched() if interrupted else ())]
        complete = ready == wanted and not interrupted and all(row["outcome"] == "ready" for row in self.fetched)
        os._exit(self.events.end(0 if complete else 3, f"{ready} of {wanted} ready", results, interrupted=interrupted,
                                 waited=bool(self.request["wait"])))

    def _not_fetched(self) -> List[Outcome]:
        """Return the outcomes of the planned prefetches that had not run when the run was interrupted."""
        done = {(row["model"], node) for row in self.fetched for node in row["nodes"]}
        return [{"model": prefetch["model"], "outcome": "skipped", "level": "COLD", "code": "INTERRUPTED",
                 "nodes": [node["node"]], "message": "the apply was interrupted"}
                for prefetch in self.request["plan"].get("prefetches", []) for node in prefetch["nodes"]
                if (prefetch["model"], node["node"]) not in done]


def _is_starting(name: str) -> bool:
    """Return whether the named actor of our namespace is starting: neither ALIVE nor DEAD."""
    try:
        actor_id = ray.get_actor(name)._actor_id.hex()
    except ValueError:
        return False
    return cluster.actor_record(actor_id).state not in ("ALIVE", "DEAD")


def claim_single_use(plan_id: str, job: str) -> Optional[bytes]:
    """Record that this job applies this saved plan. Returns the job that applied it before, or None."""
    key = b"plan:" + plan_id.encode()
    if _internal_kv_put(key, job.encode(), overwrite=False, namespace=KV_NAMESPACE):  # it exists
        return bytes(_internal_kv_get(key, namespace=KV_NAMESPACE))
    return None


def run_apply(request: Mapping[str, Any], events: EventStream) -> int:
    """Run one apply. Returns an exit code only if it ends before any action (lock held, plan already applied)."""
    run = Run(request, events)
    signal.signal(signal.SIGTERM, lambda *_: run.stop.set())
    fleet, job = run.plan["fleet"]["name"], request["job"]
    events.begin(request, planId=run.plan["planId"])
    try:
        lock = take_lock(
            fleet, {**request["holder"], "driver": ray.get_runtime_context().get_job_id()},
            float(request["lockTimeout"]),
            lambda holder: events.emit(
                "lockWaiting", f"the lock of {fleet} is held; to end its holder: fleetctl stop {holder.get('job')}",
                holder=holder),
            run.stop.is_set)
    except Interrupted:
        return events.end(3, "interrupted before anything was begun", interrupted=True)
    except LockBusy as busy:
        events.emit("lockHeld", str(busy), level="error", holder=busy.holder)
        return events.end(5, str(busy), holder=busy.holder)
    earlier = claim_single_use(run.plan["planId"], job) if request["singleUse"] else None
    if earlier:
        return events.end(6, f"this plan was already applied by job {earlier.decode()}", usedBy=earlier.decode())
    events.emit("lockAcquired", f"lock of fleet {fleet} acquired")
    draining = cluster.draining_nodes()
    if draining:
        note(job, DRAINING, " ".join(sorted(draining)))  # no GET shows this, and a drain is never undone
    ask_for_nodes(run.plan, events)
    forget_dead_actors()
    _work(run, lock)
    return 0


def _work(run: Run, lock: HeldLock) -> None:
    """Work in a separate thread: a call to Ray may hang, and the run must still react to SIGTERM."""
    failures: List[BaseException] = []

    def work() -> None:
        try:
            run.work(lock)
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=work, name="apply", daemon=True)
    worker.start()
    while worker.is_alive() and not run.stop.is_set():
        worker.join(0.1)
    worker.join(REPORT_S)
    if failures:
        raise failures[0]
    run.finish(interrupted=run.stop.is_set())
