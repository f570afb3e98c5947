"""The restarts of a replica that count: how many in a row, after which pauses, and the reason of the last.

Ray restarts a replica's actor as often as it ends: its own count only grows, so a crash a month would use it up. Ours
is a file beside the engine's log, which outlives the actor's process. It starts again from zero once the replica has
been ready for HEALTHY_S. A restarted constructor that raises is final, however often Ray would restart the actor.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Optional

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_put

from . import node
from .messages import InARow, Lifecycle
from .own_files import open_own, replace_own
from .report import KV_NAMESPACE, StartFailed, later, utc_now
from .wire import document_of, parse

HEALTHY_S = 2 * node.MAX_BACKOFF_S
"""As in Kubernetes."""
FREE = b"free-restart:"
"""Prefix of the keys in Ray's table for actors whose next restart does not count; the actor id follows."""
MOST_BYTES = 1 << 20


class RestartsUsed(StartFailed):
    """No restart is left; code, message and places are those of the end before."""


class Restarts:
    """The restarts of this actor; `log` = the path of its first engine's log."""

    def __init__(self, log: str, lifecycle: Lifecycle) -> None:
        self._path, self._lifecycle = log + ".restarts", lifecycle
        self._actor_id = ray.get_runtime_context().get_actor_id() or ""
        self._now = InARow(self._actor_id)

    def count(self) -> None:
        """Count the restart that has just begun, and wait; raises RestartsUsed if no restart was left for it.

        Without a legible file the count starts again, but if that may happen each time, after the longest pause.
        """
        total = node.restart_count()
        kept = self._read()
        before = kept or InARow(self._actor_id)
        if self._is_free():
            self._now = before._replace(code="", message="", places=())
            self._write()
            return
        if before.restarts >= self._lifecycle.restart_max:
            raise RestartsUsed(before.code or "REPLICA_DIED", self._why_final(before), before.places)
        self._now = InARow(self._actor_id, before.restarts + 1, before.since or utc_now())
        is_kept = self._write() and (kept is not None or total <= 1)
        node.back_off(self._lifecycle.restart_backoff if is_kept else node.MAX_BACKOFF_S, self._now.restarts)

    def _is_free(self) -> bool:
        """Return, once, whether this restart does not count; if Ray does not answer, it does."""
        try:
            return bool(_internal_kv_del(FREE + self._actor_id.encode(), namespace=KV_NAMESPACE))
        except Exception:
            return False

    def _why_final(self, before: InARow) -> str:
        why = before.message or "its process ended without a reason"
        if not before.restarts:
            return why
        used = f"all {before.restarts} restarts" if before.restarts > 1 else "the one restart"
        return f"{used} since {before.since} used without {HEALTHY_S / 60:g} minutes of readiness; {why}"

    def ready(self) -> Optional[int]:
        """Note that the replica is ready; return how many of Ray's restarts do not count, None if there was none."""
        if not node.was_restarted():
            return None
        later(HEALTHY_S, self._start_again)
        return max(0, node.restart_count() - self._now.restarts)

    def _start_again(self) -> None:
        self._now = InARow(self._actor_id)
        self._write()

    def ended(self, failure: StartFailed) -> None:
        """Note why the replica is about to end, for the case that it was the last time."""
        self._now = self._now._replace(code=failure.code, message=str(failure), places=tuple(failure.places))
        self._write()

    def _read(self) -> Optional[InARow]:
        """Return what the file says of this actor; None if it says nothing: names of logs are reused."""
        try:
            with open(open_own(self._path, os.O_RDONLY), "rb") as file:
                found = parse(InARow, json.loads(file.read(MOST_BYTES)))
        except (OSError, ValueError, RecursionError):
            return None
        return found if found.actor_id == self._actor_id else None

    def _write(self) -> bool:
        """Write the file, and return whether that worked: a full disk is no reason to end."""
        try:
            replace_own(self._path, json.dumps(document_of(self._now)).encode())
        except OSError:
            return False
        return True


def give_restart(actor_id: str) -> None:
    """Let the next restart of an actor not count: it is not a failure of the replica's."""
    with suppress(Exception):  # then it counts
        _internal_kv_put(FREE + actor_id.encode(), b"1", overwrite=True, namespace=KV_NAMESPACE)
