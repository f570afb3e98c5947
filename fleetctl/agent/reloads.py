"""The reloads of an apply: ask replicas to reload, one per model at a time, and report the results.

A failure ends the reloads of its model; its other replicas run as before. Each reload is recorded for later plans
when its replica is asked and when it has ended, because a replica's repr describes it as of the start of its actor.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Set

import ray

from . import cluster, model_files
from .lock import HeldLock, LockBusy, take_lock
from .mark import actor_name, utc_now
from .ports import host_port, serving_at
from .records import RELOAD, add, remove
from .reload_call import RELOAD_ENDED, RELOAD_FAILED

POLL_S = 0.5
MARGIN_S = 120.0
MAX_MESSAGE = 600
MAX_SOURCES = 3
NO_RECORD = "the record of it in Ray's table could not be written"
GONE = "it is gone, or another actor has its name"
ENDED = "its actor ended meanwhile, and Ray is restarting it"

Row = Dict[str, Any]
Outcome = Dict[str, Any]


class Reloads:
    """The reloads of a request. Nothing waits: `step` goes as far as it can."""

    def __init__(self, request: Mapping[str, Any], emit: Callable[..., None], clock: Callable[[], float]) -> None:
        self._request, self._emit, self._clock = request, emit, clock
        self._queues: Dict[str, Deque[Row]] = {}
        for row in request["plan"].get("reloads", []):
            self._queues.setdefault(row["model"], deque()).append(dict(row))
        self._under_way: Dict[str, _Reload] = {}
        self._sources: Dict[str, List[Mapping[str, Any]]] = {}
        self._lock: Optional[HeldLock] = None
        self._waits = bool(request.get("wait", True))
        self._started: Set[str] = set()

    @property
    def may_end(self) -> bool:
        """Return whether the run may end: all have a result, or, without waiting, one of each model has begun."""
        if self._waits or self._lock is None:
            return not self.unfinished
        return all(reload.answered for reload in self._under_way.values())

    @property
    def unfinished(self) -> int:
        """Return how many reloads have no result yet."""
        return len(self._under_way) + sum(map(len, self._queues.values()))

    def step(self) -> Dict[str, Outcome]:
        """Continue the reloads of all models, and return the new results by replica."""
        if not self.unfinished:
            return {}
        if self._lock is None:
            try:
                self._lock = self._take_lock()
            except LockBusy as busy:
                return self._skip("LOCK_HELD", f"another run is reloading this fleet's replicas: {busy}", *self._queues)
        results: Dict[str, Outcome] = {}
        for model, queue in self._queues.items():
            if model not in self._under_way and queue and (self._waits or model not in self._started):
                self._started.add(model)
                self._under_way[model] = self._start(queue.popleft())
            if model in self._under_way:
                results.update(self._step(model, self._under_way[model]))
        if not self.unfinished:
            self._lock.release()
        return results

    def outcomes_at_end(self, interrupted: bool) -> Dict[str, Outcome]:
        """Return the results of the reloads that have none when the run ends."""
        code = "INTERRUPTED" if interrupted else None
        running = {reload.row["id"]: reload.outcome("starting", code, "its reload continues by itself")
                   for reload in self._under_way.values()}
        if interrupted:
            return {**running, **self._skip("INTERRUPTED", "interrupted: it runs as before", *self._queues)}
        why = "replicas of a model reload one at a time, and this run does not wait: the next apply continues"
        return {**running, **self._skip("WAITS_TURN", why, *self._queues)}

    def _take_lock(self) -> HeldLock:
        holder = {**self._request["holder"], "driver": ray.get_runtime_context().get_job_id()}
        return take_lock(f"{self._request['plan']['fleet']['name']}/reload", holder, 0.0, lambda _: None, lambda: False)

    def _skip(self, code: str, why: str, *models: str) -> Dict[str, Outcome]:
        rows = [row for model in models for row in self._queues[model]]
        for model in models:
            self._queues[model].clear()
        return {row["id"]: _Reload(row, self._clock, self._note).outcome("skipped", code, why) for row in rows}

    def _note(self, row: Row, state: Optional[Mapping[str, Any]]) -> bool:
        """Note the state of a replica's reload, None = remove its note; returns whether that succeeded."""
        fleet, subject = self._request["plan"]["fleet"]["name"], f"{row['actorId']}/{self._request['job']}"
        if state is None:
            return remove(RELOAD, subject, fleet)
        return add(RELOAD, subject, {
            **{key: row[key] for key in ("model", "replicaId", "actorId", "specHash")},
            "nodeIds": list(dict.fromkeys(member["nodeId"] for member in row["members"])),
            "fleet": fleet, "namespace": self._request["namespace"], **state}, fleet)

    def _start(self, row: Row) -> "_Reload":
        for member in row["members"]:
            weights = member.get("weights")
            if weights:
                more = self._sources.get(weights["artifact"], [])[-MAX_SOURCES:]
                member["weights"] = {**weights, "sources": [*more, *weights["sources"]]}
        nodes = ", ".join(dict.fromkeys(member["node"] for member in row["members"]))
        self._emit("replicaReloading", f"{row['id']}: reloading its weights on {nodes}; it keeps serving",
                   model=row["model"], replicaId=row["replicaId"])
        return _Reload(row, self._clock, self._note)

    def _step(self, model: str, reload: "_Reload") -> Dict[str, Outcome]:
        result = reload.step()
        if result is None:
            return {}
        del self._under_way[model]
        results = {reload.row["id"]: result}
        for place in reload.places:
            if place["weights"] and place["weights"]["port"] and cluster.is_at(place["nodeId"], place["ip"]):
                self._sources.setdefault(place["weights"]["artifact"], []).append(_source(reload.row["id"], place))
        if result["outcome"] != "ready":
            why = f"the reload of {reload.row['id']} before it did not succeed: it runs as before"
            results.update(self._skip("NOT_BEGUN", why, model))
        return results


def _source(replica: str, place: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a member that has reloaded as a source for the next replica."""
    weights = place["weights"]
    return {"replica": replica, "nodeId": place["nodeId"], "address": host_port(place["ip"], weights["port"]),
            "view": weights["view"], "whole": weights["whole"]}


class _Reload:
    """One replica's reload: asks its actor to reload, then polls it until the reload has ended."""

    def __init__(self, row: Row, clock: Callable[[], float], note_of: Callable[..., bool]) -> None:
        self.row, self._clock, self._note = row, clock, partial(note_of, row)
        self.places: List[Mapping[str, Any]] = []
        self._begun_at = self._next = clock()
        self._handle: Any = None
        self._answer: Any = None
        self._restarts = 0
        self.answered = False

    def outcome(self, kind: str, code: Optional[str], message: str, **more: Any) -> Outcome:
        """Return the result of this replica."""
        return {"model": self.row["model"], "replicaId": self.row["replicaId"], "outcome": kind, "code": code,
                "nodes": list(dict.fromkeys(member["node"] for member in self.row["members"])), "message": message,
                "seconds": round(self._clock() - self._begun_at, 2), **more}

    def step(self) -> Optional[Outcome]:
        """Continue without waiting; return the result once there is one."""
        try:
            return self._step()
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):  # old and new weights may not both fit
            return self._ended_meanwhile()
        except Exception as error:
            return self._failed("AGENT_ERROR", f"{error.__class__.__name__}: {error}".splitlines()[0], asked=True)

    def _step(self) -> Optional[Outcome]:
        if self._handle is None:
            return self._find()
        if self._clock() < self._next:
            return None
        done, _ = ray.wait([self._answer], timeout=0)
        if done:
            state = ray.get(self._answer)
            self.answered = True
            if not state:  # a new actor; do not ask again, as the reload may have ended its engine
                return self._failed(RELOAD_ENDED, ENDED)
            running = state["state"] == "reloading"
            if state["specHash"] == self.row["specHash"] and not running:
                return self._ended(state)
            self._ask(request=not running)
        if self._is_late():
            return self.outcome("starting", "STILL_STARTING", "it continues by itself; the next apply has the result")
        return None

    def _find(self) -> Optional[Outcome]:
        """Find the planned actor and ask it to reload; note that first, so that a plan knows even if this job dies."""
        with suppress(ValueError):
            self._handle = ray.get_actor(actor_name(self.row["model"], self.row["replicaId"]))
        if self._handle is None or self._handle._actor_id.hex() != self.row["actorId"]:
            return self.outcome("skipped", "NOT_FOUND", GONE)
        self._restarts = cluster.actor_record(self.row["actorId"]).restarts
        if not self._note({"at": utc_now(), "restarts": self._restarts, "asked": True}):
            why = f"{NO_RECORD}, so later plans would not know of the reload: it was not asked to"
            return self.outcome("failed", RELOAD_FAILED, why)
        self._ask()
        return None

    def _ask(self, request: bool = True) -> None:
        """Ask for the state; `request` = ask for the reload first, because none or a different one was running."""
        if request:
            self._handle.reload.remote({
                "runs": self.row["runs"], "specHash": self.row["specHash"], "http": self.row["http"],
                "startupTimeout": self.row["lifecycle"]["startupTimeout"],
                "members": [{key: member.get(key) for key in ("group", "copy", "rank", "weights")}
                            for member in self.row["members"]]})
        self._answer = self._handle.reloading.remote()
        self._next = self._clock() + POLL_S

    def _ended(self, state: Mapping[str, Any]) -> Outcome:
        if state["state"] == "failed":
            return self._failed(state["code"], state["reason"], asked=state.get("runs", "") is None)
        if state["state"] == "refused":
            self._note(None)
            why = "it has reloaded since the plan was made: it runs another spec"
            return self.outcome("skipped", "SPEC_MOVED", why)
        self.places = state["places"]
        noted = self._note({"at": state["at"], "restarts": state["restarts"], "weights": [
            {key: value for key, value in place["weights"].items() if key != "fetched"} if place["weights"] else None
            for place in self.places]})
        if not noted:
            why = f"its engine has loaded other weights in place, but {NO_RECORD}: the next apply notes it"
            return self.outcome("starting", "STILL_STARTING", why)
        return self.outcome("ready", "RELOADED", "its engine has loaded other weights in place",
                            **serving_at(self.places), **model_files.fetch_summary(self.places))

    def _ended_meanwhile(self) -> Optional[Outcome]:
        """Return the result if the actor has ended since it was asked; otherwise ask it for the state again."""
        record = cluster.actor_record(self.row["actorId"])
        if record.state == "DEAD":
            self._note(None)
            return self.outcome("skipped", "NOT_FOUND", GONE)
        if record.state == "ALIVE" and record.restarts == self._restarts and not self._is_late():
            self._ask(request=False)
            return None
        return self._failed(RELOAD_ENDED, ENDED)

    def _is_late(self) -> bool:
        return self._clock() - self._begun_at > float(self.row["lifecycle"]["startupTimeout"]) + MARGIN_S

    def _failed(self, code: str, why: str, asked: bool = False) -> Outcome:
        """Return the result of a failure; `asked` = its engines were asked, so what they have loaded is not known."""
        self._note({"at": utc_now(), "restarts": self._restarts, "code": code, "message": why[:MAX_MESSAGE],
                    "asked": asked})
        effect = ("its engines were asked and may have loaded the new weights: its spec is not known" if asked
                  else "it keeps running its former spec")
        return self.outcome("failed", code, f"{why}\n{effect}")
