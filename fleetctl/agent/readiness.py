"""Whether a replica that became ready still answers its readiness probe, and how the cluster learns that it does not.

The probe goes on, slower than during the start. It ends nothing: that is liveness. Ray takes an actor's repr only once,
so the actor writes a record while its replica is not ready, and removes it when the probe passes again. The record
names the life of the actor by its `ready_at`, so the next life does not inherit it.

No `from __future__ import annotations` here: `wire.parse` reads the types of fields.
"""

import contextlib
import threading
import time
from typing import Callable, NamedTuple, Optional

import ray

from . import records
from .messages import Probe, Replica
from .ports import PortTaken
from .probes import Check
from .records import NOT_READY
from .report import read_mark, utc_now
from .wire import document_of, parse

PERIOD_S, TIMEOUT_S = 10.0, 5.0
"""The shortest pause between two probes of a ready engine, and the shortest time limit of one: it may be busy."""
RECORD_S = 10.0
"""The shortest time between two writes of one actor."""
REASON_CHARS = 300


class NotReady(NamedTuple):
    """Since when an engine is no longer ready, RFC 3339: how its readiness probe failed, or that it is being ended."""

    since: str
    reason: str


class NotReadyRecord(NamedTuple):
    """What status, endpoints and verbs read of a replica that is not ready."""

    model: str
    replica_id: int
    ready_at: str
    since: str
    reason: str


def keep_probing(
    probe: Probe, build: Callable[[Probe], Check], ended: threading.Event, tell: Callable[[Optional[NotReady]], None]
) -> None:
    """Probe a ready engine until it has `ended`, in a thread. After each probe, `tell` gets its state; None = ready.

    It is not ready once the probe has failed `failure_threshold` times in a row, since the first of these failures.
    """
    def run() -> None:
        slower = probe._replace(period=max(probe.period, PERIOD_S), timeout=max(probe.timeout, TIMEOUT_S))
        check, failures, state, began = build(slower), 0, None, ""
        while not ended.wait(slower.period):
            at = utc_now()
            try:
                problem = check()
            except PortTaken as taken:
                problem = str(taken)
            except Exception:  # such as no memory for a probe's process: that says nothing about the engine
                continue
            if problem is None:
                failures, state = 0, None
            elif not ended.is_set():
                failures, began = failures + 1, began if failures else at
                if failures >= slower.failure_threshold:
                    state = state or NotReady(began, problem[:REASON_CHARS])
            tell(state)

    threading.Thread(target=run, name="fleetctl-readiness", daemon=True).start()


class Recorder:
    """Keeps the record of one replica in the state that its actor has seen last. It never waits for Ray's table."""

    def __init__(self, replica: Replica, ready_at: str, *, restarted: bool) -> None:
        self._replica, self._ready_at = replica, ready_at
        self._actor = str(ray.get_runtime_context().get_actor_id())
        self._recorded: Optional[NotReady] = None
        self._is_known = not restarted  # an earlier life may have left a record
        self._next = 0.0
        self._busy = threading.Lock()

    def see(self, state: Optional[NotReady]) -> None:
        """Record a changed state; what cannot be written now is written at a later call."""
        if (self._is_known and state == self._recorded) or time.monotonic() < self._next:
            return
        if self._busy.acquire(blocking=False):
            self._next = time.monotonic() + RECORD_S
            try:
                threading.Thread(target=self._write, args=(state,), name="fleetctl-record", daemon=True).start()
            except RuntimeError:  # no thread is free
                self._busy.release()

    def leave(self, why: str) -> None:
        """Record at once that the replica is being ended: it serves no more, though its actor is up until it has."""
        def run() -> None:
            if self._busy.acquire(timeout=RECORD_S):
                self._write(NotReady(utc_now(), why))

        with contextlib.suppress(RuntimeError):  # without a free thread it ends all the same
            threading.Thread(target=run, name="fleetctl-record", daemon=True).start()

    def _write(self, state: Optional[NotReady]) -> None:
        try:
            fleet, replica = self._replica.fleet, self._replica
            if state is None:
                written = (not self._is_known and self._actor not in records.records_of(NOT_READY, fleet)
                           ) or records.remove(NOT_READY, self._actor, fleet)
            else:
                record = NotReadyRecord(replica.model, replica.replica_id, self._ready_at, *state)
                written = records.add(NOT_READY, self._actor, document_of(record), fleet)
            if written:
                self._recorded, self._is_known = state, True
        except Exception:  # Ray's head is down
            pass
        finally:
            self._busy.release()


def is_ready(actor_id: str, report: str) -> bool:
    """Return whether a replica that is up, with this repr, is ready: no record of its actor's life says otherwise."""
    mark = read_mark(report)
    found = records.records_of(NOT_READY, mark.fleet).get(actor_id) if mark else None
    return mark is None or found is None or parse(NotReadyRecord, found.payload).ready_at != mark.ready_at
