"""A replica: the detached actor `ModelActor:<key>:<id>`, here with one member. Its constructor returns once ready.

So Ray's actor states are the health states: PENDING_CREATION = starting, ALIVE = ready, RESTARTING = the engine went
down and is being restarted, DEAD = it went down for good. A record says that a replica is ALIVE but no longer ready.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import ray

from . import cluster, node
from .budget import Restarts, RestartsUsed, give_restart
from .caches.offers import Offer, told
from .member import MemberSeat, deadline_after, log_of
from .messages import FailedStart, Json, Place, ReloadRequest, Replica
from .readiness import NotReady, Recorder
from .reload import Reloading, Steps, as_reloaded
from .report import (
    LEAVE_S,
    StartFailed,
    about,
    describe,
    encode_failure,
    end_with,
    exit_in,
    injected_variables,
    later,
    start_failure,
    utc_now,
)
from .wire import from_parts, parse

ENDED_S = 60.0
"""How much longer than their grace period the engines of a replica may take to end, and their cards to be free."""
CHECK_S = 3.0
DEAD_CHECK_S = 60.0
MOST_BEFORE_S = 60.0
"""How much of the time before this process counts as part of its start: if it is more, clocks differ, or it waited."""
MAX_UNPUBLISHED = 2
"""Checks in a row that find us ALIVE without our repr; after only one, the repr may still be on its way."""


class ReplicaActor:
    """Base class of the actor of every replica. `parts` = the planned replica with each member's engine and log."""

    _start: Callable[[], None]
    """Return when the replica is ready."""
    _await_end: Callable[[], StartFailed]
    """Return why an engine has ended, once one has; log that, unless the replica is leaving."""
    _take_step: Steps
    """Run a step of a start or a reload, a method of the members' seats."""

    _restarted = False

    def __init__(self, *parts: bytes) -> None:
        began, began_at = time.monotonic(), time.time()
        self._replica = from_parts(Replica, parts)
        self._places: List[Place] = []
        self._ready_at = ""
        self._started_in: Optional[float] = None
        self._failed: Optional[FailedStart] = None
        self._leaving = False
        self._restarts = Restarts(log_of(self._replica.members[0]).path, self._replica.lifecycle)
        self._uncounted: Optional[int] = None
        self._restarted = restarted = node.was_restarted()
        threading.Thread(target=self._watch_record, name="fleetctl-record", daemon=True).start()
        try:
            if restarted:
                self._require_nodes()
                self._restarts.count()
                self._replica = as_reloaded(self._replica)
            self._start()
        except Exception as error:
            failure = start_failure(error)
            self._fail(failure, restarted and not isinstance(failure, RestartsUsed))
        self._uncounted = self._restarts.ready()
        if not restarted and self._replica.op != "promote":  # these find their weights where a new replica does not
            before = began_at - self._replica.created_ms / 1000
            took = time.monotonic() - began + (before if 0 <= before <= MOST_BEFORE_S else 0)
            self._started_in = max(0.1, round(took, 1))
        self._ready_at = utc_now()
        self._reloads = Reloading(self._replica, self._places, self._take_step)
        self._recorder = Recorder(self._replica, self._ready_at, restarted=restarted)
        threading.Thread(target=self._end_with_engines, name="fleetctl-watch", daemon=True).start()

    def _fail(self, failure: StartFailed, restarted: bool) -> None:
        """End a failed start: the first one raises, so the replica is DEAD with its reason; a restart is retried."""
        if restarted:
            self._restarts.ended(failure)
        log_of(self._replica.members[0]).end(f"{failure.code}: {failure}")
        packed = encode_failure(about(self._replica, failure))
        if restarted:
            end_with(packed)
        raise RuntimeError(packed) from None

    def _end_with_engines(self) -> None:
        """End this actor when an engine has ended, through its method `end`, so that Ray keeps the reason."""
        try:
            failure = self._await_end()
            if not self._leaving:
                self._restarts.ended(failure)
                reason = encode_failure(about(self._reloads.replica, failure))
                ray.get_runtime_context().current_actor.end.remote(reason)
                time.sleep(LEAVE_S)
        finally:
            if not self._leaving:
                os._exit(1)

    def _see_readiness(self, state: Optional[NotReady]) -> None:
        """Let the cluster know whether the engines answer; once they are being ended, they need not."""
        if not self._leaving:
            self._recorder.see(state)

    def _end_engines(self) -> None:
        """End all engines, each within its grace period, and return when their processes are gone."""

    def _end_members(self) -> None:
        """End the members' engines and actors, if they have their own."""

    def _require_nodes(self) -> None:
        """Raise StartFailed if a node of ours is gone: then a restart cannot help, and no failure of ours ends us."""

    def _watch_record(self) -> None:
        """End this process if Ray's table does not have it as it should be.

        Ray asks a process once to exit. If it hung just then, it goes on as the process of a dead actor.
        """
        self._require_published_repr()
        context = ray.get_runtime_context()
        actor_id, worker_id = context.get_actor_id(), context.get_worker_id()
        while True:
            time.sleep(DEAD_CHECK_S)
            try:
                record = cluster.actor_record(actor_id)
            except Exception:  # the head is down
                continue
            if record.state == "DEAD" and record.worker_id == worker_id:
                log_of(self._replica.members[0]).end("Ray has ended it, which its process did not hear of")
                os._exit(1)

    def _require_published_repr(self) -> None:
        """End this process, for Ray to restart it, if Ray reports it as ALIVE without its repr.

        If Ray's head restarts while we start, it requests our creation again, hears that we exist, and takes that for
        the constructor's end. Without its repr nothing knows the replica's node or that it is ready, so restarting it
        loses nothing.
        """
        unpublished, own = 0, ray.get_runtime_context().get_actor_id()
        while unpublished < MAX_UNPUBLISHED:
            time.sleep(CHECK_S)
            try:
                record = cluster.actor_record(own)
            except Exception:  # the head is down
                continue
            if self._failed or (record.state == "ALIVE" and self._ready_at and self._ready_at in record.report):
                return
            unpublished = unpublished + 1 if record.state == "ALIVE" else 0
        log_of(self._replica.members[0]).end("Ray's head was restarted during its start; it starts again")
        give_restart(own)
        self._end_members()
        os._exit(1)

    def reload(self, request: Json) -> None:
        """Start a reload: the engines load the weights of the request, a ReloadRequest, and keep serving."""
        self._reloads.begin(parse(ReloadRequest, request))

    def reload_in_steps(self, request: Json) -> None:
        """As `reload`, with several requests to the engines; actors of earlier releases do not have this method."""
        self.reload(request)

    def reloading(self) -> Json:
        """Return the progress of the latest reload."""
        return self._reloads.state()

    def caches(self) -> Json:
        """Return the compile caches that other replicas of the fleet may fetch from the nodes of this one."""
        return told(self._offers())

    def _offers(self) -> List[Offer]:
        """Return what the members offer."""
        return []

    def end(self, reason: str) -> None:
        """End this process, so that Ray keeps the reason."""
        end_with(reason)

    def grace_s(self) -> float:
        """Return how long the engines may take to end: a run that asks this replica to leave waits for that."""
        return self._replica.grace_s

    def leave(self, again: bool = False) -> None:
        """End the engines and return when their processes are gone and their cards free; the run then ends the actor.

        If that run has been ended, the actor ends itself: for good, or if `again`, to be restarted by Ray.
        """
        self._leaving = True
        self._recorder.leave("it is being restarted" if again else "it is being ended")
        self._end_in(self._replica.grace_s + ENDED_S, again)
        self._end_engines()
        self._end_in(LEAVE_S, again)

    def _end_in(self, seconds: float, again: bool) -> None:
        if again:
            exit_in(seconds)
        else:
            later(seconds, self._end_permanently)

    def _end_permanently(self) -> None:
        """End this actor without a restart: through Ray, or by force if Ray does not end it."""
        try:
            ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
            time.sleep(LEAVE_S)
        finally:
            os._exit(1)

    def __repr__(self) -> str:
        """Return the replica's description. Ray also asks for it after the constructor has raised, without places."""
        return describe(self._replica, self._places, self._ready_at, failed=self._failed,
                        uncounted=self._uncounted, started_in=self._started_in)


class ModelActor(ReplicaActor):
    """One replica, one engine."""

    def _start(self) -> None:
        deadline = deadline_after(self._replica.lifecycle)
        self._seat = seat = MemberSeat(self._replica.members[0], self._restarted)
        self._places = [seat.place()]
        injected = injected_variables(self._replica, seat.member, self._places[0], (seat.ip, seat.leader_port))
        seat.fetch_files(injected, self._replica.fleet, deadline - time.monotonic())
        engine = seat.start_engine(injected)
        try:
            engine.become_ready(deadline, self._replica.lifecycle.startup_timeout)
        except StartFailed:
            engine.stop()
            raise
        self._places = [self._places[0]._replace(port=engine.served_port(), weights=seat.served_weights(),
                                                 caches=seat.got_caches())]
        seat.keep_files()
        self._engine = engine

    def _fail(self, failure: StartFailed, restarted: bool) -> None:
        failure.places = failure.places or self._places
        super()._fail(failure, restarted)

    def _await_end(self) -> StartFailed:
        self._engine.keep_probing(self._see_readiness)
        reason = self._engine.watch()
        if not self._leaving:
            log_of(self._replica.members[0]).end(reason)
        return StartFailed("ENGINE_EXITED", reason, self._places)

    def _take_step(self, step: str, given: Mapping[int, Tuple[Any, ...]]) -> Dict[int, Any]:
        return {index: getattr(self._seat, step)(*arguments) for index, arguments in given.items()}

    def _offers(self) -> List[Offer]:
        return self._seat.offers()

    def _end_engines(self) -> None:
        self._seat.end_engine()
